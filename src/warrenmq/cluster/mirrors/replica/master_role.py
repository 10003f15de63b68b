"""The master of a mirrored queue in one epoch: sends its operations, and decides who is in sync.

Every turn's operations go round the ring in one numbered message, after which the publishes of the
turn wait in `InSync`. Mirrors report straight to the master what is durable with them. A complete
mirror is recorded as in sync when it has all that was confirmed. One that lacks an operation, be it
an ack, and is gone or late, is recorded as out of sync (F4, F22): it must not take over and bring
back what was acked.

A gate stops deliveries when a mirror may have taken over (`cluster/mirrors/gates.py`). A master
that hands over, as one whose own disk hangs does, stops them first, and waits until the mirror has
heard of all of them: so redelivered flags are exact. What the store of the cluster does not decide
is proposed again (F16).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from warrenmq.cluster.groups.group import Copy, Group, Member
from warrenmq.cluster.groups.group_proposer import REFUSED, UNANSWERED
from warrenmq.cluster.groups.mirror_policy import MirrorPolicy
from warrenmq.cluster.groups.transitions import (
    Mastership,
    bury,
    chained,
    in_sync,
    out_of_sync,
    transfer,
)
from warrenmq.cluster.mirrors.log.sync_lines import SyncLines
from warrenmq.cluster.mirrors.records import (
    DurableRecord,
    FailedRecord,
    HandOverRecord,
    Heard,
    MalformedMirrorRecord,
    MirrorRecord,
    SyncRecord,
    encode_message,
)
from warrenmq.cluster.mirrors.replica.host import ReplicaHost, RoleHost
from warrenmq.cluster.mirrors.replica.in_sync import InSync
from warrenmq.cluster.mirrors.replica.mirror_copy import MirrorCopy
from warrenmq.cluster.mirrors.replica.mirror_lag import Sent
from warrenmq.cluster.mirrors.silences import SILENT_MS
from warrenmq.cluster.mirrors.sync.records import Levels, decode
from warrenmq.cluster.mirrors.sync.source import SourceHost, SyncSource
from warrenmq.cluster.ring.member import RingMember
from warrenmq.cluster.ring.view import MemberId
from warrenmq.queues.hand_out_gate import CLOSED, OPEN, HandOutGate
from warrenmq.queues.mirror.ring_feed import RingFeed
from warrenmq.vocabulary.fail_points import fail_point
from warrenmq.vocabulary.names import name_text

# A mirror that was late is not recorded as in sync again for this time.
READMIT_MS: Final = 5000
# How long a master that hands over waits for its mirror to have heard of all deliveries (ms).
LEVEL_MS: Final = 2000


def _ignore() -> None:
    """Nobody waits for the end of a hand-over."""


class _HandOver:
    """A master that is about to hand over to the member `to`, and delivers nothing meanwhile.

    `number`: the ring message up to which the mirror must have everything by `deadline_ms`.
    """

    def __init__(
        self, to: Member, number: int, deadline_ms: int, ended: Callable[[], None]
    ) -> None:
        self.to = to
        # Called once, when this node is no master any more, or stays one.
        self.ended = ended
        self.number = number
        self.deadline_ms = deadline_ms
        # It was proposed, so the store of the cluster may have decided it.
        self.is_proposed = False


class MasterRole(SourceHost):
    """The master with `copy`, which is its node's `member` of `group` and of `ring`.

    `heard`: how far the copy had followed the masters of earlier epochs. `is_heir`: the last master
    has died, and may have delivered any message.
    """

    def __init__(
        self,
        copy: MirrorCopy,
        group: Group,
        member: Member,
        policy: MirrorPolicy,
        heard: Heard,
        host: ReplicaHost,
        replica: RoleHost,
        ring: RingMember,
        is_heir: bool = False,
    ) -> None:
        self.copy: MirrorCopy = copy
        self.epoch: int = group.epoch
        self.sources: dict[bytes, SyncSource] = {}
        # Bytes of operations that went round the ring.
        self.ring_bytes: int = 0
        # Bytes of records for the synchronisation of each mirror.
        self.sync_bytes: dict[bytes, int] = {}
        self._node: bytes = member.id.node
        self._by: Mastership = Mastership(member.id.node, group.epoch)
        self._group: Group = group
        self._policy: MirrorPolicy = policy
        self._host: ReplicaHost = host
        self._replica: RoleHost = replica
        self._ring: RingMember = ring
        self._heard: Heard = heard
        self._changed_ms: int = host.now_ms()
        # When each mirror that was late may be recorded as in sync again.
        self._readmit_ms: dict[bytes, int] = {}
        self.in_sync: InSync = InSync(group.epoch, self._counted(), policy.min_sync)
        if copy.queue.durable:
            self.in_sync.journal = copy.journal
        # Some copy in sync has no living member, so nothing is confirmed until it is left out.
        self._lacks_member: bool = self._find_lack()
        self._hand_over: _HandOver | None = None
        self._is_stopped: bool = False
        self._gate: HandOutGate = OPEN
        self.in_sync.is_master = self._may_act
        self._set_gate()
        self.feed: RingFeed = RingFeed(copy.queue, host.wake)
        if is_heir:
            copy.applier.mark_all_delivered()
        self.feed.begin(group.epoch, group.prev[-1].first_seq, is_heir)

    # -- the group ---------------------------------------------------------------------------------

    def follow(self, group: Group) -> None:
        """Obey a later group of this epoch, with the same master."""
        before = self._group
        self._group = group
        if before.living != group.living:
            self._changed_ms = self._host.now_ms()
        for member in before.mirrors:
            node = member.id.node
            if group.member_of(node) != member:
                # What it reported was about a copy in another ring, or in an earlier run. Nobody
                # can record that copy as in sync any more.
                self.in_sync.left(node)
                self.in_sync.release(node)
                source = self.sources.pop(node, None)
                if source is not None:
                    source.stop()
        self.in_sync.set_members(self._counted())
        self._lacks_member = self._find_lack()
        self._set_gate()
        for node in self._counted():
            if node in self.sources:
                self.sources[node].recorded()
        self.check()

    def set_policy(self, policy: MirrorPolicy) -> None:
        """Obey another policy."""
        if policy == self._policy:
            # A cancelled synchronisation stays so, whatever other queues' policies become.
            return
        self._policy = policy
        self.in_sync.min_sync = policy.min_sync
        self._set_gate()
        for source in self.sources.values():
            source.batch_messages = policy.sync_batch_size
            source.automate(policy.is_automatic)

    def _set_gate(self) -> None:
        """Let the queue confirm and hand out as long as no other copy can have taken over.

        A master that hands over only confirms.
        """
        if self._is_stopped:
            # An answer to what this master has proposed may come when another one is there.
            return
        queue = self.copy.queue
        # A mirror that counts without a record may have one by now.
        mirrors = [node for node in self.in_sync.members if self._group.member_of(node)]
        needs_lease = self._lacks_member or self._policy.promotes_unsynced_on_failure
        self._gate = self._host.gate(frozenset(mirrors), needs_lease)
        gate = self._gate if self._hand_over is None else CLOSED
        if gate is not queue.gate:
            queue.set_gate(gate)
            self._host.wake()

    def _may_act(self) -> bool:
        return self._host.now_ms() < self._gate.until_ms

    def step_down(self) -> None:
        """Refuse everything that waits, and send nothing more: this is no master now."""
        self.in_sync.fail()
        self._stop()

    def delete(self) -> None:
        """Confirm everything that waits: the cluster has deleted the queue."""
        self.in_sync.end()
        self._stop()

    def go_on_alone(self, now_ms: int) -> None:
        """Confirm what waits as soon as this node's disk has it: there is no other copy now."""
        self.in_sync.count_no_mirrors()
        self._seal(now_ms)
        self._stop()

    def _stop(self) -> None:
        self._is_stopped = True
        self.copy.queue.set_gate(OPEN)
        self._end_hand_over()
        self.feed.end()
        for source in self.sources.values():
            source.stop()

    def check(self) -> None:
        """Propose what has to change: called with every group, and several times a second."""
        if self.in_sync.is_lost:
            return
        self.in_sync.finish_ready()
        now_ms = self._host.now_ms()
        self.in_sync.refuse_overdue(now_ms)
        group = self._group
        gone = [each for each in group.mirrors if self._is_gone(each.id.node)]
        for member in gone:
            self._bury(member)
        for copy in group.sync:
            node = copy.node
            if node != self._node and group.member_of(node) is None and self.in_sync.lacks(node):
                self._drop(copy)
        if not gone:
            self._drop_first(self.in_sync.late(now_ms, self._changed_ms), now_ms)
        for member in group.mirrors:
            self._consider(member.id.node)
            source = self.sources.get(member.id.node)
            if source is not None and source.is_waiting and member.copy in group.sync:
                # It counts, and reports nothing before it is complete: no policy lets it wait.
                source.start()
        if self.in_sync.is_hanging_here(now_ms):
            self._hand_over_hanging()
        if self._hand_over is not None:
            self._advance_hand_over(self._hand_over, now_ms)

    @property
    def heard(self) -> Heard:
        """How far the copy has followed its masters, itself the last one.

        What has gathered, and was not sent, counts as a message more.
        """
        number = int(self.feed.taken_count) + (1 if self.feed.gathered_bytes > 0 else 0)
        return Heard(self.epoch, number)

    @property
    def is_syncing(self) -> bool:
        """Whether a mirror is being synchronised, or waits for that."""
        return any(source.is_busy for source in self.sources.values())

    @property
    def has_open_business(self) -> bool:
        """Whether time alone may change something: the master is to be checked now and then."""
        in_sync = self.in_sync
        is_waiting = in_sync.is_waiting or in_sync.is_behind
        return is_waiting or self.is_syncing or self._hand_over is not None

    # -- turns -------------------------------------------------------------------------------------

    def end_turn(self, now_ms: int) -> None:
        """Send the operations of this turn; its publishes wait for the mirrors from now on."""
        for source in self.sources.values():
            source.advance(now_ms)
        if self._ring.is_joined and not self.in_sync.is_lost:
            has_operations = bool(self.feed.has_operations)
            operations = self.feed.take(self.epoch)
            if operations:
                self._note_sent(len(operations), has_operations, now_ms)
                number = int(self.feed.taken_count)
                self._ring.broadcast(encode_message(number, operations, self._heard))
                fail_point("mirrors.broadcast")
                if self._lacks_member and has_operations:
                    self.check()
        elif self.feed.gathered_bytes > 0 and not self.in_sync.is_lost:
            # The publishes wait for the ring together with their operations.
            self._count_buffered()
            return
        self._seal(now_ms)
        self._count_buffered()

    def _note_sent(self, size_bytes: int, has_operations: bool, now_ms: int) -> None:
        number = int(self.feed.taken_count)
        self.ring_bytes += size_bytes
        sent = self.in_sync.sent
        sent.forget(self.in_sync.durable_upto(number))
        published = int(self.feed.published_count)
        sent.note(Sent(number, published, self.ring_bytes, now_ms), has_operations)

    def _seal(self, now_ms: int) -> None:
        """Let the publishes of this turn wait for their copies."""
        party = self.in_sync.seal(int(self.feed.taken_count), now_ms)
        if party is not None:
            # The journal may have sealed a batch with publishes of this turn already.
            self.copy.when_durable(party.first_batch, partial(self.in_sync.durable_here, party))
            if self._lacks_member:
                self.check()

    def _count_buffered(self) -> None:
        in_sync = self.in_sync
        was_drained = in_sync.is_drained()
        in_sync.buffered_bytes = int(self.feed.gathered_bytes) + int(self._ring.buffered_bytes)
        if not was_drained and in_sync.is_drained():
            # The next turn resumes publishers.
            self._host.wake()

    # -- records -----------------------------------------------------------------------------------

    def take(self, node: bytes, record: MirrorRecord, now_ms: int) -> None:
        """Take a record of a mirror. Raises MalformedMirrorRecord."""
        member = self._group.member_of(node)
        if isinstance(record, HandOverRecord):
            if record.epoch == self.epoch:
                self.hand_over(record.node)
        elif member is None or node == self._node:
            return
        elif isinstance(record, DurableRecord):
            if record.epoch == self.epoch:
                if record.number > self.feed.taken_count:
                    raise MalformedMirrorRecord(f"ring message {record.number} was never sent")
                fail_point("mirrors.heard")
                self.in_sync.mark(node, record.number, now_ms)
                fail_point("mirrors.confirmed")
                self._consider(node)
                if self._hand_over is not None:
                    self._advance_hand_over(self._hand_over, now_ms)
        elif isinstance(record, FailedRecord):
            if record.epoch == self.epoch:
                self.in_sync.forget(node)
                self._readmit_ms[node] = now_ms + READMIT_MS
                # The record may name the copy as of an earlier run of its node. A copy that it does
                # not name may be about to be recorded.
                self._drop(self._recorded(node) or member.copy)
        elif isinstance(record, SyncRecord):
            step = decode(record)
            if isinstance(step, Levels) and step.epoch < self.epoch:
                # The mirror does not know this master yet, and offers anew when it does.
                return
            self._source(node).take(step, now_ms)

    # -- what operators ask for --------------------------------------------------------------------

    def synchronise(self, node: bytes) -> None:
        """Send the mirror on `node` what it lacks, now or when it has made its offer."""
        self._source(node).start()

    def cancel_syncs(self) -> bool:
        """Stop the synchronisation of all mirrors; returns whether one was under way."""
        found = [source for source in self.sources.values() if source.is_shown]
        for source in found:
            source.cancel()
        return bool(found)

    def hand_over(self, node: bytes, ended: Callable[[], None] = _ignore) -> bool:
        """Make the mirror on `node` the master; False: it is no mirror in sync.

        Deliveries stop now, and go on here if nothing comes of it. The change is proposed once the
        mirror has heard of all of them; a mirror that has not by LEVEL_MS does not become master.
        Publishes that wait for a confirm when that is decided are refused. `ended` is called when
        it is over, unless another hand-over is under way.
        """
        member = self._group.member_of(node)
        if member is None or member not in self._group.synced_mirrors:
            return False
        if self._hand_over is None:
            now_ms = self._host.now_ms()
            number = int(self.feed.carrier)
            self._hand_over = _HandOver(member, number, now_ms + LEVEL_MS, ended)
            self._set_gate()
            self._advance_hand_over(self._hand_over, now_ms)
        return True

    def _advance_hand_over(self, hand_over: _HandOver, now_ms: int) -> None:
        to = hand_over.to
        if not hand_over.is_proposed and to not in self._group.synced_mirrors:
            self._end_hand_over()
        elif hand_over.is_proposed or self.in_sync.mark_of(to.id.node) >= hand_over.number:
            hand_over.is_proposed = True
            self._propose_transfer(to.id)
        elif now_ms >= hand_over.deadline_ms:
            self._end_hand_over()

    def _propose_transfer(self, to: MemberId) -> None:
        first_seq = self.copy.next_start(self._group.prev[-1].first_seq)

        def done(outcome: int) -> None:
            # Without an answer it may be decided, and is proposed again: the queue waits for that.
            if outcome != UNANSWERED and not self.in_sync.is_lost:
                self._end_hand_over()

        # This node may have operations that the mirror lacks, so it is synchronised again.
        self._replica.propose(
            ("hand over", to),
            lambda group: transfer(group, self._by, to, first_seq, False),
            done,
        )

    def _end_hand_over(self) -> None:
        """Deliver again, if this node stays the master."""
        hand_over = self._hand_over
        self._hand_over = None
        self._set_gate()
        if hand_over is not None:
            hand_over.ended()

    def _hand_over_hanging(self) -> None:
        """Let the oldest mirror in sync lead, because this node's disk hangs."""
        for member in self._group.synced_mirrors:
            if not self._is_gone(member.id.node):
                self.hand_over(member.id.node)
                return

    def _source(self, node: bytes) -> SyncSource:
        source = self.sources.get(node)
        if source is None:
            source = self.sources[node] = SyncSource(
                node,
                self.copy.queue,
                self,
                self._policy.sync_batch_size,
                0,
                self._policy.is_automatic,
                SyncLines(name_text(node), self._host.log),
            )
        return source

    def send_sync(self, node: bytes, record: SyncRecord) -> None:
        self.sync_bytes[node] = self.sync_bytes.get(node, 0) + len(record.body)
        self._replica.send(node, record)

    def next_number(self) -> int:
        self.feed.note_changed()
        return int(self.feed.carrier)

    def repeat(self, level: int, below: int) -> None:
        self.feed.repeat(level, below)

    def on_synced(self, node: bytes) -> None:
        self._consider(node)

    # -- who is in sync ----------------------------------------------------------------------------

    def _consider(self, node: bytes) -> None:
        """Propose to record a complete mirror as in sync, if it has all that was confirmed."""
        member = self._group.member_of(node)
        now_ms = self._host.now_ms()
        if (
            member is None
            or member.copy in self._group.sync
            or self.in_sync.mark_of(node) == 0
            or self._readmit_ms.get(node, 0) > now_ms
            or not self.in_sync.admit(node)
        ):
            return
        self._set_gate()
        copy = member.copy

        def record(group: Group) -> Group | None:
            # Not if it has died and joined again meanwhile, with the same copy.
            return in_sync(group, self._by, copy) if group.member_of(node) == member else None

        def done(outcome: int) -> None:
            if outcome == REFUSED and copy not in self._group.sync:
                self.in_sync.release(node)
                self._set_gate()

        self._replica.propose(("in sync", copy), record, done)

    def _drop_first(self, late: set[bytes], now_ms: int) -> None:
        """Drop the first late mirror of the ring: those behind it may be late because of it."""
        for node in self._ring_order():
            copy = self._recorded(node) if node in late else None
            if copy is not None:
                self._readmit_ms[node] = now_ms + READMIT_MS
                self._drop(copy)
                return

    def _drop(self, copy: Copy) -> None:
        self._replica.propose(
            ("out of sync", copy), lambda group: out_of_sync(group, self._by, copy)
        )

    def _bury(self, member: Member) -> None:
        """Propose to record the death of a mirror, as out of sync if it lacks an operation."""
        copy = self._recorded(member.id.node)

        def is_lacking() -> bool:
            return copy is not None and self.in_sync.lacks(copy.node)

        def record(group: Group) -> Group | None:
            if not self._is_gone(member.id.node):
                # It was silent, and is back.
                return None
            buried = bury(group, self._by, member.id)
            if copy is None or not is_lacking():
                return buried
            return chained(buried, lambda dead: out_of_sync(dead, self._by, copy))

        self._replica.propose(("died", member.id), record, is_later=not is_lacking())

    def _is_gone(self, node: bytes) -> bool:
        return self._host.is_dead(node) or self._host.silence_ms(node) >= SILENT_MS

    def _ring_order(self) -> list[bytes]:
        """The nodes of the mirrors, as a message passes them."""
        nodes = [member.id.node for member in self._group.living]
        place = nodes.index(self._node)
        return nodes[place + 1 :] + nodes[:place]

    def _recorded(self, node: bytes) -> Copy | None:
        """The copy of a node that the group records as in sync."""
        return next((copy for copy in self._group.sync if copy.node == node), None)

    def _find_lack(self) -> bool:
        return any(self._group.member_of(node) is None for node in self._counted())

    def _counted(self) -> list[bytes]:
        return [copy.node for copy in self._group.sync if copy.node != self._node]
