"""The only way of a routed message into its queues: published, committed, staged or dead."""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.queues.queue import Queue
from warrenmq.store.message import Message


def arrive(
    queues: list[Queue],
    message: Message,
    expiration_ms: i64,
    priority: i64,
    now_ms: i64,
    is_known: bool,
    may_refuse: bool = True,
) -> bool:
    """Publish `message` to each of `queues`; False when one of them has refused it.

    `expiration_ms` is the message's own time to live (NO_LIMIT: none). `is_known`: a consumer may
    have received the message before a crash. `may_refuse`: see `Queue.publish`.
    """
    is_taken = True
    for queue in queues:
        if not queue.publish(message, expiration_ms, now_ms, is_known, priority, may_refuse):
            is_taken = False
    return is_taken
