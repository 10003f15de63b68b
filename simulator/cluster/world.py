"""A simulated cluster: nodes, network, etcd and time. What happens is up to whoever drives it."""

from __future__ import annotations

from random import Random
from typing import Final

from simulator.cluster.clients import ClusterClient
from simulator.cluster.etcd_model import EtcdModel
from simulator.cluster.member import Member
from simulator.cluster.mirror_watch import MirrorWatch
from simulator.cluster.network import Network
from simulator.cluster.recording.recording import Recording, life_name
from simulator.cluster.recording.reigns import Reigns
from simulator.leaving.histories import QueueRules
from simulator.models.messages import Violation
from simulator.simulated.file_system import KILL, PLENTY, Crash, SimulatedFileSystem
from simulator.simulated.metadata import SimulatedMetadata
from simulator.simulated.node import LANES, VHOST, Limits, SimulatedDisk
from warrenmq.broker.definitions.metadata import PutParameter, PutVhost
from warrenmq.cluster.groups.queue_policy import policy_of

START_MS: Final = 1_700_000_000_000
# Interval of the nodes' ticks (ms); a link must be ticked every 500 ms.
BEAT_MS: Final = 100
_ALWAYS: Final = "always"
_MIN_SYNC: Final = "ha-min-sync"
# Rounds in which nodes and network may go on without the time passing.
_ROUNDS_MAX: Final = 2000
# A disk without a fault ends a job within this time (ms).
_DISK_MS_MAX: Final = 1000


