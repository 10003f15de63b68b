"""A channel: publishes in, deliveries and confirms out.

This module handles the steps that happen once per message: putting a publish together from its
frames, routing it, delivering, settling, confirming. All other methods of a channel are in
`methods.py` (basic.*, confirm, tx, flow) and `topology.py` (exchange.*, queue.*).

The hot path decodes nothing twice: `publish_route.py` reuses the route of the last publish, and
`content/assembly.py` reuses the decoded properties while the property block stays the same.

A channel is suspended while it waits until something is durable (a declared queue, a commit), and
while an alarm defers its publishes; `backlog.py` keeps the frames that arrive meanwhile, in order.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from warrenmq.broker.channel.backlog import Backlog
from warrenmq.broker.channel.channel_host import ChannelHost
from warrenmq.broker.channel.confirms import PublishConfirms
from warrenmq.broker.channel.direct_reply import REPLY_TO, DirectReply, reply_node
from warrenmq.broker.channel.publish_route import PublishRoute
from warrenmq.broker.channel.settling import SettlingChannel
from warrenmq.broker.channel.tracing import ChannelTracer
from warrenmq.broker.channel.unacked import unknown_tag
from warrenmq.broker.content.assembly import ContentAssembly, unexpected_frame
from warrenmq.broker.content.properties import (
    PublishProperties,
    check_user_id,
    with_reply_to,
)
from warrenmq.broker.counters import MessageCounters
from warrenmq.broker.dead_letters.death_headers import with_delivery_count
from warrenmq.broker.flow.disk_flow import NOTHING, PERSISTENT, TRANSIENT
from warrenmq.broker.flow.publish_turns import COSTLY_STEPS
from warrenmq.broker.flow.room import ChannelRoom
from warrenmq.broker.transaction import TransactionPublish, TransactionSettle
from warrenmq.broker.vhost.arrival import arrive, confirm_parties
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.queues.entry import Consumer, Entry, QueueEnd
from warrenmq.queues.leave_reason import ACKED, REJECTED
from warrenmq.queues.settings import NO_LIMIT
from warrenmq.queues.turn import TurnShares
from warrenmq.store.model.message import Message
from warrenmq.wire.errors import (
    PRECONDITION_FAILED,
    ChannelException,
)
from warrenmq.wire.field_table import decode_table
from warrenmq.wire.frames import FRAME_BODY, FRAME_HEADER, FRAME_METHOD
from warrenmq.wire.methods import (
    BASIC_ACK,
    BASIC_PUBLISH,
    BasicCancel,
    BasicReturn,
    decode_method,
)

# The argument of a consumer that is cancelled when its queue gets another master.
FAILOVER_ARGUMENT: Final = "x-cancel-on-ha-failover"


class CancelNotices:
    """Tags of consumers of deleted queues, to send basic.cancel for (protocol 9.2).

    `is_deferred`: the channel deletes a queue itself, so the notices wait until its reply is sent.
    """

    def __init__(self) -> None:
        self.is_deferred: bool = False
        self._tags: list[bytes] = []

    def add(self, tag: bytes) -> None:
        """Add the consumer `tag`, whose queue was deleted."""
        self._tags.append(tag)

    def take(self) -> list[bytes]:
        """Remove and return all tags that still need a notice, in order."""
        tags = self._tags
        self._tags = []
        return tags


class ChannelConsumer(Consumer):
    """A consumer on a channel."""

    def __init__(
        self,
        channel: Channel,
        queue: QueueEnd,
        tag: bytes,
        no_ack: bool,
        exclusive: bool,
        priority: i64,
        prefetch_count: i64,
        arguments: bytes,
    ) -> None:
        super().__init__(queue, tag, no_ack, exclusive, priority, prefetch_count)
        self.channel: Channel = channel
        # The body of the table with the arguments of basic.consume.
        self.arguments: bytes = arguments
        # The tag as a short string, as every basic.deliver carries it.
        self.tag_field: bytes = bytes([len(tag)]) + tag

    def can_take(self) -> bool:
        if (
            self.prefetch_count != 0
            and self.unacked_count >= self.prefetch_count
            and not self.no_ack
        ):
            return False
        return self.channel.can_take()

    def wait_for_room(self) -> None:
        if self.prefetch_count == 0 or self.unacked_count < self.prefetch_count or self.no_ack:
            self.channel.wait_for_turn(self)

    def deliver(self, entry: Entry) -> None:
        self.channel.deliver(self, entry)

    def shares_room(self) -> bool:
        return self.channel.room.prefetch != 0

    def reserve(self, count: i64) -> i64:
        return self.channel.room.reserve(count)

    def release(self, count: i64) -> None:
        self.channel.room.reserved_count -= count

    def serve_others(self, now_ms: i64) -> None:
        self.channel.room.serve(now_ms)

    def wait_in_turn(self) -> None:
        if self.prefetch_count == 0 or self.unacked_count < self.prefetch_count or self.no_ack:
            self.channel.room.rotation.add(self)

    def on_queue_deleted(self) -> None:
        self.channel.on_consumer_cancelled(self)

    def on_queue_moved(self) -> bool:
        if self.arguments and self.channel.connection.client.wants_cancel_notices:
            notice = decode_table(self.arguments).get(FAILOVER_ARGUMENT)
            if notice is not None and notice.value is True:
                self.is_cancelled = True
                self.channel.on_consumer_cancelled(self)
                return False
        return True


class Channel(SettlingChannel):
    """One channel of a connection; `number` is its channel number."""

    def __init__(self, connection: ChannelHost, number: i64, vhost: Vhost) -> None:
        super().__init__(number)
        self.connection: ChannelHost = connection
        self.vhost: Vhost = vhost
        self.counters: MessageCounters = MessageCounters()
        # True after the broker sent channel.close: frames are ignored until the peer answers.
        self.is_closing: bool = False
        self.consumers: dict[bytes, ChannelConsumer] = {}
        self.next_delivery_tag: i64 = 1
        self.room: ChannelRoom = ChannelRoom()
        self.cancels: CancelNotices = CancelNotices()
        # None while the channel is not in confirm mode.
        self.confirms: PublishConfirms | None = None
        self.last_queue: bytes = b""
        self.current_method: i64 = 0
        # None while the channel consumes no direct replies.
        self.reply: DirectReply | None = None
        self.backlog: Backlog = Backlog()
        # None while the vhost is not traced.
        self.tracer: ChannelTracer | None = None
        self._content: ContentAssembly = ContentAssembly()
        self._route: PublishRoute = PublishRoute(vhost, connection.client)
        vhost.host.channels[self] = None
        connection.client.account.channel_count += 1
        churn = connection.node.counters.churn
        churn.channels_opened += 1
        # Distinguishes the channel from all others since the node's start.
        self.id: i64 = churn.channels_opened
        self.set_tracing(vhost.definition.is_tracing)
        self.announce("channel.created", self)

    def announce(self, event: str, subject: object) -> None:
        """Tell the listener, if there is one, of an event that the channel's user causes."""
        self.vhost.announce(event, subject, self.connection.client.user_name)

    def set_tracing(self, is_on: bool) -> None:
        connection = self.connection
        self.tracer = None
        if is_on:
            self.tracer = ChannelTracer(
                self.vhost,
                connection.node.settings.node_name.encode(),
                connection.full_name().encode(),
                self.number,
                connection.client.user_name,
            )

    # -- frames ------------------------------------------------------------------------------------

    def on_frame(self, kind: i64, data: bytes, start: i64, end: i64) -> None:
        """Handle a frame of this channel, or keep it while suspended; payload `data[start:end]`."""
        if self.is_suspended:
            self.backlog.add(self.connection, self, kind, data[start:end])
            return
        if kind != self._content.expected:
            raise unexpected_frame(self._content.expected)
        if kind == FRAME_METHOD:
            self._on_method(data, start, end)
        elif kind == FRAME_HEADER:
            if self._content.take_header(data, start, end, self.connection.max_message_size):
                self._content.expected = FRAME_METHOD
                self._on_publish(b"")
            else:
                self._content.expected = FRAME_BODY
        else:
            self._on_body(data[start:end])

    def _on_method(self, data: bytes, start: i64, end: i64) -> None:
        method_id: i64 = i64(read_i32_be(data, start)) if end - start >= 4 else 0
        self.current_method = method_id
        if method_id == BASIC_PUBLISH:
            raw = data[start:end]
            if self.connection.throttle.is_alarmed and not self._may_end_transaction():
                self.backlog.defer(self.connection, self, raw)
                return
            if not self._route.is_current(raw):
                self._route.resolve(raw)
            self._content.expected = FRAME_HEADER
        elif method_id == BASIC_ACK and end - start == 13:
            self.ack(read_i64_be(data, start + 4), (data[start + 12] & 1) != 0)
        else:
            self.room.serve_acked(self.connection.now_ms)
            self.connection.channel_method(self.number, decode_method(data, start, end))

    def _may_end_transaction(self) -> bool:
        return self.transaction is not None and self.connection.node.alarms.lets_pass(
            self.transaction
        )

    def _on_body(self, piece: bytes) -> None:
        content = self._content
        body = content.take_body(piece)
        if body is None:
            part = content.body
            assert part is not None
            connection = self.connection
            connection.throttle.arrive(connection, self.number, part, len(piece), self.transaction)
            return
        if content.body is not None:
            self._drop_body()
        self._content.expected = FRAME_METHOD
        self._on_publish(body)

    def _drop_body(self) -> None:
        part = self._content.body
        if part is not None:
            self._content.body = None
            self.connection.throttle.forget(self.connection, self.number, part)

    # -- suspension --------------------------------------------------------------------------------

    def resume(self, now_ms: i64) -> None:
        self.is_suspended = False
        self.connection.now_ms = now_ms
        self.backlog.release()
        if not self.is_closed:
            self.connection.replay(self.number)

    # -- publish -----------------------------------------------------------------------------------

    def _on_publish(self, body: bytes) -> None:
        properties = self._content.properties
        route = self._route
        route.renew()
        connection = self.connection
        now_ms = connection.now_ms
        raw = properties.raw
        if not (properties.is_plain and route.is_plain):
            raw = self._check_identity(properties)
            if not route.is_fixed or len(properties.extra_routing_keys) > 0:
                route.route_by_headers(properties)
            if route.is_reply:
                self._publish_reply(raw, body)
                return
        counters = self.counters
        counters.received += 1
        steps = route.match_steps + len(route.queues)
        if steps >= COSTLY_STEPS:
            route.match_steps = 0
            connection.node.publish_turns.spend(self, steps)
        message = Message(route.address, raw, body, properties.persistent, now_ms)
        if not route.is_plain and self.tracer is not None:
            keys = [route.routing_key, *properties.extra_routing_keys]
            self.tracer.published(message, keys, route.queues, now_ms)
        if self.transaction is not None:
            names = route.names(properties)
            publish = TransactionPublish(
                message, names, properties.expiration_ms, properties.priority, route.mandatory
            )
            if len(route.waits) > 0:
                publish.waits = route.waits
                publish.headers = properties.headers
            connection.throttle.add_uncommitted(connection, self.transaction.add(publish))
            return
        exchange = route.exchange
        exchange.publish_in += 1
        queues = route.queues
        if len(route.waits) > 0:
            self.vhost.delayed.keep_all(message, route.waits, properties.headers, False, now_ms)
        is_taken = True
        if len(queues) == 0:
            self.count_unroutable(route.mandatory, len(route.waits) > 0)
            if route.mandatory:
                self.return_message(message)
        else:
            counters.routed += len(queues)
            exchange.publish_out += len(queues)
            is_taken = arrive(
                queues, message, properties.expiration_ms, properties.priority, now_ms, False
            )
        has_remote = route.has_remote
        if has_remote:
            connection.node.remote_nodes.flow.on_publish(connection, queues)
        is_for_disk = properties.persistent and route.is_durable
        if is_for_disk:
            connection.published = PERSISTENT
        elif connection.published == NOTHING:
            connection.published = TRANSIENT
        confirms = self.confirms
        if confirms is not None:
            counters.received_confirm += 1
            if not is_taken:
                confirms.refuse()
            elif has_remote:
                self._confirm_everywhere(confirms, properties.persistent)
            else:
                confirms.add(self.vhost.journal.batch, is_for_disk)
            connection.confirm_later(confirms)

    def _confirm_everywhere(self, confirms: PublishConfirms, is_persistent: bool) -> None:
        """Let the last publish wait for all nodes that must have it."""
        route = self._route
        batch = self.vhost.journal.batch
        parties = confirm_parties(route.queues, batch, is_persistent)
        if is_persistent and len(route.waits) > 0 and batch not in parties:
            parties.append(batch)
        if len(parties) == 1:
            confirms.add(parties[0], True)
        else:
            confirms.add_waiting(parties)

    def has_published(self) -> bool:
        """True once the client has published on the channel."""
        return len(self._route.address) > 0

    def is_ahead(self) -> bool:
        """True while a queue of the last route piles up although its consumers are being served."""
        for queue in self._route.queues:  # noqa: SIM110  # compiled, a generator costs more
            if queue.is_behind(self.connection.now_ms):
                return True
        return False

    def _check_identity(self, properties: PublishProperties) -> bytes:
        client = self.connection.client
        check_user_id(properties, client.user_name, client.account.is_impersonator)
        if properties.reply_to == REPLY_TO:
            if self.reply is None:
                raise ChannelException(
                    PRECONDITION_FAILED, "fast reply consumer does not exist", 60, 40
                )
            return with_reply_to(properties.raw, self.reply.name)
        return properties.raw

    def _publish_reply(self, raw: bytes, body: bytes) -> None:
        self.counters.received += 1
        route = self._route
        route.exchange.publish_in += 1
        receiver = self.vhost.reply_channels.get(route.routing_key)
        if receiver is not None:
            receiver.take_reply(route.address, raw, body)
        else:
            home = self.connection.node.remote_nodes.by_name.get(reply_node(route.routing_key))
            if home is not None and home.session is not None:
                reply = Message(route.address, raw, body, False, self.connection.now_ms)
                home.session.reply(self.vhost.name, route.routing_key, reply)
        if route.mandatory:
            # RabbitMQ returns a mandatory direct reply, as no queue was involved, although it
            # was delivered (P23).
            message = Message(route.address, raw, body, False, self.connection.now_ms)
            if self.transaction is None:
                self.return_message(message)
            else:
                publish = TransactionPublish(message, [], NO_LIMIT, 0, True)
                self.connection.throttle.add_uncommitted(
                    self.connection, self.transaction.add(publish)
                )
        if self.confirms is not None:
            self.counters.received_confirm += 1
            self.confirms.add(self.vhost.journal.batch, False)
            self.connection.confirm_later(self.confirms)

    def count_unroutable(self, is_mandatory: bool, waits: bool) -> None:
        """Count a publish that reached no queue, unless it `waits` at a delayed exchange."""
        if is_mandatory:
            self.counters.returned += 1
        elif not waits:
            self.counters.dropped += 1

    def return_message(self, message: Message) -> None:
        """Send basic.return for an unroutable mandatory message, before its confirm (P15)."""
        out = self.connection.out
        out.method(
            self.number, BasicReturn(312, b"NO_ROUTE", message.exchange(), message.routing_key())
        )
        out.content(self.number, message.properties, message.body)
        self.connection.touch()

    # -- deliver -----------------------------------------------------------------------------------

    def can_take(self) -> bool:
        """True while the channel and its connection have room for a delivery."""
        return self.room.is_open() and self.connection.can_take()

    def wait_for_turn(self, consumer: ChannelConsumer) -> None:
        """Let `consumer` wait for room that it shares with others, in its channel or connection."""
        if not self.room.wait(consumer):
            self.connection.rotation.add(consumer)

    def deliver(self, consumer: ChannelConsumer, entry: Entry) -> None:
        """Send `entry` to `consumer` with basic.deliver; it is unacked then, unless no-ack."""
        tag = self.next_delivery_tag
        self.next_delivery_tag = tag + 1
        room = self.room
        room.turn_left -= 1
        if consumer.no_ack:
            self.counters.consumed_auto_ack += 1
        else:
            self.counters.consumed_manual_ack += 1
            entry.delivery_tag = tag
            self.unacked.append(entry)
            room.unacked_count += 1
        connection = self.connection
        message = entry.message
        out = connection.out
        out.deliver(self.number, consumer.tag_field, tag, entry.redelivered, message.address)
        if entry.redelivered:
            self.counters.redelivered += 1
            out.content(self.number, self.counted_properties(entry), message.body)
        else:
            out.content(self.number, message.properties, message.body)
        if not connection.is_dirty:
            connection.touch()
        if self.tracer is not None:
            self.tracer.delivered(message, entry.queue.name, entry.redelivered, connection.now_ms)

    def counted_properties(self, entry: Entry) -> bytes:
        """The properties of a redelivered message, with its count if the queue counts returns."""
        count = entry.queue.return_count(entry)
        raw = entry.message.properties
        return with_delivery_count(raw, count) if count > 0 else raw

    def take_reply(self, address: bytes, properties: bytes, body: bytes) -> None:
        reply = self.reply
        if reply is None or not self.connection.has_room_for_reply(len(body)):
            return
        # Direct replies repeat the next delivery tag without advancing it (P23).
        out = self.connection.out
        out.deliver(self.number, reply.tag_field, self.next_delivery_tag, False, address)
        out.content(self.number, properties, body)
        self.connection.touch()

    # -- settle ------------------------------------------------------------------------------------

    def ack(self, tag: i64, multiple: bool) -> None:
        """Handle basic.ack."""
        if multiple:
            self.settle_upto(tag, False, ACKED)
        elif self.transaction is None:
            entry = self.unacked.take(tag)
            if entry is None:
                raise unknown_tag(tag)
            self.counters.acknowledged += 1
            queue = entry.queue
            now_ms = self.connection.now_ms
            self._settle(entry, queue, ACKED, now_ms)
            room = self.room
            if room.prefetch != 0:
                # Queues that share the channel's room take turns: each ack is one turn.
                room.serve(now_ms)
            elif room.acked_queue is not queue:
                room.serve_acked(now_ms)
                room.acked_queue = queue
                self.connection.serve_later(room)
        else:
            self.settle_entries(self.unacked.take_named(tag, False), False, ACKED)

    def reject(self, tag: i64, multiple: bool, requeue: bool) -> None:
        """Handle basic.reject and basic.nack."""
        if multiple:
            self.settle_upto(tag, requeue, REJECTED)
        else:
            self.settle_entries(self.unacked.take_named(tag, False), requeue, REJECTED)

    def settle_entries(self, entries: list[Entry], requeue: bool, reason: i64) -> None:
        if self.transaction is not None:
            self.transaction.settles.append(TransactionSettle(entries, requeue, reason))
            return
        if requeue:
            self.requeue(entries)
            return
        if reason == ACKED:
            self.counters.acknowledged += len(entries)
        now_ms = self.connection.now_ms
        touched: list[QueueEnd] = []
        last: QueueEnd | None = None
        for entry in entries:
            queue = entry.queue
            self._settle(entry, queue, reason, now_ms)
            if queue is not last:
                touched.append(queue)
                last = queue
        for queue in touched:
            self.room.serve_queue(queue, now_ms)

    def requeue(self, entries: list[Entry]) -> None:
        """Return entries to their queues, grouped by queue, so that they keep their order."""
        now_ms = self.connection.now_ms
        by_queue: dict[int, list[Entry]] = {}
        for entry in entries:
            consumer = entry.consumer
            if consumer is not None:
                self.room.take_back(consumer)
            returned = by_queue.get(id(entry.queue))
            if returned is None:
                by_queue[id(entry.queue)] = [entry]
            else:
                returned.append(entry)
        # Consumers that wait for room are served first: a consumer that rejects the same message
        # for ever must not starve them.
        self.room.close_while_waited_for()
        for returned in by_queue.values():
            returned[0].queue.requeue(returned, now_ms)
        self.room.serve(self.connection.now_ms)

    def turns(self) -> TurnShares:
        return self.vhost.host

    def set_time(self, now_ms: i64) -> None:
        self.connection.now_ms = now_ms
        self.connection.touch()

    def _settle(self, entry: Entry, queue: QueueEnd, reason: i64, now_ms: i64) -> None:
        consumer = entry.consumer
        if consumer is not None:
            self.room.take_back(consumer)
        queue.leave(entry, reason, now_ms)

    def check(self) -> None:
        self.unacked.check(self.next_delivery_tag)
        entries = self.unacked.all()
        if self.transaction is not None:
            for settle in self.transaction.settles:
                entries.extend(settle.entries)
        consumers = [entry.consumer for entry in entries if entry.consumer is not None]
        assert self.room.unacked_count == len(consumers)
        for consumer in self.consumers.values():
            assert consumer.unacked_count == consumers.count(consumer)
        if self.confirms is not None:
            self.confirms.check()

    # -- end ---------------------------------------------------------------------------------------

    def on_consumer_cancelled(self, consumer: ChannelConsumer) -> None:
        """Forget `consumer` of a deleted queue; notify a client that wants it (protocol 9.2)."""
        self.consumers.pop(consumer.tag, None)
        self.announce("consumer.deleted", consumer)
        if self.connection.client.wants_cancel_notices and not self.is_closing:
            self.cancels.add(consumer.tag)
            if not self.cancels.is_deferred:
                self.send_cancels()

    def send_cancels(self) -> None:
        """Send basic.cancel for each consumer whose queue was deleted."""
        for tag in self.cancels.take():
            self.connection.out.method(self.number, BasicCancel(tag, True))
            self.connection.touch()

    def stop_consuming(self) -> list[bytes]:
        """Remove all consumers, because the channel is about to be closed.

        Returns the names of the queues that have to be deleted after the close, because they lost
        their last consumer.
        """
        idle: list[bytes] = []
        consumers = list(self.consumers.values())
        self.consumers.clear()
        for consumer in consumers:
            self.announce("consumer.deleted", consumer)
            if consumer.queue.remove_consumer(consumer, self.connection.now_ms):
                idle.append(consumer.queue.name)
        return idle

    def close(self) -> None:
        """Release the channel's consumers, unacked messages and transaction (protocol 5.1).

        When `close` returns, the unacked messages are back in their queues, or so many that they
        follow in later turns. A queue that is deleted with its last consumer takes none back, and
        so drops none for its limits.
        """
        if self.is_closed:
            return
        self.is_closed = True
        self.room.acked_queue = None
        self.announce("channel.closed", self)
        self.connection.client.account.channel_count -= 1
        self.connection.node.counters.churn.channels_closed += 1
        self._hand_over_counters()
        if self.confirms is not None:
            self.confirms.end()
        if self.reply is not None:
            self.vhost.reply_channels.pop(self.reply.name, None)
        self.backlog.drop(self.connection)
        self._drop_body()
        self._route.release()
        if self.transaction is not None:
            self.connection.throttle.end_transaction(self.connection, self.transaction.size_bytes)
            self.counters.rolled_back += len(self.transaction.publishes)
            self.unacked.restore(self.transaction.take_entries())
            self.transaction = None
        for name in self.stop_consuming():
            self.vhost.delete_queue(self.vhost.queues[name], self.connection.now_ms)
        self.requeue_all(self._forget_unacked)

    def _hand_over_counters(self) -> None:
        """Add the channel's counters to those of the node, which count for it from now on."""
        closed = self.connection.node.counters.closed_channels
        closed.add(self.counters)
        self.counters = closed

    def _forget_unacked(self) -> None:
        """Leave the list of those that have unacked messages."""
        self.vhost.host.channels.pop(self, None)

    def drop_content(self) -> None:
        """Discard the content that is arriving, after a channel error."""
        self._content.expected = FRAME_METHOD
        self._drop_body()
        self._route.forget()
