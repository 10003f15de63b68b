"""The copies of a mirrored queue, as a node knows them from its replica there."""

from __future__ import annotations

from collections.abc import Callable

from warrenmq.broker.mirrors import UNKNOWN, CopyFacts, MirrorFacts, SyncProgress, mirror_pid
from warrenmq.cluster.groups.group import Group, Member
from warrenmq.cluster.mirrors.replica.master_role import MasterRole
from warrenmq.cluster.mirrors.replica.replica import Replica
from warrenmq.cluster.mirrors.sync.source import SENDING, WAITING, SyncSource
from warrenmq.queues.queue import Queue
from warrenmq.vocabulary.names import name_text


def facts_of_replica(
    replica: Replica,
    birth: int,
    group: Group,
    is_online: Callable[[bytes], bool],
    now_ms: int,
) -> MirrorFacts:
    """The copies of the queue of `replica`, which follows `group`.

    `is_online`: whether this node is that one, or has a link to it.
    """
    return MirrorFacts(
        master=name_text(group.master_node),
        is_down=group.is_down,
        reason=group.reason,
        mirrors=tuple(
            _copy(replica, birth, group, member, is_online(member.id.node), now_ms)
            for member in group.mirrors
        ),
        ring=tuple(name_text(member.id.node) for member in group.living),
        recoverable=tuple(map(name_text, group.recoverable)),
        epoch=group.epoch,
        version=group.version,
        min_sync=replica.policy.min_sync,
        promotes_unsynced=(
            replica.policy.promotes_unsynced_on_failure
            or replica.policy.promotes_unsynced_on_shutdown
        ),
    )


def _copy(
    replica: Replica, birth: int, group: Group, member: Member, is_online: bool, now_ms: int
) -> CopyFacts:
    node = member.id.node
    is_synced = member.copy in group.sync
    master = replica.master
    source = None if master is None else master.sources.get(node)
    lag = (UNKNOWN, UNKNOWN) if master is None else _lag(master, node, is_synced)
    return CopyFacts(
        name_text(node),
        mirror_pid(name_text(node), birth, member.id.version),
        is_synced,
        is_online,
        *lag,
        None if source is None or not source.is_shown else _progress(source),
        UNKNOWN if master is None else master.sync_bytes.get(node, 0),
        UNKNOWN if master is None else _lag_ms(master, node, is_synced, now_ms),
    )


def _lag(master: MasterRole, node: bytes, is_synced: bool) -> tuple[int, int]:
    """(messages, bytes) that a mirror lacks; bytes of one that is not in sync are an estimate."""
    mark = master.in_sync.mark_of(node)
    if is_synced or mark > 0:
        return master.in_sync.sent.behind(mark)
    source = master.sources.get(node)
    if source is None or source.state not in (WAITING, SENDING):
        return UNKNOWN, UNKNOWN
    left, _sent = source.progress()
    messages, size_bytes = _whole(source.queue)
    return left, left * size_bytes // max(1, messages)


def _lag_ms(master: MasterRole, node: bytes, is_synced: bool, now_ms: int) -> int:
    """For how long a mirror has lacked the oldest change that it lacks; 0: it lacks none.

    Of a mirror that lacks more than the master remembers, it is at least so long.
    """
    if not is_synced and master.in_sync.mark_of(node) == 0:
        return UNKNOWN
    since_ms = master.in_sync.lacking_since_ms(node)
    return 0 if since_ms < 0 else max(0, now_ms - since_ms)


def _progress(source: SyncSource) -> SyncProgress:
    left, sent = source.progress()
    if not source.has_answered:
        # The master does not know yet what the mirror lacks.
        return SyncProgress(0, _whole(source.queue)[0])
    rates = source.speed.by_second() if source.state == SENDING else (0.0, 0.0)
    return SyncProgress(sent, sent + left, *rates)


def _whole(queue: Queue) -> tuple[int, int]:
    """(messages, bytes of their bodies) of a queue."""
    messages = size_bytes = 0
    for level in queue.backings():
        messages += int(level.ready.count + level.unacked.count)
        size_bytes += int(level.ready.body_bytes + level.unacked.body_bytes)
    return messages, size_bytes
