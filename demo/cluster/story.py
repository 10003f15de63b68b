"""The story of the cluster: mirror a queue, let it lose its master three times, judge and draw.

Faults come one after the other, each when all copies are in sync again.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rich.console import Console

from demo.checks import Checks, DemoError
from demo.cluster.confirms import Confirms, Fault, confirms_of
from demo.cluster.copies import compare_command, copy_report
from demo.cluster.networks import Network
from demo.cluster.nodes import CLIENTS, Etcd, Node, Watch
from demo.cluster.tour import KEPT, KEPT_COUNT
from demo.processes import Processes
from demo.steps import Bar, Steps
from simulator.checker.events import FaultEnd, FaultStart, MasterReport
from simulator.checker.history import Recorder, now_us, read_history
from simulator.checker.verdict import Verdict, judge
from simulator.checker.violation import Rule

NAMES = ("n1", "n2", "n3")
PREFIX = "orders"
QUEUE = f"{PREFIX}-0"
POLICY = ("^(orders|kept)", '{"ha-mode":"all","ha-sync-mode":"automatic"}')
LISTING = ("name", "pid", "slave_pids", "synchronised_slave_pids", "state")
# Messages per second of each publisher: so few that a gap is the fault's, not the load's.
RATE = 100
# The quiet stretches between which the time of the clients is divided.
STRETCHES = 4
# How long an isolated node stays away after another one has taken over (s).
AWAY_S = 1.5
POLL_S = 0.1
SETTLE_TIMEOUT_S = 60.0
WORKLOAD_TIMEOUT_S = 120.0
# Any fault must be over after this time (ms); the table says how long each took.
GAP_LIMIT_MS = 15_000


class ClusterStory:
    """Runs the steps and collects the checks; clients work for `work_s` seconds between faults."""

    def __init__(
        self,
        console: Console,
        processes: Processes,
        network: Network,
        checks: Checks,
        work_s: float,
    ) -> None:
        self._console = console
        self._processes = processes
        self._network = network
        self._checks = checks
        self._quiet_s = work_s / STRETCHES
        self._steps = Steps(console)
        self._etcd = Etcd(processes, network)
        self._nodes = {name: Node(processes, network, name) for name in NAMES}
        network.add(CLIENTS)
        self._watch = Watch(processes, network)
        self._history = processes.directory / "history.jsonl"
        self._faults_path = processes.directory / "faults.jsonl"
        self._recorder = Recorder(self._faults_path)
        self.faults: list[Fault] = []
        # Messages of KEPT on each disk.
        self._kept: list[int] = []
        # Set at the end.
        self.verdict: Verdict | None = None
        self.confirms: Confirms | None = None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return self._steps.elapsed_s

    @property
    def publishers(self) -> dict[str, str]:
        """The names of the publishers' first nodes, by publisher."""
        return {f"p{number}": name for number, name in enumerate(NAMES)}

    def tell(self) -> None:
        """Run all steps. Raises DemoError when no further step is possible."""
        self._start()
        self._use_at_once()
        workload = self._begin_work()
        self._show("Before the faults")
        self._kill()
        self._part()
        self._restart_all()
        self._show("After the faults")
        drained = self._end_work(workload)
        self._compare()
        self._judge(drained)

    def _start(self) -> None:
        with self._steps.step("Starting etcd and three nodes", len(NAMES) + 1) as bar:
            self._etcd.start()
            bar.advance()
            for node in self._nodes.values():
                node.launch()
            for node in self._nodes.values():
                node.await_ready()
                bar.advance()
            self._nodes["n1"].ctl("await_online_nodes", str(len(NAMES)))
        self._nodes["n1"].ctl("set_policy", "--apply-to", "queues", "mirrored", *POLICY)
        command = f"set_policy --apply-to queues mirrored '{POLICY[0]}' '{POLICY[1]}'"
        line = f"warrenctl {command}"
        self._console.print(line, style="bold", markup=False, soft_wrap=True)

    def _use_at_once(self) -> None:
        with self._steps.step("Declaring here, using there", len(NAMES)) as bar:
            uris = [node.uri for node in self._nodes.values()]
            tour = self._run_client("demo.cluster.tour", *uris)
            status = tour.wait(SETTLE_TIMEOUT_S)
            bar.advance(len(NAMES))
        self._checks.expect(
            status == 0,
            "What was declared through one node took and gave messages through another at once.",
            f"A queue was not usable through another node (status {status})",
        )

    def _begin_work(self) -> subprocess.Popen[str]:
        with self._steps.step("Publishing and consuming on all nodes", None) as bar:
            uris = [part for node in self._nodes.values() for part in ("--uri", node.uri)]
            workload = self._run_client(
                "simulator.workload", *uris, "--history", str(self._history),
                "--seconds", "600", "--queues", "1", "--idle-queues", "0", "--prefix", PREFIX,
                "--publishers", str(len(NAMES)), "--consumers", str(len(NAMES)),
                "--rate", str(RATE),
            )  # fmt: skip
            self._settle(bar)
            self._pass_time(self._quiet_s, bar)
        return workload

    # -- faults ------------------------------------------------------------------------------------

    def _kill(self) -> None:
        master = self._master()
        with self._steps.step(f"kill -9 of the master, {master.name}", None) as bar:
            with self._fault("kill", f"kill -9 {master.name}", "back", master):
                status = master.kill()
                heir = self._await_heir(master, bar)
                seconds = master.start()
            self._settle(bar)
            self._pass_time(self._quiet_s, bar)
        self._checks.expect(
            status == -9,
            f"kill -9 hit {master.name}, the master: {heir.name} took over. Started again, "
            f"{master.name} accepted clients in {seconds:.1f} s.",
            f"{master.name} ended with {status}, not by SIGKILL",
        )

    def _part(self) -> None:
        master = self._master()
        with self._steps.step(f"Cutting the master, {master.name}, off", None) as bar:
            with self._fault("part", f"cut off {master.name}", "healed", master):
                self._network.isolate(master.name)
                heir = self._await_heir(master, bar)
                self._pass_time(AWAY_S, bar)
                self._network.heal()
            self._settle(bar)
            self._pass_time(self._quiet_s, bar)
        self._checks.expect(
            self._master() is heir,
            f"{master.name}, the master, was parted from all others by {self._network.means}: "
            f"{heir.name} took over, and {master.name} came back as a mirror.",
            f"After the cut {self._master().name} is the master, not {heir.name}",
        )

    def _restart_all(self) -> None:
        statuses = []
        with self._steps.step("Rolling restart", None) as bar:
            for node in self._nodes.values():
                with self._fault("restart", f"stop {node.name}", "back", node):
                    statuses.append(node.stop())
                    node.start()
                self._settle(bar)
            self._pass_time(self._quiet_s, bar)
        self._checks.expect(
            statuses == [0] * len(NAMES),
            "Each node was stopped in good order and started again while clients worked.",
            f"The nodes ended with {statuses}",
        )

    @contextmanager
    def _fault(self, kind: str, what: str, over: str, node: Node) -> Iterator[None]:
        """Record a fault that lasts as long as the block."""
        was_master = self._master() is node
        start_us = now_us()
        self._recorder.record(FaultStart(start_us, what, kind, node.name, GAP_LIMIT_MS))
        yield
        end_us = now_us()
        self._recorder.record(FaultEnd(end_us, what))
        self.faults.append(Fault(what, over, was_master, start_us, end_us))

    # -- what the nodes say ------------------------------------------------------------------------

    def _master(self) -> Node:
        """The master of QUEUE. Raises DemoError."""
        found = self._seen_master(self._nodes["n1"])
        if found is None:
            raise DemoError(f"n1 does not know the master of {QUEUE}")
        return found

    def _await_heir(self, lost: Node, bar: Bar) -> Node:
        """Another node that has taken QUEUE over, as the others see it."""
        other = next(node for node in self._nodes.values() if node is not lost)
        found: list[Node] = []

        def is_found() -> bool:
            heir = self._seen_master(other)
            if heir is not None and heir is not lost:
                found.append(heir)
            return len(found) > 0

        self._await(is_found, f"a mirror of {QUEUE} takes over", bar)
        return found[0]

    def _seen_master(self, node: Node) -> Node | None:
        """The master of QUEUE as `node` sees it; None while it cannot reach the master."""
        status = self._watch.status(node, QUEUE)
        if status is None:
            return None
        name, _, _ = str(status["node"]).partition("@")
        self._recorder.record(MasterReport(now_us(), QUEUE, status["epoch"], name))
        return self._nodes[name]

    def _settle(self, bar: Bar) -> None:
        """Return when both queues have a copy in sync on each node."""

        def is_settled(queue: str) -> bool:
            status = self._watch.status(self._nodes["n1"], queue)
            if status is None or status["state"] != "running":
                return False
            return len(status["synchronised_slave_nodes"]) == len(NAMES) - 1

        for queue in (QUEUE, KEPT):
            self._await(partial(is_settled, queue), f"all copies of {queue} are in sync", bar)

    def _show(self, title: str) -> None:
        """Show the queues and their copies as warrenctl does."""
        node = self._nodes["n1"]
        shown = {
            f"list_queues {' '.join(LISTING)}": node.ctl("list_queues", *LISTING),
            f"mirror_status {QUEUE}": node.ctl("mirror_status", QUEUE),
        }
        for command, printed in shown.items():
            line = f"\n{title}: warrenctl {command}"
            self._console.print(line, style="bold", markup=False, soft_wrap=True)
            self._console.print(_compact(printed), markup=False, soft_wrap=True)
        self._console.print()

    # -- the end -----------------------------------------------------------------------------------

    def _end_work(self, workload: subprocess.Popen[str]) -> bool:
        """End the clients and read the disks; whether the clients have drained the queue."""
        with self._steps.step("Draining, and comparing the disks", len(NAMES) + 1) as bar:
            os.kill(workload.pid, signal.SIGTERM)
            try:
                is_drained = workload.wait(WORKLOAD_TIMEOUT_S) == 0
            except subprocess.TimeoutExpired:
                raise DemoError("the clients did not come to an end") from None
            bar.advance()
            for node in self._nodes.values():
                node.kill()
                report = copy_report(node.directory, KEPT, node.name, now_us())
                self._recorder.record(report)
                self._kept.append(len(report.messages))
                bar.advance()
        return is_drained

    def _compare(self) -> None:
        """Let the job of the pipeline compare the copies of KEPT, and show what it says."""
        words = compare_command(KEPT, NAMES)
        with self._steps.step("Comparing the copies, message by message", None):
            process = self._processes.run(
                "compare-mirrors", [sys.executable, "-m", "warrenmq", *words]
            )
            printed, _ = process.communicate()
            self._processes.kill(process)
        self._console.print(f"warren {' '.join(words)}", style="bold", markup=False)
        self._console.print(printed, markup=False, soft_wrap=True)
        self._checks.expect(
            process.returncode == 0,
            f"The pipeline found the copies of '{KEPT}' on all disks equal, message by message.",
            f"The comparison of the copies of '{KEPT}' ended with {process.returncode}",
        )

    def _judge(self, is_drained: bool) -> None:
        self._recorder.close()
        history = read_history([self._history, self._faults_path])
        self.confirms = confirms_of(history)
        verdict = self.verdict = judge(history)
        counts = verdict.counts
        self._checks.expect(
            self._kept == [KEPT_COUNT] * len(NAMES) and Rule.COPIES not in verdict.broken(),
            f"The queue '{KEPT}' has the same {KEPT_COUNT} messages in the same order on the disks "
            "of all nodes.",
            f"The disks have {self._kept} of {KEPT_COUNT} messages of '{KEPT}'",
        )
        self._checks.expect(
            verdict.is_clean and is_drained,
            f"Of {counts['confirmed']:,} confirmed messages none is lost, no order is broken, "
            "nothing came twice without saying so.",
            f"The checker found {len(verdict.violations)} violations",
        )

    # -- waiting -----------------------------------------------------------------------------------

    def _run_client(self, module: str, *arguments: str) -> subprocess.Popen[str]:
        command = [*self._network.prefix(CLIENTS), sys.executable, "-m", module, *arguments]
        return self._processes.run(module.rpartition(".")[2], command)

    def _await(self, is_true: Callable[[], bool], what: str, bar: Bar) -> None:
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while not is_true():
            if time.monotonic() > deadline:
                raise DemoError(f"waited for {SETTLE_TIMEOUT_S:.0f} s until {what}")
            self._pass_time(POLL_S, bar)

    def _pass_time(self, seconds: float, bar: Bar) -> None:
        """Let time pass, and the bar show how many confirms there are."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(POLL_S, left))
            bar.advance()


def _compact(printed: str) -> str:
    """What a command printed, without empty lines, and with columns for tabulators."""
    lines = [line.split("\t") for line in printed.splitlines() if line]
    columns = max(map(len, lines))
    widths = [max(len(line[each]) for line in lines if len(line) > each) for each in range(columns)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False)).rstrip()
        for line in lines
    )
