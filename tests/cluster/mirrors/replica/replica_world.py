"""Nodes with one mirrored queue, the links between them, and a model of the store of its group.

The nodes are real down to simulated disks. A test decides when frames arrive and are lost, when
turns end, when batches are on disk, when the store decides, and when a node hears of it.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.brokers.memory_node import MemoryDisk, MemoryNode, VirtualClock
from warrenmq.cluster.groups.group import Copy, Group, fault_of
from warrenmq.cluster.groups.group_proposer import DECIDED, REFUSED, UNANSWERED
from warrenmq.cluster.groups.mirror_policy import ALL, MirrorPolicy
from warrenmq.cluster.groups.transitions import Transition, create
from warrenmq.cluster.mirrors.records import decode_record
from warrenmq.cluster.mirrors.replica.host import Fence, ReplicaHost
from warrenmq.cluster.mirrors.replica.in_sync import InSync
from warrenmq.cluster.mirrors.replica.mirror_copy import MirrorCopy
from warrenmq.cluster.mirrors.replica.replica import MASTER, Replica
from warrenmq.cluster.mirrors.silences import HAND_OUT_MS
from warrenmq.queues.backing.variable_queue import EMPTY
from warrenmq.queues.entry import Entry
from warrenmq.queues.hand_out_gate import FOR_EVER, HandOutGate
from warrenmq.queues.leave_reason import ACKED
from warrenmq.queues.mirror.ring_feed import epoch_start
from warrenmq.queues.queue import Queue
from warrenmq.store.journal.confirm_run import ConfirmRun, ConfirmWaiter
from warrenmq.store.model.message import Message, QueueLedger

BIRTH = 0
NAME = b"q"
POLICY = MirrorPolicy(mode=ALL, is_automatic=True)
# When a proposal that is not decided counts as unanswered.
DECIDE_MS = 5000


@dataclass
class Proposal:
    """A change that a node has proposed."""

    node: "WorldNode"
    transition: Transition
    done: Callable[[int], None]
    fence: Fence | None
    deadline_ms: int


@dataclass
class Seen:
    """What clients know: publishes by number, and deliveries in order."""

    published: int = 0
    confirmed: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    # Numbers of acked messages, with the epochs of the masters that have taken the acks.
    acked: dict[int, int] = field(default_factory=dict)
    # Numbers of delivered messages, with the epochs of the masters that delivered them first.
    delivered: dict[int, int] = field(default_factory=dict)
    # (number, redelivered) of each delivery.
    deliveries: list[tuple[int, bool]] = field(default_factory=list)


class Publisher(ConfirmWaiter):
    """The publish of the message `number`."""

    def __init__(self, seen: Seen, number: int) -> None:
        self.seen = seen
        self.number = number

    def on_decided(self, run: ConfirmRun) -> None:
        assert self.number not in self.seen.confirmed | self.seen.refused
        (self.seen.confirmed if run.ok else self.seen.refused).add(self.number)


class WorldNode(ReplicaHost):
    """One node. A restart keeps its disk and begins another incarnation."""

    def __init__(self, world: "World", name: bytes) -> None:
        self.world = world
        self.name = name
        self.node = MemoryNode(MemoryDisk(), world.clock)
        self.incarnation = 1
        self.is_running = True
        # It does not reach the store of the cluster, and when it last noticed that.
        self.is_cut_off = False
        self._cut_off_ms = 0
        # Versions of the group that it has not heard of.
        self.unheard: deque[Group] = deque()
        self.out: list[Entry] = []
        # Lines that the replica has logged.
        self.lines: list[str] = []
        self.gates: dict[tuple[frozenset[bytes], bool], HandOutGate] = {}
        # Sealed batches are on disk only when the test says so.
        self.copy: MirrorCopy | None = None
        self.replica = Replica(BIRTH, self.me, self)
        self._prepare()

    @property
    def me(self) -> Copy:
        return Copy(self.name, self.name.decode() + "-disk", str(self.incarnation))

    @property
    def queue(self) -> Queue:
        return self.node.vhost.queues[NAME]

    @property
    def is_master(self) -> bool:
        """Whether the node serves clients as the master, deposed or not."""
        return self.is_running and self.replica.role == MASTER

    def _prepare(self) -> None:
        self.node.vhost.host.unacked_finders.append(self._find_unacked)
        self.replica.set_policy(self.world.policy)

    def _find_unacked(self, ledger: QueueLedger, first: int, end: int) -> list[Entry]:
        return [one for one in self.out if one.ledger is ledger and first <= one.seq < end]

    def is_level(self) -> bool:
        """Whether the node has all that the master has sent, on disk."""
        mirror, master = self.replica.mirror, self.world.master.replica.master
        if mirror is None or master is None:
            return self.is_master and master is not None
        return mirror.marks.durable_upto == master.feed.taken_count

    # -- ReplicaHost -------------------------------------------------------------------------------

    def log(self, text: str, event: str) -> None:
        self.lines.append(text)

    def now_ms(self) -> int:
        return self.world.clock.now_ms()

    def wake(self) -> None:
        pass

    def send(self, node: bytes, payload: bytes, is_urgent: bool = False) -> None:
        self.world.send(self.name, node, payload)

    def silence_ms(self, node: bytes) -> int:
        return self.world.silence_ms(self.name, node)

    def is_dead(self, node: bytes) -> bool:
        return not self.world.nodes[node].is_running

    def propose(
        self,
        transition: Transition,
        done: Callable[[int], None],
        fence: Fence | None = None,
        is_later: bool = False,
    ) -> None:
        deadline_ms = self.now_ms() + DECIDE_MS
        self.world.proposals.append(Proposal(self, transition, done, fence, deadline_ms))

    def is_reachable(self, node: bytes) -> bool:
        return (self.name, node) in self.world.links

    def has_lease(self) -> bool:
        return not self.is_cut_off

    def is_draining(self, node: bytes) -> bool:
        return node in self.world.draining

    def contact_ms(self) -> int:
        if self.is_cut_off:
            self._cut_off_ms = self.now_ms()
        return self.now_ms() - self._cut_off_ms

    def gate(self, nodes: frozenset[bytes], needs_lease: bool) -> HandOutGate:
        gate = self.gates.setdefault((nodes, needs_lease), HandOutGate(0))
        self.move_gates()
        return gate

    def move_gates(self) -> None:
        """Let each gate be open as long as no node of it can have deposed this one."""
        for (nodes, needs_lease), gate in self.gates.items():
            limits = [self._heard_until_ms(node) for node in nodes]
            if needs_lease and not self.has_lease():
                limits.append(0)
            gate.until_ms = min(limits, default=FOR_EVER)

    def _heard_until_ms(self, node: bytes) -> int:
        world = self.world
        is_dead = not world.nodes[node].is_running and self.has_lease()
        if is_dead or ((self.name, node) in world.links and (node, self.name) not in world.fresh):
            return FOR_EVER
        return world.down_ms[self.name, node] + HAND_OUT_MS

    def open_copy(self) -> MirrorCopy:
        if NAME not in self.node.vhost.queues:
            self.node.declare(NAME)
        self.queue.begin_hidden()
        return MirrorCopy(self.queue, self.node.vhost.journal)

    def renew_copy(self, copy: MirrorCopy) -> MirrorCopy:
        self.world.renewed.append(self.name)
        self.node.delete(NAME)
        return self.open_copy()

    def drop_copy(self) -> None:
        if NAME in self.node.vhost.queues:
            self.node.delete(NAME)

    def take_over(self, copy: MirrorCopy, source: InSync) -> None:
        copy.queue.is_hidden = False
        copy.queue.confirm_source = source
        self.world.masters.append((self.name, source.epoch))

    def step_down(self, copy: MirrorCopy) -> None:
        out = self.out
        self.out = []
        copy.queue.requeue(out, self.now_ms())
        copy.queue.begin_hidden()
        copy.queue.confirm_source = None

    # -- what the test does ------------------------------------------------------------------------

    def follow(self) -> bool:
        """Hear of the next version of the group."""
        if self.is_running and not self.is_cut_off and self.unheard:
            self.replica.on_group(self.unheard.popleft())
            return True
        return False

    def end_turn(self) -> None:
        if self.is_running:
            self.move_gates()
            self.replica.end_turn()
            self.node.work()
            self.replica.end_turn()

    def commit(self) -> None:
        """Let everything that has gathered reach the disk."""
        if self.is_running:
            self.node.commit()

    def kill(self) -> None:
        """End the process."""
        self.is_running = False
        self.out = []
        self.world.cut_all(self.name)

    def restart(self) -> None:
        """Start the process again; what was not synced is lost."""
        self.node = self.node.crash()
        self.is_running = True
        self.incarnation += 1
        self.replica = Replica(BIRTH, self.me, self)
        self._prepare()
        self.unheard = deque([self.world.group])
        self.world.link_all(self.name)
        self.world.restarts += 1

    # -- clients -----------------------------------------------------------------------------------

    def publish(self, count: int = 1) -> list[int]:
        """Publish messages with confirms, if the node serves the queue; their numbers."""
        numbers = []
        for _ in range(count if self.is_master else 0):
            seen = self.world.seen
            seen.published += 1
            numbers.append(seen.published)
            message = Message(b"\x00\x01q", b"\x00\x00", b"%d" % seen.published, True, 0)
            self.queue.publish(message, -1, self.now_ms())
            party = self.queue.confirm_party()
            assert party is not None
            run = ConfirmRun(Publisher(seen, seen.published), 1, 1)
            party.runs.append(run)
        return numbers

    def take(self, count: int = 1) -> list[int]:
        """Take messages with basic.get; their numbers."""
        numbers = []
        for _ in range(count if self.is_master else 0):
            entry = self._get()
            if entry is None:
                break
            self.out.append(entry)
            numbers.append(int(entry.message.body))
            self.world.seen.deliveries.append((numbers[-1], entry.redelivered))
            self.world.seen.delivered.setdefault(numbers[-1], int(self.queue.epoch))
        return numbers

    def _get(self) -> Entry | None:
        self.move_gates()
        for _ in range(100):
            entry = self.queue.get(False, self.now_ms())
            if entry is not None or self.queue.head_state(self.now_ms()) == EMPTY:
                return entry
            if self.queue.demand.is_shut:
                # The master is about to hand over, or may have been deposed.
                return None
            self.queue.when_head(lambda now_ms: None)
            self.node.work()
        raise AssertionError("the head never comes")

    def ack(self, count: int = 1) -> None:
        """Ack the oldest unacked messages."""
        for entry in self.out[:count]:
            self.world.seen.acked[int(entry.message.body)] = int(self.queue.epoch)
            self.out.remove(entry)
            self.queue.leave(entry, ACKED, self.now_ms())

    def requeue(self, count: int = 1) -> None:
        """Return the youngest unacked messages."""
        entries = self.out[len(self.out) - count :] if count else []
        self.out = [entry for entry in self.out if entry not in entries]
        if entries:
            self.queue.requeue(entries, self.now_ms())

    def has(self) -> list[tuple[int, int, bool]]:
        """(seq, number, redelivered) of all messages that the node has in memory, in order."""
        ready = self.queue.backing.ready
        entries = [ready.at(place) for place in range(ready.entry_count)]
        rows = [(int(one.seq), int(one.message.body), one.redelivered) for one in entries]
        rows += [(int(one.seq), int(one.message.body), True) for one in self.out]
        return sorted(rows)


class World:
    """A cluster: nodes `names`, all with copies of one queue; the first one is its master."""

    def __init__(self, names: bytes = b"abc", policy: MirrorPolicy = POLICY) -> None:
        self.clock = VirtualClock()
        self.policy = policy
        self.seen = Seen()
        self.nodes: dict[bytes, WorldNode] = {}
        # Frames on their way, by (sender, receiver); a pair that is missing has no link.
        self.links: dict[tuple[bytes, bytes], deque[bytes]] = {}
        self.down_ms: dict[tuple[bytes, bytes], int] = {}
        self.proposals: deque[Proposal] = deque()
        # Each node and epoch that served the queue.
        self.masters: list[tuple[bytes, int]] = []
        self.renewed: list[bytes] = []
        # Nodes that drain.
        self.draining: set[bytes] = set()
        self.restarts = 0
        # Directions of links in which no ping has arrived since the link was made.
        self.fresh: set[tuple[bytes, bytes]] = set()
        self.history: list[Group] = []
        for name in names:
            self.nodes[bytes([name])] = WorldNode(self, bytes([name]))
        for one in self.nodes:
            for other in self.nodes:
                if one != other:
                    self.links[one, other] = deque()
        copies = [node.me for node in self.nodes.values()]
        self.group = create(copies[0], copies[1:], int(epoch_start(1, 0)))
        self._tell()

    def __getitem__(self, name: str) -> WorldNode:
        return self.nodes[name.encode()]

    @property
    def master(self) -> WorldNode:
        """The node of the recorded master."""
        return self.nodes[self.group.master_node]

    # -- links -------------------------------------------------------------------------------------

    def send(self, sender: bytes, receiver: bytes, payload: bytes) -> None:
        assert sender != receiver
        link = self.links.get((sender, receiver))
        if link is not None:
            link.append(payload)

    def silence_ms(self, node: bytes, other: bytes) -> int:
        if node == other or (other, node) in self.links:
            return 0
        return self.clock.now_ms() - self.down_ms[other, node]

    def cut(self, one: bytes, other: bytes) -> None:
        """Lose the link between two nodes, and what is under way on it."""
        for pair in ((one, other), (other, one)):
            if self.links.pop(pair, None) is not None:
                self.down_ms[pair] = self.clock.now_ms()

    def link(self, one: bytes, other: bytes) -> None:
        """Make a link between two nodes, if both run."""
        nodes = self.nodes[one], self.nodes[other]
        if (one, other) in self.links or not all(node.is_running for node in nodes):
            return
        self.links[one, other] = deque()
        self.links[other, one] = deque()
        self.fresh |= {(one, other), (other, one)}
        nodes[0].replica.on_link_up(other)
        nodes[1].replica.on_link_up(one)

    def cut_all(self, name: bytes) -> None:
        for other in self.nodes:
            if other != name:
                self.cut(name, other)

    def link_all(self, name: bytes) -> None:
        for other in self.nodes:
            if other != name:
                self.link(name, other)

    def deliver(self, sender: bytes, receiver: bytes) -> bool:
        """Deliver the next frame between two nodes; behind the last one comes a ping."""
        link = self.links.get((sender, receiver))
        if not link:
            self.fresh.discard((sender, receiver))
            return False
        payload = link.popleft()
        decode_record(payload)
        self.nodes[receiver].replica.on_record(sender, payload)
        return True

    # -- the store ---------------------------------------------------------------------------------

    def decide(self, is_answer_lost: bool = False) -> bool:
        """Decide the oldest proposal, as `GroupProposer` does it."""
        if not self.proposals:
            return False
        proposal = self.proposals.popleft()
        node = proposal.node
        if not node.is_running or node.replica.group is None:
            return True
        if node.is_cut_off:
            if self.clock.now_ms() > proposal.deadline_ms:
                proposal.done(UNANSWERED)
            else:
                self.proposals.append(proposal)
            return True
        read = node.replica.group
        changed = proposal.transition(read)
        if changed is None:
            proposal.done(REFUSED)
            return True
        if read.version != self.group.version:
            # It decides anew when it has followed.
            self.proposals.append(proposal)
            return True
        fence = proposal.fence
        if fence is not None and any(self.nodes[each].is_running for each in fence(read)):
            proposal.done(REFUSED)
            return True
        assert fault_of(changed) == ""
        self.group = changed
        self._tell()
        if is_answer_lost:
            proposal.done(UNANSWERED)
        else:
            while node.follow():
                pass
            proposal.done(DECIDED)
        return True

    def _tell(self) -> None:
        self.history.append(self.group)
        for node in self.nodes.values():
            if node.is_running:
                node.unheard.append(self.group)

    # -- time --------------------------------------------------------------------------------------

    def round(self, ms: int = 10) -> None:
        """Let everything happen that is under way, then time pass."""
        for node in self.nodes.values():
            while node.follow():
                pass
            node.end_turn()
        for _ in range(len(self.proposals)):
            self.decide()
        for pair in list(self.links):
            while self.deliver(*pair):
                pass
        for node in self.nodes.values():
            node.end_turn()
            node.commit()
            if node.is_running:
                node.replica.check()
        self.clock.advance(ms)

    def run(self, rounds: int = 10, ms: int = 10) -> None:
        for _ in range(rounds):
            self.round(ms)

    def heal(self) -> None:
        """Start all nodes, make all links, and let the cluster come to rest with all in sync."""
        for node in self.nodes.values():
            node.is_cut_off = False
            if not node.is_running:
                node.restart()
        for name in self.nodes:
            self.link_all(name)
        for _ in range(400):
            self.round(100)
            if self.is_at_rest():
                return
        raise AssertionError("the cluster does not come to rest")

    def is_at_rest(self) -> bool:
        group = self.group
        return (
            not group.is_down
            and len(group.members) == len(self.nodes) == len(group.living)
            and len(group.sync) == len(self.nodes)
            and all(
                member.copy == self.nodes[member.id.node].me and member.copy in group.sync
                for member in group.members
            )
            and all(node.replica.group == group for node in self.nodes.values())
            and all(not link for link in self.links.values())
            and all(node.is_level() for node in self.nodes.values())
        )

    # -- what must hold ----------------------------------------------------------------------------

    def check(self) -> None:
        """Assert what holds at any time."""
        epochs = [epoch for _, epoch in self.masters]
        assert len(epochs) == len(set(epochs)), f"two masters of one epoch: {self.masters}"
        for node in self.nodes.values():
            if node.is_running and node.replica.master is not None:
                node.replica.master.in_sync.check()

    def drain(self) -> list[int]:
        """Take and ack everything that is left; the numbers in order."""
        master = self.master
        master.requeue(len(master.out))
        taken = master.take(self.seen.published + 1)
        master.ack(len(taken))
        self.run(3)
        return taken

    def check_rest(self) -> None:
        """Assert, when all is at rest, that nothing is lost, and that all copies are equal."""
        rows = self.master.has()
        numbers = [number for _, number, _ in rows]
        lost = self.seen.confirmed - self.seen.acked.keys() - set(numbers)
        assert not lost, f"confirmed and lost: {sorted(lost)}"
        assert numbers == sorted(set(numbers)), f"out of order: {numbers}"
        assert len([row[0] for row in rows]) == len({row[0] for row in rows})
