"""queue.delete, of a queue of this node or another one, mirrored or not."""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.broker.channel.channel import Channel
from warrenmq.broker.channel.definition_replies import propose, reply_at_once, reply_when_gone
from warrenmq.broker.channel.remote_calls import Attempt, delete_remote
from warrenmq.broker.channel.topology import check_owner, named_queue
from warrenmq.broker.definitions.metadata import Change
from warrenmq.broker.definitions.rights import QUEUE
from warrenmq.broker.definitions.shared import SharedDefinitions
from warrenmq.broker.vhost.queue_checks import check_delete
from warrenmq.queues.queue import Queue
from warrenmq.queues.remote.queue import RemoteQueue
from warrenmq.wire.errors import PRECONDITION_FAILED, ChannelException
from warrenmq.wire.methods import QueueDelete, QueueDeleteOk


def queue_delete(channel: Channel, method: QueueDelete) -> None:
    """Handle queue.delete; a missing queue counts as deleted, with 0 messages."""
    _delete(channel, method, Attempt(lambda attempt: _delete(channel, method, attempt)))


def _delete(channel: Channel, method: QueueDelete, attempt: Attempt) -> None:
    vhost = channel.vhost
    name = named_queue(channel, method.queue)
    channel.connection.client.rights.expect_configure(QUEUE, name)
    queue = vhost.taker(name)
    count: i64 = 0
    changes: list[Change] = []
    if queue is not None:
        check_owner(channel, queue)
    if isinstance(queue, RemoteQueue):
        if delete_remote(channel, queue, method.if_empty, method.if_unused, method.nowait, attempt):
            return
        # Its node is down. As in RabbitMQ, the queue may be deleted, but it may not be empty.
        if method.if_empty:
            raise ChannelException(PRECONDITION_FAILED, f"{vhost.queue_text(name)} not empty")
        changes = vhost.delete_abandoned(queue, channel.connection.now_ms)
    elif isinstance(queue, Queue):
        check_delete(vhost, queue, method.if_empty, method.if_unused)
        count = queue.ready_count
        decider = vhost.decider_of(queue)
        if decider is not None:
            _propose_deletion(channel, decider, method, queue, attempt)
            return
        channel.cancels.is_deferred = True
        user = channel.connection.client.user_name
        changes = vhost.remove_queue(queue, channel.connection.now_ms, user)
        channel.cancels.is_deferred = False
    reply_when_gone(channel, changes, None if method.nowait else QueueDeleteOk(count))


def _propose_deletion(
    channel: Channel,
    decider: SharedDefinitions,
    method: QueueDelete,
    queue: Queue,
    attempt: Attempt,
) -> None:
    """Delete a mirrored queue, which may only go as it is here, once the cluster has decided it."""
    vhost = channel.vhost
    count = queue.ready_count

    def look_again() -> None:
        if queue.is_deleted:
            reply_at_once(channel, None if method.nowait else QueueDeleteOk(count))
        else:
            _delete(channel, method, attempt)

    propose(channel, decider, vhost.deletion_of(queue), look_again)
