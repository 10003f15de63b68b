"""What of a reader group goes to disk, and what counts when it is there."""

from collections.abc import Callable

from warrenmq.admin.node import AdminVhost, member_definition
from warrenmq.admin.protocol import STORAGE_FAILED, ErrorReply
from warrenmq.broker.definitions.metadata import Change, DeleteGroupMember, PutReaderGroup
from warrenmq.queues.reader_groups import ReaderGroup


def commit_group(vhost: AdminVhost, group: ReaderGroup, done: Callable[[bool], None]) -> None:
    """Make the group's definition and everything journaled so far durable."""
    if group.is_deleted:
        # Its definition must not come back.
        done(False)
        return
    epoch = group.epoch
    changes: list[Change] = []
    if group.stored_epoch != epoch:
        changes.append(PutReaderGroup(vhost.name, group.name, epoch, group.pattern))
    left = list(group.left)
    changes.extend([DeleteGroupMember(vhost.name, group.name, queue_id) for queue_id in left])
    members = [
        (member, member.acked_durable, member.reserved)
        for member in group.members.values()
        if not member.is_stored
    ]
    changes.extend([member_definition(vhost.name, member) for member, _, _ in members])

    def on_stored(ok: bool) -> None:
        if ok:
            group.stored_epoch = max(group.stored_epoch, epoch)
            group.left.difference_update(left)
            for member, acked, reserved in members:
                member.stored_acked = acked
                member.stored_reserved = reserved
        done(ok)

    vhost.commit(changes, _when_acks_durable(group, on_stored))


def commit_acks(vhost: AdminVhost, group: ReaderGroup, done: Callable[[bool], None]) -> None:
    """Make everything journaled so far durable, the group's acks with it; not its definition."""
    vhost.commit([], _when_acks_durable(group, done))


def _when_acks_durable(
    group: ReaderGroup, done: Callable[[bool], None]
) -> Callable[[bool, int], None]:
    """`done` for a commit that carries the journal's acks up to where the group has acked when this is called."""
    acked = [(member, member.acked) for member in group.members.values()]

    def on_commit(ok: bool, _now_ms: int) -> None:
        if ok:
            for member, position in acked:
                member.acked_durable = max(member.acked_durable, position)
        done(ok)

    return on_commit


def storage_failed(what: str) -> ErrorReply:
    """The refusal when that the range `what` could not be stored."""
    return ErrorReply(
        STORAGE_FAILED, f"the broker could not store that the group's range is {what}; try again"
    )
