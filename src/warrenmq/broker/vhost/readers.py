"""The reader groups of a vhost: what of them is stored, and what copies of their queues know.

A definition (PutGroupMember) is written with `acked_durable`, the position up to which an earlier
commit made the journal's acks durable, never with a position that is still on its way to disk:
after a crash, a definition ahead of its acks would strand messages below `acked`.

Of a mirrored queue, a commit also waits for the copies in sync, as a confirm does: whichever of
them becomes the master has what the reader was told. A copy stores the parts that its master tells
it in the same way, with the journal batch of the operations that came with them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import final

from mypy_extensions import i64

from warrenmq.broker.definitions.metadata import (
    Change,
    DeleteGroupMember,
    DeleteReaderGroup,
    PutGroupMember,
    PutReaderGroup,
)
from warrenmq.broker.vhost.queues import VhostQueues
from warrenmq.queues.confirm_source import ConfirmSource
from warrenmq.queues.queue import Queue
from warrenmq.queues.reader_part import ReaderPart
from warrenmq.queues.readers.group import GroupMember
from warrenmq.queues.readers.groups import ReaderGroup, ReaderGroups
from warrenmq.store.journal.confirm_run import ConfirmRun, ConfirmWaiter
from warrenmq.store.model.message import QueueLedger
from warrenmq.vocabulary.names import name_text

_log = logging.getLogger("warren.readers")


class VhostReaders:
    """The reader groups of `vhost`."""

    def __init__(self, vhost: VhostQueues) -> None:
        self.groups: ReaderGroups = ReaderGroups()
        self._vhost: VhostQueues = vhost
        host = vhost.host
        # Messages reserved by groups are unacked: paging and loading ask who has which.
        host.reserved_finder = self.groups.find_unacked
        host.loss_watchers.append(self.groups.forget)
        host.parts_finder = self.groups.parts_of
        host.parts_taker = self._follow
        vhost.deletion_watchers.append(self._on_deleted)
        vhost.take_over_watchers.append(self._on_take_over)
        vhost.discard_watchers.append(self._on_discarded)

    def recover(self, definition: PutReaderGroup, members: list[PutGroupMember]) -> None:
        """Restore a group with `members`; it reserves again the live messages of their ranges.

        A member whose queue is a hidden copy serves nobody until the copy becomes the master.
        """
        try:
            group = ReaderGroup(definition.name, definition.epoch, definition.pattern)
        except ValueError as error:
            # Another version of the library wrote the pattern. The group keeps its positions and
            # joins no new queues.
            _log.warning("reader group '%s': %s", name_text(definition.name), error)
            group = ReaderGroup(definition.name, definition.epoch, "")
        group.stored_epoch = definition.epoch
        self.groups.by_name[definition.name] = group
        for member in members:
            group.recover_member(
                member.queue_id,
                member.queue_name,
                member.incarnation,
                member.acked,
                member.reserved,
                member.is_ended,
                self._vhost.queues_by_id.get(member.queue_id),
                member.has_lapsed,
            )
        group.is_followed = len(members) > 0 and len(group.ordered()) == 0

    # -- commits -----------------------------------------------------------------------------------

    def commit(self, group: ReaderGroup, done: Callable[[bool], None]) -> None:
        """Call `done(ok)` when the group's definition and all journal records so far are durable.

        Of the group's mirrored queues, the copies in sync have made both durable by then, too.
        """
        if group.is_deleted:
            # A deleted group's definition must not reappear.
            done(False)
            return
        copies = _Copies(group, done)
        self._store(group, copies.local_done)

    def commit_acks(self, group: ReaderGroup, done: Callable[[bool], None]) -> None:
        """Call `done(ok)` when all journal records so far are durable, the acks among them."""
        self._vhost.commit(_when_acks_durable(group, done))

    def _store(self, group: ReaderGroup, done: Callable[[bool], None]) -> None:
        epoch = group.epoch
        changes: list[Change] = []
        if group.stored_epoch != epoch:
            changes.append(PutReaderGroup(self._vhost.name, group.name, epoch, group.pattern))
        left = list(group.left)
        for queue_id in left:
            changes.append(DeleteGroupMember(self._vhost.name, group.name, queue_id))
        members = [
            (member, member.acked_durable, member.reserved, member.has_lapsed)
            for member in group.members.values()
            if not member.is_stored
        ]
        for member, _, _, _ in members:
            changes.append(self._definition(member))

        def on_stored(ok: bool) -> None:
            if ok:
                group.stored_epoch = max(group.stored_epoch, epoch)
                group.left.difference_update(left)
                for member, acked, reserved, has_lapsed in members:
                    member.stored_acked = acked
                    member.stored_reserved = reserved
                    member.stored_lapse = has_lapsed
            done(ok)

        self._vhost.commit_with(changes, _when_acks_durable(group, on_stored))

    def _definition(self, member: GroupMember) -> PutGroupMember:
        """The member's definition, with only the acks that are durable."""
        return PutGroupMember(
            self._vhost.name,
            member.group_name,
            member.queue_id,
            member.queue_name,
            member.acked_durable,
            member.reserved,
            member.is_ended,
            member.incarnation,
            member.has_lapsed,
        )

    # -- what happens to queues --------------------------------------------------------------------

    def _follow(self, ledger: QueueLedger, parts: list[ReaderPart]) -> bool:
        """See `QueueHost.take_reader_parts`."""
        queue = self._vhost.queues_by_id.get(ledger.queue_id)
        if queue is None or not queue.is_hidden:
            return False
        return self._store_followed(self.groups.follow(queue, parts)) and queue.durable

    def _store_followed(self, groups: list[ReaderGroup]) -> bool:
        """Store what copies of queues have been told of `groups`; False: it is stored already."""
        is_new = False
        for group in groups:
            if group.is_deleted:
                change: Change = DeleteReaderGroup(self._vhost.name, group.name)
                self._vhost.store_changes([change], True)
                is_new = True
            elif not group.is_stored:
                self._store(group, _ignore)
                is_new = True
        return is_new

    def _on_take_over(self, queue: Queue, is_complete: bool) -> None:
        self.groups.take_over(queue, is_complete)
        for group in self.groups.by_name.values():
            member = group.members.get(queue.id)
            if member is not None and member.has_lapsed and not member.stored_lapse:
                # A start must not take the range for complete.
                self._store(group, _ignore)

    def _on_deleted(self, queue: Queue, message_count: int, now_ms: int) -> None:
        ended = self.groups.on_queue_deleted(queue, message_count, now_ms)
        # The ended memberships go into the commit of the deletion: a start must not take the
        # deletion for a loss.
        self._vhost.add_changes([self._definition(member) for member in ended])

    def _on_discarded(self, queue: Queue) -> None:
        self._store_followed(self.groups.forget_copies(queue))


