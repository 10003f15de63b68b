"""Deaths at a step of a ring message or of a promotion (cases t1 to t3).

| step | a node dies when it has |
|---|---|
| master: `broadcast`, `sent` | given a message to the ring, and sent it to the first mirror |
| master: `circled` | its message back, so that all mirrors have received it |
| master: `heard`, `confirmed` | a mirror's report, and counted it |
| master: `written`, `synced` | written to its own journal, and made it durable |
| mirror: `forwarded`, `received`, `applied` | sent a message on, taken it, and put it in its copy |
| mirror: `durable`, `reported` | a message on its disk, and told the master so |
| mirror: `flushed` | seen that nothing of a dead member is in flight, whose alias it is |
| heir: `chosen`, `crowned` | decided to propose itself, and heard that it is the master |

A mirror forwards a message before it stores it, so no step lies between stored and forwarded. What
a ring message is sent with may be the acks of others, so `sent` and `forwarded` cover the ack
round, too.
"""

import random
import signal

from tests.cluster.mirrored.mirrored_cluster import MirroredCluster
from tests.support.awaiting import eventually
from tests.support.cluster.workload_process import RecordedRun

MASTER_STEPS = (
    "mirrors.broadcast", "mirrors.sent", "mirrors.circled", "mirrors.heard", "mirrors.confirmed",
    "journal.synced",
)  # fmt: skip
MIRROR_STEPS = (
    "mirrors.forwarded", "mirrors.received", "mirrors.applied", "mirrors.durable",
    "mirrors.reported",
)  # fmt: skip
ALIAS_STEP = "mirrors.flushed"
HEIR_STEPS = ("mirrors.chosen", "mirrors.crowned")
# The hit at which a node dies is random, up to this one.
HITS = 200
# Confirms that show that the queues go on.
WORK_CONFIRMS = 20


class StepFaults:
    """Lets nodes of a cluster die at a step, under the workload `run`."""

    def __init__(self, cluster: MirroredCluster, run: RecordedRun, numbers: random.Random) -> None:
        self._cluster = cluster
        self._run = run
        self._random = numbers

    def master_dies(self, name: str, step: str) -> None:
        """Let a node die as the master of a queue; it has led none since its start."""
        self.restart(name, f"{step}=kill@{self._hit()}")
        with self._run.fault(f"master at {step}", name):
            # A step of the journal may come sooner, while the node gets what it lacks.
            if not self._cluster[name].has_ended():
                self._cluster.spread()
            self._await_death(name)

    def mirror_dies(self, name: str, step: str) -> None:
        """Let a node die as a mirror of all queues."""
        with self._run.fault(f"mirror at {step}", name):
            self._cluster[name].kill()
            self._cluster[name].arm(f"{step}=kill@{self._hit()}")
            self._cluster[name].launch()
            self._await_death(name)

    def alias_dies(self, name: str, other: str) -> None:
        """Kill `other`; `name` dies when it is done with a dead member to its left.

        That may be its own member of the time before its start.
        """
        node = self._cluster[name]
        with self._run.fault(f"alias at {ALIAS_STEP}", name):
            node.kill()
            node.arm(f"{ALIAS_STEP}=kill@{self._random.randrange(1, 4)}")
            node.launch()
            eventually(lambda: node.is_ready() or node.has_ended(), f"{name} starts or dies")
            self._cluster[other].kill()
            self._run.await_confirms(WORK_CONFIRMS)
            eventually(lambda: node.has_ended() or not self._dead(), "the dead are erased")
            node.kill()
            node.arm("")
            node.launch()
            self._cluster[other].start()
            node.await_ready()

    def heir_dies(self, name: str, heir: str, step: str) -> None:
        """Kill the master of all queues, and the first one who takes over; the third node leads."""
        (last,) = set(self._cluster.names) - {name, heir}
        # The older mirror takes over first.
        self.restart(heir, f"{step}=kill@1")
        self.restart(last)
        eventually(
            lambda: {self._cluster.master(queue) for queue in self._cluster.groups()} == {name},
            f"{name} leads all queues",
        )
        with self._run.fault(f"master, heir at {step}", f"{name}, {heir}"):
            self._cluster[name].kill()
            assert self._cluster[heir].await_end() == -signal.SIGKILL, self._cluster[heir].log()
            self._run.await_confirms(WORK_CONFIRMS)
            self._cluster[heir].arm("")
            for each in (heir, name):
                self._cluster[each].launch()
            for each in (heir, name):
                self._cluster[each].await_ready()

    def restart(self, name: str, armed: str = "") -> None:
        """Kill a node and let it return as a mirror of all queues, with armed fail points.

        It may die at one of them before it is in sync.
        """
        with self._run.fault("kill", name):
            self._cluster[name].kill()
            self._run.await_confirms(WORK_CONFIRMS)
            node = self._cluster[name]
            node.arm(armed)
            node.launch()
            eventually(lambda: node.is_ready() or node.has_ended(), f"{name} starts or dies")
            eventually(
                lambda: node.has_ended() or not self._cluster.lacking(), f"{name} is in sync", 0.1
            )

    def _await_death(self, name: str) -> None:
        node = self._cluster[name]
        assert node.await_end() == -signal.SIGKILL, node.log()
        node.arm("")
        self._run.await_confirms(WORK_CONFIRMS)
        node.start()

    def _dead(self) -> bool:
        """Whether some ring has dead members."""
        return any(
            not member.is_alive
            for group in self._cluster.groups().values()
            for member in group.members
        )

    def _hit(self) -> int:
        return self._random.randrange(1, HITS)
