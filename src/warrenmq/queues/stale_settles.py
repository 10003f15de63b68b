"""Acks of messages that another node delivered when it was the master of their queue.

Such a message may be ready again at the new master, may have been delivered again, or may be gone.
A seq id means the same message on every copy of a queue, so an ack never settles another one (F2).
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.queues.leave_reason import ACKED
from warrenmq.queues.leveled_queue import LeveledQueue
from warrenmq.store.model.epochs import epoch_of


def settle_if_ready(
    queue: LeveledQueue, level: i64, seq: i64, epoch: i64, reason: i64, now_ms: i64
) -> bool:
    """Let the message `seq` of `level` go for `reason`, if it is ready and not of a later epoch.

    Returns whether it is gone. A message that is on disk only stays, and is delivered again:
    nothing in memory tells whether it is still there.
    """
    backing = queue.level_at(level)
    if backing is None or backing.is_deleted or epoch_of(backing.ledger.epochs, seq) > epoch:
        return False
    ready = backing.ready
    place = ready.index_of_seq(seq)
    if place >= ready.entry_count or ready.at(place).seq != seq:
        return False
    (entry,) = ready.take_range(place, 1)
    rule = queue.settings.dead_letters if reason != ACKED else None
    if rule is None:
        backing.drop(entry, reason, now_ms)
    else:
        backing.begin_leaving(entry, now_ms)
        backing.host.dead_letter(entry, reason, rule)
    return True
