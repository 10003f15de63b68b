"""basic.get: at once, when the head is read from disk, or from another node."""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.broker.channel.channel import Channel
from warrenmq.broker.channel.definition_replies import await_deletion
from warrenmq.broker.channel.remote_calls import Attempt, QueueCall
from warrenmq.broker.channel.suspended_method import resume_method
from warrenmq.broker.channel.topology import usable_queue
from warrenmq.broker.dead_letters.death_headers import with_delivery_count
from warrenmq.queues.backing.variable_queue import LOADING
from warrenmq.queues.entry import Entry
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.queue import Queue
from warrenmq.queues.remote.queue import RemoteQueue
from warrenmq.queues.remote.session import CallAnswer
from warrenmq.wire.errors import RESOURCE_LOCKED, ChannelException
from warrenmq.wire.methods import BasicGet, BasicGetEmpty, BasicGetOk


def get(channel: Channel, method: BasicGet) -> None:
    """Handle basic.get."""
    _get(channel, method, Attempt(lambda attempt: _get(channel, method, attempt)))


def _get(channel: Channel, method: BasicGet, attempt: Attempt) -> None:
    taker = usable_queue(channel, method.queue)
    traits = taker.settings.traits
    if traits.is_quorum and traits.is_single_active:
        raise ChannelException(
            RESOURCE_LOCKED,
            f"cannot obtain access to locked {channel.vhost.queue_text(taker.name)}. basic.get operations are not "
            "supported by quorum queues with single active consumer",
        )
    if isinstance(taker, RemoteQueue):
        if taker.get(_RemoteGet(channel, taker, method.no_ack, attempt), method.no_ack):
            channel.suspend()
        else:
            attempt.wait(channel, taker)
    elif isinstance(taker, Queue):
        if not await_deletion(channel, taker, lambda: attempt.handle(attempt)):
            _get_here(channel, taker, method)


def _get_here(channel: Channel, queue: Queue, method: BasicGet) -> None:
    now_ms = channel.connection.now_ms
    queue.last_used_ms = now_ms
    entry = queue.get(method.no_ack, now_ms)
    if entry is None and queue.head_state(now_ms) == LOADING:
        _get_later(channel, queue, method)
    else:
        _answer_here(channel, queue, entry, method.no_ack)


def _get_later(channel: Channel, queue: Queue, method: BasicGet) -> None:
    """Suspend the channel until the queue's head is loaded from disk, then answer basic.get."""
    channel.suspend()

    def on_head(now_ms: int) -> None:
        if channel.is_closing:
            # When a connection ends, an auto-delete queue may be deleted before the channel closes.
            return
        if queue.is_hidden:
            resume_method(channel, lambda: get(channel, method), now_ms)
            return
        entry = queue.get(method.no_ack, now_ms)
        if entry is None and queue.head_state(now_ms) == LOADING:
            _get_later(channel, queue, method)
            return
        channel.is_suspended = False
        _answer_here(channel, queue, entry, method.no_ack)
        channel.connection.touch()
        if not channel.is_suspended:
            channel.resume(now_ms)

    queue.when_head(on_head)


def _answer_here(channel: Channel, queue: Queue, entry: Entry | None, no_ack: bool) -> None:
    if entry is None:
        queue.count_empty_get()
    _answer(channel, queue, entry, no_ack, queue.ready_count)


def _answer(
    channel: Channel, queue: MessageTaker, entry: Entry | None, no_ack: bool, ready_count: i64
) -> None:
    connection = channel.connection
    counters = channel.counters
    if entry is None:
        counters.got_empty += 1
        connection.out.method(channel.number, BasicGetEmpty())
        return
    tag = channel.next_delivery_tag
    channel.next_delivery_tag = tag + 1
    if entry.redelivered:
        counters.redelivered += 1
    if no_ack:
        counters.got_auto_ack += 1
    else:
        counters.got_manual_ack += 1
        entry.consumer = None
        entry.delivery_tag = tag
        channel.unacked.append(entry)
    message = entry.message
    properties = message.properties
    if queue.settings.traits.is_quorum:
        properties = with_delivery_count(properties, queue.return_count(entry))
    connection.out.method(
        channel.number,
        BasicGetOk(tag, entry.redelivered, message.exchange(), message.routing_key(), ready_count),
    )
    connection.out.content(channel.number, properties, message.body)
    if channel.tracer is not None:
        channel.tracer.delivered(message, queue.name, entry.redelivered, connection.now_ms)
    connection.wait_for_room(channel)


class _RemoteGet(QueueCall):
    """basic.get from a queue on another node."""

    def __init__(
        self, channel: Channel, target: RemoteQueue, no_ack: bool, attempt: Attempt
    ) -> None:
        super().__init__(channel, target, attempt)
        self._no_ack: bool = no_ack

    def finish(self, answer: CallAnswer, now_ms: i64) -> None:
        _answer(self.channel, self.target, answer.entry, self._no_ack, answer.first)

    def abandon(self, answer: CallAnswer | None, now_ms: i64) -> None:
        entry = None if answer is None else answer.entry
        if entry is not None and not self._no_ack:
            self.target.give_back([entry], True)