@final
class _Copies(ConfirmWaiter):
    """One commit of `group`: its end on this node, and at the copies of its mirrored queues."""

    def __init__(self, group: ReaderGroup, done: Callable[[bool], None]) -> None:
        self._done: Callable[[bool], None] = done
        self._acked: list[tuple[GroupMember, i64]] = []
        sources: list[ConfirmSource] = []
        for member in group.members.values():
            queue = member.queue
            if queue is None:
                continue
            feed = queue.backing.feed
            if feed is not None:
                # Also if nothing has changed: the copies may not have what was told before.
                feed.readers_changed()
            if queue.confirm_source is not None:
                sources.append(queue.confirm_source)
                self._acked.append((member, member.acked))
        # This node is a party of its own.
        self._run: ConfirmRun = ConfirmRun(self, 0, 1 + len(sources))
        for source in sources:
            if source.refuses():
                self._run.ok = False
                self._run.parties_left -= 1
            else:
                source.party().runs.append(self._run)

    def local_done(self, ok: bool) -> None:
        """This node has stored everything, or has not."""
        run = self._run
        run.ok = run.ok and ok
        run.parties_left -= 1
        if run.parties_left == 0:
            self.on_decided(run)

    def on_decided(self, run: ConfirmRun) -> None:
        if run.ok:
            for member, acked in self._acked:
                member.acked_at_copies = max(member.acked_at_copies, min(acked, member.acked))
        self._done(run.ok)


def _ignore(_ok: bool) -> None:
    """Ignore whether parts are stored.

    For those in copies the mark of the mirror waits, and other changes come with later ones.
    """


def _when_acks_durable(
    group: ReaderGroup, done: Callable[[bool], None]
) -> Callable[[bool, int], None]:
    """Wrap `done` for a commit that makes the group's present acks durable; it records that."""
    acked = [(member, member.acked) for member in group.members.values()]

    def on_commit(ok: bool, _now_ms: int) -> None:
        if ok:
            for member, position in acked:
                member.acked_durable = max(member.acked_durable, min(position, member.acked))
        done(ok)

    return on_commit
