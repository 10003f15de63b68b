"""Commits the definitions and acks of reader groups, and records what is durable afterwards."""

from collections.abc import Callable

from warrenmq.admin.node import AdminVhost, member_definition
from warrenmq.admin.protocol.requests import ErrorReply
from warrenmq.broker.definitions.metadata import Change, DeleteGroupMember, PutReaderGroup
from warrenmq.queues.readers.groups import ReaderGroup
from warrenmq.vocabulary.error_codes import STORAGE_FAILED


def commit_group(vhost: AdminVhost, group: ReaderGroup, done: Callable[[bool], None]) -> None:
    """Make the group's definition and all journal records so far durable; then call `done(ok)`."""
    if group.is_deleted:
        # A deleted group's definition must not reappear.
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
    """Make all journal records so far durable, with the group's acks but not its definition."""
    vhost.commit([], _when_acks_durable(group, done))


def _when_acks_durable(
    group: ReaderGroup, done: Callable[[bool], None]
) -> Callable[[bool, int], None]:
    """Wrap `done` for a commit that makes the group's present acks durable; it records that."""
    acked = [(member, member.acked) for member in group.members.values()]

    def on_commit(ok: bool, _now_ms: int) -> None:
        if ok:
            for member, position in acked:
                member.acked_durable = max(member.acked_durable, position)
        done(ok)

    return on_commit


def storage_failed(what: str) -> ErrorReply:
    """The refusal when the broker could not store that a range is `what` ("reserved", "acked")."""
    return ErrorReply(
        STORAGE_FAILED, f"the broker could not store that the group's range is {what}; try again"
    )
