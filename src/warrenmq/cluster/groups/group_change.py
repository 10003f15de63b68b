"""The group of a queue's definition, and the transaction that changes it."""

from __future__ import annotations

from warrenmq.broker.definitions.metadata import Change, PutQueue
from warrenmq.cluster.groups.group import Group, decode_group, encode_group
from warrenmq.cluster.metadata.conditions import Condition, LastWritten


def group_of(put: PutQueue) -> Group | None:
    """The group of a queue, None if it is not mirrored. Raises MetadataDamaged."""
    return decode_group(put.group) if put.group else None


def with_group(put: PutQueue, group: Group) -> PutQueue:
    """The definition `put` with another group, of which its node has the master."""
    return PutQueue(
        put.vhost,
        put.id,
        put.name,
        put.durable,
        put.auto_delete,
        put.arguments,
        node=group.master_node,
        is_exclusive=put.is_exclusive,
        birth=put.birth,
        group=encode_group(group),
        revision=put.revision,
    )


def without_group(put: PutQueue) -> PutQueue:
    """The definition `put` of a queue that is mirrored no more; its node stays."""
    return PutQueue(
        put.vhost,
        put.id,
        put.name,
        put.durable,
        put.auto_delete,
        put.arguments,
        node=put.node,
        is_exclusive=put.is_exclusive,
        birth=put.birth,
        revision=put.revision,
    )


def group_change(put: PutQueue, group: Group) -> tuple[list[Condition], list[Change]]:
    """The transaction that gives the queue `put`, as this node has followed it, the `group`.

    Its condition covers the queue's life too: another life has another revision.
    """
    return [LastWritten(put, put.revision)], [with_group(put, group)]