class World:
    """The cluster of `nodes` nodes; `rules`: those of its queues, by number."""

    def __init__(
        self,
        nodes: int,
        locator: str,
        limits: Limits,
        rng: Random,
        rules: tuple[QueueRules, ...] = (),
    ) -> None:
        self.names = [f"n{index + 1}" for index in range(nodes)]
        self.rng = rng
        self.now_ms = START_MS
        self.model = EtcdModel()
        self.model.commit([], [PutVhost(VHOST, 0)])
        self.network = Network(self.names, rng)
        self.recording = Recording(Reigns(self.model), rules)
        self.recording.now_ms = self.now_ms
        self.mirrors = MirrorWatch(self.recording, self.model)
        # Running nodes by name.
        self.members: dict[str, Member] = {}
        self.clients: list[ClusterClient] = []
        self.crash_count = 0
        # How a node crashes whose disk calls are counted.
        self.crash_rule = KILL
        # The chance of a lane of a disk that has work to run a job in a step.
        self.disk_pace = 1.0
        # Nodes with slow disks: the chance of each, as above.
        self.slow_disks: dict[str, float] = {}
        # When each lane of a node's disk last ended a job or had none.
        self._disk_ms: dict[tuple[str, str], int] = {}
        # Nodes that do not reach etcd, and those whose answers are often lost.
        self.cut_from_etcd: set[str] = set()
        self.loses_answers: set[str] = set()
        self._locator = locator
        self._limits = limits
        self._disks: dict[str, SimulatedDisk] = {}
        self._incarnations: dict[str, int] = {}
        # Nodes whose machines are off: they do not even refuse connections.
        self._silent: set[str] = set()
        # Faults of crashed nodes that are not over.
        self._faults: dict[str, str] = {}
        # When the lease of a node that is gone ends.
        self._lease_ends_ms: dict[str, int] = {}
        self._beat_at_ms = self.now_ms

    def put_policy(self, name: str, value: str) -> None:
        """Set a policy, whose value is JSON, as if through any node."""
        self.mirrors.has_unsafe_policy |= _ALWAYS in value
        self.recording.needed_copies.changes += 1
        if _MIN_SYNC in value:
            self.recording.needed_copies.of = self._needed_copies
        self.model.commit([], [PutParameter(VHOST, "policy", name, value)])

    def _needed_copies(self, life: str) -> int:
        """How many copies in sync all running nodes agree that a queue needs to take publishes."""
        for put in self.model.load().queues:
            if life_name(put.name, put.birth) == life:
                policies = [policy_of(each.vhost, put) for each in self.members.values()]
                return min((policy.min_sync for policy in policies), default=1)
        return 1

    @property
    def needs_copies(self) -> bool:
        """Whether some queue may refuse publishes as it has too few copies in sync."""
        return self.recording.needed_copies.of is not None

    # -- nodes -------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start a node that is down, unless it would have to wait for etcd."""
        if name in self.members or not self._reaches_etcd(name):
            return
        disk = self._disks.get(name)
        if disk is None:
            files = SimulatedFileSystem()
            disk = self._disks[name] = SimulatedDisk(files, SimulatedMetadata(files))
        disk.files.rng = self.rng
        self._incarnations[name] = self._incarnations.get(name, 0) + 1
        member = Member(
            name,
            self._incarnations[name],
            disk,
            self._limits,
            self.now_ms,
            self.model,
            self.network,
            self._locator,
            self.rng,
            self.mirrors,
        )
        self.recording.tell(f"        {name} starts")
        self._silent.discard(name)
        self.mirrors.starts(name)
        member.start()
        self._lease_ends_ms.pop(name, None)
        self.members[name] = member
        if name in self._faults:
            self.recording.fault_over(self._faults.pop(name))

    def crash(self, name: str, rule: str, is_silent: bool) -> None:
        """End a node; `is_silent`: the others learn it only by its silence."""
        member = self.members.pop(name)
        self.recording.tell(f"        {name} crashes ({rule})")
        self.crash_count += 1
        queues = tuple(
            life_name(queue.name, int(queue.definition.birth))
            for queue in member.vhost.queues.values()
            if not self.model.group(VHOST, queue.name)
        )
        self._faults[name] = self.recording.crashed(name, queues)
        self.mirrors.crashed(name)
        for client in self.clients:
            if client.member is member and not client.is_lost:
                client.on_lost()
        self.clients = [client for client in self.clients if client.member is not member]
        while member.etcd.request_count and self.rng.random() < 0.5:
            # Etcd carries out what has reached it; nobody hears the answer.
            member.etcd.carry_out()
        member.etcd.drop_requests()
        if is_silent:
            self._silent.add(name)
            self.network.vanish(member)
        else:
            self.network.crash(member)
        self._lease_ends_ms[name] = member.lease_ends_ms
        member.disk.crash(self.rng, rule)

    def fill_disk(self, name: str, spare_bytes: int) -> None:
        """Let the disk of a node have room for `spare_bytes` more; below 0: for everything."""
        disk = self._disks.get(name)
        if disk is not None:
            is_full = spare_bytes >= 0
            disk.files.capacity = disk.files.used_bytes() + spare_bytes + 1 if is_full else 0
        self.note_disks()

    def alarm_disk(self, name: str, is_on: bool) -> None:
        """Let a node find that the free space of its disk is below its limit, or is not."""
        member = self.members.get(name)
        if member is not None:
            member.is_alarmed = is_on
            member.broker.disk_free(0 if is_on else PLENTY, self.now_ms)
            member.has_news = True

    def note_disks(self) -> None:
        """Record whether any disk is full, slow or hangs."""
        is_full = any(disk.files.capacity for disk in self._disks.values())
        is_hanging = any(member.is_stalled for member in self.members.values())
        self.recording.disk_faults(is_full or is_hanging or bool(self.slow_disks))

    def resume_etcd(self) -> None:
        """Let etcd go on after a pause; first it ends all leases whose time is over."""
        if self.model.is_paused:
            self.model.resume()
            for member in self.members.values():
                if self.now_ms >= member.lease_ends_ms:
                    self.recording.tell(f"        the lease of {member.name} ends")
                    member.lose_lease()
            self._end_leases()

    def _reaches_etcd(self, name: str) -> bool:
        return name not in self.cut_from_etcd and not self.model.is_paused

    # -- time --------------------------------------------------------------------------------------

    def advance(self, ms: int, step_ms: int) -> None:
        """Let `ms` pass, in steps of `step_ms`."""
        end_ms = self.now_ms + ms
        while self.now_ms < end_ms:
            self.now_ms = min(self.now_ms + step_ms, end_ms)
            self.recording.now_ms = self.now_ms
            for member in self.members.values():
                member.now_ms = self.now_ms
            is_beat = self.now_ms >= self._beat_at_ms
            if is_beat:
                self._beat_at_ms = self.now_ms + BEAT_MS
                if not self.model.is_paused:
                    self._end_leases()
            for name in list(self.members):
                self._step(name, is_beat)
            self.pump()

    def _end_leases(self) -> None:
        for name, ends_ms in list(self._lease_ends_ms.items()):
            if ends_ms <= self.now_ms:
                self.recording.tell(f"        the lease of {name} ends")
                self.model.drop_node(name.encode())
                del self._lease_ends_ms[name]

    def _step(self, name: str, is_beat: bool) -> None:
        """Let one node hear of etcd and of its disk, and run its timers."""
        member = self.members[name]
        etcd, rng = member.etcd, self.rng
        etcd.is_reachable = name not in self.cut_from_etcd
        is_cut = member.is_frozen or not etcd.is_reachable
        self.mirrors.note_well(name, not is_cut and self._is_well(member))
        if is_cut and not self.model.is_paused and self.now_ms >= member.lease_ends_ms:
            member.lose_lease()
        if member.is_frozen:
            return
        if is_beat:
            member.renew()
        while etcd.request_count and rng.random() < 0.8:
            etcd.loses_answers = name in self.loses_answers and rng.random() < 0.5
            etcd.answer(rng.randrange(etcd.request_count))
            member.has_news = True
        while rng.random() < 0.9 and etcd.tell():
            member.has_news = True
        member.dial(self.members)
        member.refuse(lambda other: self._refuses(name, other))
        try:
            if not member.is_stalled:
                self._run_disk(member)
            if is_beat:
                member.beat()
                member.has_news = False
        except Crash:
            self.crash(name, self.crash_rule, False)

    def _is_well(self, member: Member) -> bool:
        """Whether a node that reaches etcd can do what is expected of it."""
        name = member.name
        is_hampered = member.is_stalled or name in self.slow_disks or name in self.loses_answers
        is_full = member.disk.files.capacity > 0
        return not is_hampered and not is_full and member.etcd.has_answers and member.is_announced()

    def _refuses(self, name: str, other: str) -> bool:
        """Whether `name` finds that nothing listens on the host of `other`, which is up."""
        path = self.network.path(name, other)
        return not (other in self.members or other in self._silent or any(path.is_cut))

    def _run_disk(self, member: Member) -> None:
        name = member.name
        pace = min(self.disk_pace, self.slow_disks.get(name, 1.0))
        for lane in LANES:
            if not member.lanes[lane].has_work():
                self._disk_ms[name, lane] = self.now_ms
                continue
            # Acks of more than a second are on disk, unless a fault has made the disk slow.
            waited_ms = self.now_ms - self._disk_ms.setdefault((name, lane), self.now_ms)
            must_run = waited_ms >= _DISK_MS_MAX and name not in self.slow_disks
            if must_run or self.rng.random() < pace:
                member.run(lane)
                if must_run or self.rng.random() < pace:
                    member.finish(lane)
                    self._disk_ms[name, lane] = self.now_ms

    def pump(self) -> None:
        """Let everything happen that needs no time."""
        for _ in range(_ROUNDS_MAX):
            is_busy = self.network.deliver(self.now_ms)
            for client in list(self.clients):
                if client.is_lost and not client.member.is_frozen:
                    self.clients.remove(client)
                    client.drop()
            for member in self.members.values():
                if member.has_news and not member.is_frozen:
                    member.has_news = False
                    member.turn()
                    is_busy = True
            if not is_busy:
                return
        raise Violation("stuck", "nodes talk to each other without end")
