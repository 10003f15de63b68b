"""The reader groups of a vhost: which queues each reads, how it is opened, taken over and fenced.

A group reads queues that were named, or queues whose whole names match a regular expression. In the
second case queues join as they are declared (`join`), and a queue that is deleted with nothing left
to read just ends. In all other cases a deleted queue is a loss, which stays until a client that
accepts the loss opens the group.

Fencing: every `open` raises the epoch, and every other call names the epoch it was given. The
newest opener wins: a crashed program can resume at once, and calls left over from an older one are
refused instead of acking behind its back. Readers of a deleted group are refused too when another
group of its name exists, since epochs begin with the time of creation.

The part of a group in one queue is a `GroupMember` (group.py). Of a mirrored queue its copies have
the part too, in a group of that name on their own node: `follow` keeps it, and `take_over` serves
it when a copy has become the master. A group may be known by such parts alone (`is_shadow`).
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from warrenmq.queues.backing.paging import journal_ready
from warrenmq.queues.entry import Entry
from warrenmq.queues.queue import Queue
from warrenmq.queues.reader_part import ReaderPart
from warrenmq.queues.readers.group import GroupMember
from warrenmq.queues.readers.group_error import GroupError
from warrenmq.store.model.message import QueueLedger
from warrenmq.vocabulary.error_codes import DATA_LOSS, FENCED, NOT_FOUND, PRECONDITION
from warrenmq.vocabulary.names import name_text
from warrenmq.vocabulary.patterns.name_pattern import NamePattern

# Requests name a position for each member and must stay small.
MEMBERS_MAX: Final = 1000


@final
class ReaderGroup:
    """One group: its members under one epoch. `pattern` is "" when its queues were named."""

    def __init__(self, name: bytes, epoch: i64, pattern: str) -> None:
        self.name: bytes = name
        self.epoch: i64 = epoch
        # The client that opened this epoch, for errors to fenced clients; "" after a restart.
        self.opener: str = ""
        # No client has opened the group on this node: it goes with its last copy of a queue.
        self.is_followed: bool = False
        self.pattern: str = pattern
        self._matcher: NamePattern = compile_pattern(pattern)
        # The members, by queue id.
        self.members: dict[int, GroupMember] = {}
        # Queues with ids up to this one have been matched with the pattern.
        self.matched_upto: i64 = 0
        self.is_deleted: bool = False
        # Queue id of the member that the next reserve starts with: the one after the last served.
        self.next_turn: i64 = 0
        # Since when (ms) messages are ready, but fewer than a reserve asks for; -1: none is ready.
        self.ready_since_ms: i64 = -1
        # The epoch in the definition on disk.
        self.stored_epoch: i64 = 0
        # Queue ids of members that the definition on disk still has but should not.
        self.left: set[int] = set()
        # Ids of the priority queues that the log of the node has named; see `passes_over`.
        self.named_in_log: set[int] = set()

    def expect(self, epoch: i64) -> None:
        """Raise GroupError unless `epoch` is the newest. Every call of a reader begins with it."""
        if self.is_deleted:
            raise GroupError(NOT_FOUND, f"reader group '{name_text(self.name)}' is deleted")
        if epoch != self.epoch:
            raise GroupError(
                FENCED,
                f"reader group '{name_text(self.name)}' was taken over by {self.opener or 'another opener'} "
                f"(epoch {self.epoch}); the caller's epoch {epoch} is over",
            )

    @property
    def is_stored(self) -> bool:
        """Whether the definition on disk is up to date, as far as the durable acks allow."""
        if self.stored_epoch != self.epoch or len(self.left) > 0:
            return False
        return all([member.is_stored for member in self.members.values()])

    def member(self, incarnation: i64) -> GroupMember:
        """The member for that incarnation of a queue; GroupError when there is none."""
        # That of a queue of a lone node is its id.
        member = self.members.get(incarnation)
        if member is not None and member.incarnation == incarnation:
            return member
        for other in self.members.values():
            if other.incarnation == incarnation:
                return other
        raise GroupError(
            DATA_LOSS,
            f"reader group '{name_text(self.name)}' reads no queue with incarnation {incarnation}",
        )

    def ordered(self) -> list[GroupMember]:
        """The members that are no copies, by name of their queue."""
        by_name = [
            (member.queue_name, member.queue_id, member)
            for member in self.members.values()
            if not member.is_copy
        ]
        by_name.sort(key=_name_and_id)
        return [member for _, _, member in by_name]

    @property
    def is_shadow(self) -> bool:
        """Whether the group is known here by copies of queues alone, and to no client."""
        return self.is_followed and len(self.ordered()) == 0

    def set_pattern(self, pattern: str) -> None:
        """Read the queues that match `pattern`; all queues must be matched again."""
        self._matcher = compile_pattern(pattern)
        self.pattern = pattern
        self.matched_upto = 0

    def matches(self, queue: Queue) -> bool:
        """Whether the pattern matches `queue` and a group may read it."""
        return queue.levels is None and self._is_meant(queue)

    def passes_over(self, queue: Queue) -> bool:
        """Whether the pattern matches `queue`, which is a priority queue: no group reads it."""
        return queue.levels is not None and self._is_meant(queue)

    def _is_meant(self, queue: Queue) -> bool:
        return (
            queue.durable
            and not queue.is_hidden
            and queue.definition.owner is None
            and self._matcher.matches(queue.name.decode("utf-8", "replace"))
        )

    def join(self, queue: Queue, start: i64) -> None:
        """Add `queue` as a member that reads from `start` on.

        The caller makes the definition durable.
        """
        if len(self.ordered()) >= MEMBERS_MAX:
            raise GroupError(
                PRECONDITION,
                f"reader group '{name_text(self.name)}' would have more than {MEMBERS_MAX} queues",
            )
        member = self._add(queue, start, start)
        member.queue = queue
        queue.backing.journals_transient = True

    def follow(self, queue: Queue, part: ReaderPart) -> None:
        """Stand in the copy `queue` where its master says that the group does.

        The caller makes the definition durable.
        """
        if part.epoch > self.epoch:
            self.epoch = part.epoch
            self.opener = ""
            if part.pattern != self.pattern:
                self.set_pattern(_usable(part.pattern))
        member = self.members.get(queue.id)
        known: i64 = part.acked
        if member is None:
            member = self._add(queue, part.acked, part.reserved)
            queue.backing.journals_transient = True
        else:
            known = max(known, member.reserved)
        member.follow(part)
        # Transient messages that came before the group are in memory only.
        journal_ready(queue.backing, known, part.reserved)

    def _add(self, queue: Queue, acked: i64, reserved: i64) -> GroupMember:
        member = GroupMember(self.name, queue.name, queue.id, queue.incarnation, acked, reserved)
        self.members[queue.id] = member
        self.left.discard(queue.id)
        return member

    def recover_member(
        self,
        queue_id: i64,
        queue_name: bytes,
        incarnation: i64,
        acked: i64,
        reserved: i64,
        is_ended: bool,
        queue: Queue | None,
        has_lapsed: bool = False,
    ) -> None:
        """Restore a member from its definition; `queue`: None when it is gone.

        A queue that has come into a cluster since has another incarnation than in the definition.
        """
        if queue is not None:
            incarnation = queue.incarnation
        elif incarnation == 0:
            incarnation = queue_id
        member = GroupMember(
            self.name, queue_name, queue_id, incarnation, acked, max(acked, reserved)
        )
        member.stored_acked = acked
        member.stored_reserved = reserved
        member.is_ended = is_ended
        member.has_lapsed = member.stored_lapse = has_lapsed
        self.members[queue_id] = member
        if queue is not None and queue.is_hidden:
            member.is_copy = True
            queue.backing.journals_transient = True
        elif queue is not None and not has_lapsed:
            member.attach(queue)

    def leave(self, member: GroupMember, now_ms: i64) -> None:
        """Remove a member; its reserved messages are ready again."""
        queue = member.queue
        member.release(now_ms)
        del self.members[member.queue_id]
        self.left.add(member.queue_id)
        if queue is not None:
            _tell_copies(queue)

    def reserved_count(self) -> i64:
        """The number of messages that the group has reserved."""
        count: i64 = 0
        for member in self.members.values():
            count += len(member.reserved_entries)
        return count

    def lag(self) -> i64:
        """The number of messages that the group has not acked."""
        count: i64 = 0
        for member in self.members.values():
            count += member.lag()
        return count

    def check(self) -> None:
        """Assert the invariants of the members."""
        for queue_id, member in self.members.items():
            assert member.queue_id == queue_id
            member.check()


@final
class ReaderGroups:
    """The reader groups of one vhost, by name."""

    def __init__(self) -> None:
        self.by_name: dict[bytes, ReaderGroup] = {}
        # The highest epoch of a group deleted in this run of the node.
        self._deleted_epoch: i64 = 0

    def open(
        self,
        name: bytes,
        opener: str,
        queues: list[Queue],
        pattern: str,
        starts: dict[int, int],
        may_rebind: bool,
        now_ms: i64,
        wanted_epoch: i64 = 0,
    ) -> ReaderGroup:
        """Create the group or take it over, under the next epoch, or under `wanted_epoch`.

        A `wanted_epoch` counts if it is no older than that of the group; the caller has chosen it,
        and this node may have been told of it by the master of a mirrored queue already.

        The caller makes the definition durable. The group reads `queues` from then on; with a
        `pattern`, these are the queues it matches. A queue that joins begins at its position in
        `starts` (by queue id), or at its first message. `may_rebind` accepts losses: without it, a
        deleted queue that the group would still read, and a queue with the name of a deleted one,
        are refused.
        """
        wanted = {queue.id: queue for queue in queues}
        for queue in queues:
            if not queue.durable:
                raise GroupError(
                    PRECONDITION,
                    f"queue '{name_text(queue.name)}' is not durable: a reader group needs durable queues, "
                    "because what it reserves must outlive a restart",
                )
            refuse_unreadable(queue)
            self.refuse_second_holder(name, queue)
        group = self.by_name.get(name)
        if group is not None and not may_rebind:
            _refuse_loss(group, queues, pattern)
        if len(wanted) > MEMBERS_MAX:
            raise GroupError(PRECONDITION, f"a reader group has at most {MEMBERS_MAX} queues")
        if group is None:
            group = ReaderGroup(name, max(now_ms, self._deleted_epoch), pattern)
            self.by_name[name] = group
        group.epoch = wanted_epoch if wanted_epoch >= group.epoch else group.epoch + 1
        group.opener = opener
        group.is_followed = False
        group.set_pattern(pattern)
        for member in group.ordered():
            # Keep ended members of a pattern group: a reader that crashed may still name them.
            is_gone = member.queue_id not in wanted and not (member.is_ended and pattern != "")
            # A queue that is lost and wanted has lapsed.
            if is_gone or member.is_lost:
                group.leave(member, now_ms)
        for queue in queues:
            if queue.id not in group.members:
                start: i64 = starts.get(queue.id, 0)
                group.join(queue, min(start, queue.ledger.next_seq))
        return group

    def refuse_moved(self, name: bytes, elsewhere: list[bytes]) -> None:
        """Raise GroupError when the group was reading a deleted queue that lives elsewhere by now.

        `elsewhere`: the names of the group's queues on other nodes.
        """
        group = self.by_name.get(name)
        if group is None:
            return
        for member in group.ordered():
            if member.is_lost and member.queue_name in elsewhere:
                if member.has_lapsed:
                    raise member.lapse()
                raise GroupError(
                    DATA_LOSS,
                    f"reader group '{name_text(name)}' was reading an earlier queue "
                    f"'{name_text(member.queue_name)}' (incarnation {member.incarnation}) that is deleted; "
                    "the one there is now is a new one, on another node",
                )

    def shown(self) -> list[ReaderGroup]:
        """The groups that clients have opened on this node, by name."""
        names = [group.name for group in self.by_name.values() if not group.is_shadow]
        names.sort()
        return [self.by_name[name] for name in names]

    def get(self, name: bytes) -> ReaderGroup:
        """The group `name`; GroupError when there is none."""
        group = self.by_name.get(name)
        if group is None:
            raise GroupError(NOT_FOUND, f"no reader group '{name_text(name)}'")
        return group

    def delete(self, name: bytes, now_ms: i64) -> None:
        """Forget the group; its reserved messages are ready again."""
        group = self.get(name)
        group.is_deleted = True
        self._deleted_epoch = max(self._deleted_epoch, group.epoch)
        del self.by_name[name]
        for member in group.members.values():
            queue = member.queue
            member.release(now_ms)
            if queue is not None:
                _tell_copies(queue)

    def find_unacked(self, ledger: QueueLedger, first: i64, end: i64) -> list[Entry]:
        """The messages of [first, end) of a queue that groups have reserved: unacked entries."""
        found: list[Entry] = []
        for member in self.members_of(ledger):
            found.extend(member.reserved_between(first, end))
        return found

    def forget(self, ledger: QueueLedger, lost: list[Entry]) -> None:
        """Remove `lost` entries, which are settled and whose contents are lost, from all groups.

        Another reader may have asked for the contents.
        """
        for member in self.members_of(ledger):
            member.forget(lost)

    def members_of(self, ledger: QueueLedger) -> list[GroupMember]:
        """The members, one a group, that read the queue of `ledger`."""
        found: list[GroupMember] = []
        for group in self.by_name.values():
            member = group.members.get(ledger.queue_id)
            if member is not None and member.queue is not None and member.queue.ledger is ledger:
                found.append(member)
        return found

    def when_attached(self, callback: Callable[[], None]) -> bool:
        """Call `callback` when a member that is attaching has finished; False: none is."""
        for group in self.by_name.values():
            for member in group.members.values():
                if member.is_attaching:
                    member.attach_watchers.append(callback)
                    return True
        return False

    def on_queue_deleted(self, queue: Queue, message_count: i64, now_ms: i64) -> list[GroupMember]:
        """Detach the members of a deleted queue that had `message_count` messages.

        The members stay, so that their readers learn of the deletion instead of starting over
        silently. Returns those that have ended: their groups lose nothing. Messages that consumers
        had unacked would have come back, so they are a loss; what another group had reserved is the
        loss of that group only.
        """
        left = message_count
        for holder in self.members_of(queue.ledger):
            left -= len(holder.reserved_entries)
        ended: list[GroupMember] = []
        for group in self.by_name.values():
            member = group.members.get(queue.id)
            if member is not None and member.queue is queue:
                if group.pattern != "" and left <= 0 and len(member.reserved_entries) == 0:
                    member.end()
                    ended.append(member)
                member.detach(now_ms)
            elif member is not None and member.has_lapsed:
                # It has let go of the queue already.
                member.is_copy = queue.is_hidden
        return ended

    # -- copies of mirrored queues -----------------------------------------------------------------

    def parts_of(self, ledger: QueueLedger) -> list[ReaderPart]:
        """The groups' parts in the queue of `ledger`, which this node serves, for its copies."""
        parts: list[ReaderPart] = []
        for group in self.by_name.values():
            member = group.members.get(ledger.queue_id)
            if member is not None and not member.is_copy:
                parts.append(
                    ReaderPart(
                        group.name,
                        group.epoch,
                        group.pattern,
                        member.acked,
                        member.reserved,
                        member.has_lapsed,
                    )
                )
        return parts

    def follow(self, queue: Queue, parts: list[ReaderPart]) -> list[ReaderGroup]:
        """Let the copy `queue` have `parts` and no others; returns the groups that have changed.

        The caller makes their definitions durable; a group that `is_deleted` then is forgotten.
        """
        changed: list[ReaderGroup] = []
        told: set[bytes] = set()
        for part in parts:
            told.add(part.group)
            group = self.by_name.get(part.group)
            if group is None:
                group = ReaderGroup(part.group, part.epoch, _usable(part.pattern))
                group.is_followed = True
                self.by_name[part.group] = group
            group.follow(queue, part)
            changed.append(group)
        for group in list(self.by_name.values()):
            if group.name not in told and self._forget_copy(group, queue):
                changed.append(group)
        return changed

    def forget_copies(self, queue: Queue) -> list[ReaderGroup]:
        """Forget the parts in a copy that is discarded; returns the groups, as `follow` does."""
        return [group for group in list(self.by_name.values()) if self._forget_copy(group, queue)]

    def take_over(self, queue: Queue, is_complete: bool) -> None:
        """Serve `queue`, as this copy has become the master; see `GroupMember.take_over`."""
        for group in self.by_name.values():
            member = group.members.get(queue.id)
            if member is not None and member.is_copy:
                member.take_over(queue, is_complete)
            elif member is None:
                # A queue that a pattern matches, and that no group had read before, joins now.
                group.matched_upto = min(group.matched_upto, queue.id - 1)

    def leave_node(self, group: ReaderGroup, now_ms: i64) -> None:
        """Let go of the queues that the group reads here; its parts in copies stay."""
        for member in group.ordered():
            group.leave(member, now_ms)
        group.is_followed = True

    def _forget_copy(self, group: ReaderGroup, queue: Queue) -> bool:
        member = group.members.get(queue.id)
        if member is None or not member.is_copy:
            return False
        del group.members[queue.id]
        group.left.add(queue.id)
        if group.is_followed and len(group.members) == 0:
            group.is_deleted = True
            self._deleted_epoch = max(self._deleted_epoch, group.epoch)
            del self.by_name[group.name]
        return True

    def refuse_second_holder(self, name: bytes, queue: Queue) -> None:
        """Raise GroupError when another group than `name` has reserved messages of `queue`.

        The group could not get past the first of them, and would wait for it in silence.
        """
        for member in self.members_of(queue.ledger):
            if member.group_name != name and len(member.reserved_entries) > 0:
                raise GroupError(
                    PRECONDITION,
                    f"reader group '{name_text(member.group_name)}' holds {len(member.reserved_entries)} messages of queue "
                    f"'{name_text(queue.name)}'; continue with that group or delete it",
                )


