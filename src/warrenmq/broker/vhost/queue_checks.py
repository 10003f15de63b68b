"""Checks that the node of a queue makes before it does what a client of any node asks for."""

from __future__ import annotations

from warrenmq.broker.vhost.queues import VhostQueues
from warrenmq.queues.queue import Queue
from warrenmq.wire import errors


def check_consume(vhost: VhostQueues, queue: Queue, exclusive: bool) -> None:
    """Raise ChannelException 403 if a consumer, `exclusive` or not, may not join the others."""
    if not queue.admits_consumer(exclusive):
        raise errors.ChannelException(
            errors.ACCESS_REFUSED, f"{vhost.queue_text(queue.name)} in exclusive use"
        )


def check_delete(vhost: VhostQueues, queue: Queue, if_empty: bool, if_unused: bool) -> None:
    """Raise ChannelException 406 or ConnectionException 540 if the queue may not be deleted."""
    text = vhost.queue_text(queue.name)
    if queue.settings.traits.is_quorum and (if_empty or if_unused):
        flag = "if-unused" if if_unused else "if-empty"
        raise errors.ConnectionException(
            errors.NOT_IMPLEMENTED,
            f"cannot delete {text}. queue.delete operations with {flag} flag set are not supported by quorum queues",
            50,
            40,
        )
    if if_empty and queue.ready_count > 0:
        raise errors.ChannelException(errors.PRECONDITION_FAILED, f"{text} not empty")
    if if_unused and len(queue.consumers) > 0:
        raise errors.ChannelException(errors.PRECONDITION_FAILED, f"{text} in use")


def purge_failure(vhost: VhostQueues, queue: Queue) -> str:
    """Says that a purge has emptied the queue, and may be undone if another copy takes over."""
    return f"copies of {vhost.queue_text(queue.name)} may still have purged messages"


def purge_refusal(vhost: VhostQueues, queue: Queue) -> errors.ChannelException:
    """The refusal of queue.purge for that reason."""
    return errors.ChannelException(errors.RESOURCE_ERROR, purge_failure(vhost, queue))