def refuse_unreadable(queue: Queue) -> None:
    """Raise GroupError when no reader but a consumer can read `queue`.

    A priority queue has no seq ids of its own: each of its levels numbers its messages from 1.
    """
    refuse_exclusive(queue)
    if queue.levels is not None:
        raise GroupError(
            PRECONDITION,
            f"queue '{name_text(queue.name)}' is a priority queue: its messages have no common order",
        )


def refuse_exclusive(queue: Queue) -> None:
    """Raise GroupError when `queue` is exclusive: it is for its connection."""
    if queue.definition.owner is not None:
        raise GroupError(
            PRECONDITION, f"queue '{name_text(queue.name)}' is exclusive to a connection"
        )


def compile_pattern(pattern: str) -> NamePattern:
    """The compiled pattern; ValueError with a text for people when it is no regular expression."""
    try:
        return NamePattern(pattern)
    except ValueError as error:
        raise ValueError(f"the pattern of queue names is no regular expression: {error}") from None


def _usable(pattern: str) -> str:
    """The pattern, or "" if this node cannot use it: a group keeps its positions without one."""
    try:
        compile_pattern(pattern)
    except ValueError:
        return ""
    return pattern


def _tell_copies(queue: Queue) -> None:
    feed = queue.backing.feed
    if feed is not None:
        feed.readers_changed()


def _name_and_id(item: tuple[bytes, i64, GroupMember]) -> tuple[bytes, i64]:
    return item[0], item[1]


def _refuse_loss(group: ReaderGroup, queues: list[Queue], pattern: str) -> None:
    names = {queue.name: queue for queue in queues}
    for member in group.ordered():
        if not member.is_lost:
            continue
        successor = names.get(member.queue_name)
        if member.has_lapsed and successor is not None:
            raise member.lapse()
        if successor is not None:
            raise GroupError(
                DATA_LOSS,
                f"reader group '{name_text(group.name)}' was reading an earlier queue '{name_text(member.queue_name)}' "
                f"(incarnation {member.incarnation}) that is deleted; the one there is now is a new one "
                f"(incarnation {successor.incarnation})",
            )
        if pattern != "" and pattern == group.pattern:
            raise GroupError(
                DATA_LOSS,
                f"reader group '{name_text(group.name)}' was reading queue '{name_text(member.queue_name)}' "
                f"(incarnation {member.incarnation}), which was deleted with messages that were not read",
            )
