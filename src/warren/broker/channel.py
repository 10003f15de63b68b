"""A channel: publishes in, deliveries and confirms out.

This module holds what happens once per message: putting a publish together from its frames, routing it, delivering,
settling, confirming. Everything else a channel does is in `channel_methods.py` (basic.*, confirm, tx, flow) and
`topology.py` (exchange.*, queue.*).

The hot path decodes nothing twice. Clients publish the same exchange and routing key, and the same properties, over
and over: when the raw bytes of a publish method equal those of the one before and no binding has changed, the route is
the one before; when a property block equals the one before, so does all that is known of it.

A channel may be suspended while something it asked for becomes durable (a declared queue, a commit), or because an alarm
holds its publishes; frames that arrive meanwhile are kept in order (`backlog.py`).
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from warren.broker.backlog import Backlog
from warren.broker.body import Body
from warren.broker.channel_side import ChannelSide
from warren.broker.client_side import ClientSide
from warren.broker.disk_flow import NOTHING, PERSISTENT, TRANSIENT
from warren.broker.publish_properties import (
    PublishProperties,
    check_user_id,
    inspect_properties,
    with_reply_to,
)
from warren.broker.room import ChannelRoom
from warren.broker.transaction import TransactionPublish, TransactionSettle, routed_names
from warren.broker.unacked import UnackedWindow
from warren.broker.vhost import Vhost
from warren.queues.arguments import NO_LIMIT
from warren.queues.entry import Consumer, Entry, QueueEnd
from warren.queues.queue import Queue
from warren.routing.exchange import Exchange
from warren.store.message import Message, QueueLog
from warren.wire.errors import (
    ACCESS_REFUSED,
    FRAME_ERROR,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    UNEXPECTED_FRAME,
    ChannelException,
    ConnectionException,
    octets_text,
)
from warren.wire.frames import FRAME_HEADER, FRAME_METHOD
from warren.wire.methods import (
    BASIC_ACK,
    BASIC_PUBLISH,
    BasicCancel,
    BasicPublish,
    BasicReturn,
    decode_method,
)
from warren.wire.primitives import unsigned64

# What the next frame must be.
EXPECT_METHOD: Final = 0
EXPECT_HEADER: Final = 1
EXPECT_BODY: Final = 2

REPLY_TO: Final = b"amq.rabbitmq.reply-to"


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
    ) -> None:
        super().__init__(queue, tag, no_ack, exclusive, priority, prefetch_count)
        self.channel: Channel = channel
        # The tag as it stands in every basic.deliver.
        self.tag_field: bytes = bytes([len(tag)]) + tag

    def can_take(self) -> bool:
        if self.prefetch_count != 0 and self.unacked_count >= self.prefetch_count and not self.no_ack:
            return False
        return self.channel.can_take()

    def wait_for_room(self) -> None:
        if self.prefetch_count == 0 or self.unacked_count < self.prefetch_count or self.no_ack:
            self.channel.wait_for_turn(self)

    def deliver(self, entry: Entry) -> None:
        self.channel.deliver(self, entry)

    def on_queue_deleted(self) -> None:
        self.channel.on_consumer_cancelled(self)


class Channel(ChannelSide):
    """One channel of a connection; `number` is its channel number."""

    def __init__(self, connection: ClientSide, number: i64, vhost: Vhost) -> None:
        super().__init__(number)
        self.connection: ClientSide = connection
        self.vhost: Vhost = vhost
        # Set when we sent channel.close: everything is ignored until the peer answers.
        self.is_closing: bool = False
        self.is_closed: bool = False
        self.consumers: dict[bytes, ChannelConsumer] = {}
        self.unacked: UnackedWindow = UnackedWindow()
        self.next_delivery_tag: i64 = 1
        # basic.qos: default of later consumers, and the channel-wide limit.
        self.consumer_prefetch: i64 = 0
        self.room: ChannelRoom = ChannelRoom()
        # True while this channel deletes a queue: basic.cancel to its own consumers follows the reply.
        self.is_deleting: bool = False
        self._cancelled_tags: list[bytes] = []
        self.is_confirming: bool = False
        self.confirmed_upto: i64 = 0
        self.last_queue: bytes = b""
        self.current_method: i64 = 0
        # Direct reply-to: tag of the pseudo consumer, and the name that replies are sent to.
        self.reply_tag_field: bytes = b""
        self.reply_name: bytes = b""
        self.backlog: Backlog = Backlog()
        # The content that is arriving.
        self._stage: i64 = EXPECT_METHOD
        self._body_size: i64 = 0
        # Its body, once a frame has come that did not complete it.
        self._body: Body | None = None
        # The publish method it belongs to; kept for comparison with the next one.
        self._publish_raw: bytes = b""
        self._route_version: i64 = -1
        self._exchange: Exchange = vhost.router.default_exchange
        self._routing_key: bytes = b""
        self._address: bytes = b""
        self._mandatory: bool = False
        self._queues: list[Queue] = []
        self._queue_names: list[bytes] | None = None
        self._any_durable: bool = False
        self._is_reply: bool = False
        self._route_is_fixed: bool = False
        self._properties: PublishProperties = PublishProperties(b"\x00\x00")
        vhost.host.channels[self] = None

    # -- frames --------------------------------------------------------------------------------------------------

    def on_frame(self, kind: i64, data: bytes, start: i64, end: i64) -> None:
        """Take a frame of this channel; its payload is `data[start:end]`."""
        if self.is_suspended:
            self.backlog.add(self.connection, self, kind, data[start:end])
            return
        if kind == FRAME_METHOD:
            self._on_method(data, start, end)
        elif kind == FRAME_HEADER:
            self._on_header(data, start, end)
        else:
            self._on_body(data, start, end)

    def _on_method(self, data: bytes, start: i64, end: i64) -> None:
        if self._stage == EXPECT_HEADER:
            raise self._unexpected(
                "expected content header for class 60, got non content header frame instead"
            )
        if self._stage == EXPECT_BODY:
            raise self._unexpected("expected content body, got non content body frame instead")
        method_id: i64 = i64(read_i32_be(data, start)) if end - start >= 4 else 0
        self.current_method = method_id
        if method_id == BASIC_PUBLISH:
            raw = data[start:end]
            if self.connection.throttle.is_alarmed and not self._may_end_transaction():
                self.backlog.hold(self.connection, self, raw)
                return
            if raw != self._publish_raw or self._route_version != self.vhost.router.version:
                self._resolve_publish(raw)
            self._stage = EXPECT_HEADER
        elif method_id == BASIC_ACK and end - start == 13:
            self.ack(read_i64_be(data, start + 4), (data[start + 12] & 1) != 0)
        else:
            self.connection.channel_method(self.number, decode_method(data, start, end))

    def _may_end_transaction(self) -> bool:
        return self.transaction is not None and self.connection.node.alarms.lets_pass(self.transaction)

    def _on_header(self, data: bytes, start: i64, end: i64) -> None:
        if self._stage != EXPECT_HEADER:
            if self._stage == EXPECT_BODY:
                raise self._unexpected("expected content body, got non content body frame instead")
            raise ConnectionException(UNEXPECTED_FRAME, "expected method frame, got non method frame instead")
        if end - start < 12:
            octets = octets_text(data[start:end])
            raise ConnectionException(FRAME_ERROR, f"type 2, all octets = {octets}: unknown_frame")
        class_id: i64 = i64(read_i16_be(data, start)) & 0xFFFF
        if class_id != 60:
            raise self._unexpected(
                f"expected content header for class 60, got one for class {class_id} instead"
            )
        if read_i16_be(data, start + 2) != 0:
            raise self._unexpected(
                "expected content header for class 60, got non content header frame instead"
            )
        raw = data[start + 12 : end]
        if raw != self._properties.source:
            self._properties = inspect_properties(raw)
        size = read_i64_be(data, start + 4)
        limit = self.connection.max_message_size
        if size < 0 or size > limit:
            shown = unsigned64(size)
            raise ChannelException(
                PRECONDITION_FAILED, f"message size {shown} is larger than configured max size {limit}"
            )
        self._body_size = size
        if size == 0:
            self._stage = EXPECT_METHOD
            self._on_publish(b"")
        else:
            self._stage = EXPECT_BODY

    def _on_body(self, data: bytes, start: i64, end: i64) -> None:
        if self._stage != EXPECT_BODY:
            if self._stage == EXPECT_HEADER:
                raise self._unexpected(
                    "expected content header for class 60, got non content header frame instead"
                )
            raise ConnectionException(UNEXPECTED_FRAME, "expected method frame, got non method frame instead")
        piece = data[start:end]
        body = self._body
        received = end - start if body is None else body.received_bytes + (end - start)
        if received > self._body_size:
            raise ConnectionException(
                FRAME_ERROR, f"content body of {received} bytes, {self._body_size} announced", 60, 40
            )
        if received < self._body_size:
            if body is None:
                body = Body(self._body_size)
                self._body = body
            body.add(piece)
            connection = self.connection
            connection.throttle.arrive(connection, self.number, body, end - start, self.transaction)
            return
        if body is not None:
            piece = body.finish(piece)
            self._drop_body()
        self._stage = EXPECT_METHOD
        self._on_publish(piece)

    def _drop_body(self) -> None:
        body = self._body
        if body is not None:
            self._body = None
            self.connection.throttle.forget(self.connection, self.number, body)

    def _unexpected(self, text: str) -> ConnectionException:
        return ConnectionException(UNEXPECTED_FRAME, text, 60, 40)

    # -- suspension ----------------------------------------------------------------------------------------------

    def resume(self, now_ms: i64) -> None:
        self.is_suspended = False
        self.connection.now_ms = now_ms
        self.backlog.release()
        if not self.is_closed:
            self.connection.replay(self.number)

    # -- publish -------------------------------------------------------------------------------------------------

    def _resolve_publish(self, raw: bytes) -> None:
        method = decode_method(raw, 0, len(raw))
        assert isinstance(method, BasicPublish)
        # Forget the last publish first: a refused one must not be taken for it later.
        self._publish_raw = b""
        if method.immediate:
            raise ConnectionException(NOT_IMPLEMENTED, "immediate=true", 60, 40)
        exchange = self.vhost.router.exchanges.get(method.exchange)
        if exchange is None:
            raise ChannelException(NOT_FOUND, f"no {self.vhost.exchange_text(method.exchange)}", 60, 40)
        if exchange.internal:
            text = self.vhost.exchange_text(method.exchange)
            raise ChannelException(ACCESS_REFUSED, f"cannot publish to internal {text}", 60, 40)
        self._exchange = exchange
        self._routing_key = method.routing_key
        self._mandatory = method.mandatory
        self._address = raw[6:-1]
        self._is_reply = not method.exchange and method.routing_key.startswith(REPLY_TO + b".")
        router = self.vhost.router
        self._route_is_fixed = not router.depends_on_headers(exchange)
        if self._route_is_fixed:
            self._set_queues(self.vhost.route(exchange, [method.routing_key], b""))
        self._route_version = router.version
        self._publish_raw = raw

    def _set_queues(self, queues: list[Queue]) -> None:
        self._queues = queues
        self._queue_names = None
        self._any_durable = False
        for queue in queues:
            if queue.durable:
                self._any_durable = True

    def _on_publish(self, body: bytes) -> None:
        properties = self._properties
        connection = self.connection
        now_ms = connection.now_ms
        raw = properties.raw
        if len(properties.reply_to) > 0 or properties.user_id is not None:
            raw = self._check_identity(properties)
        if not self._route_is_fixed or len(properties.extra_routing_keys) > 0:
            self._route_by_headers(properties)
        if self._is_reply:
            self._publish_reply(raw, body)
            return
        message = Message(self._address, raw, body, properties.persistent, now_ms)
        if self.transaction is not None:
            names = self._routed_names(properties)
            publish = TransactionPublish(message, names, properties.expiration_ms, self._mandatory)
            connection.throttle.add_uncommitted(connection, self.transaction.add(publish))
            return
        queues = self._queues
        if len(queues) == 0:
            if self._mandatory:
                self.return_message(message)
        else:
            for queue in queues:
                queue.publish(message, properties.expiration_ms, now_ms)
        is_for_disk = properties.persistent and self._any_durable
        if is_for_disk:
            connection.published = PERSISTENT
        elif connection.published == NOTHING:
            connection.published = TRANSIENT
        if self.is_confirming:
            self.publish_seq += 1
            if is_for_disk:
                self.vhost.journal.confirm_with_batch(self)
            connection.confirm_later(self)

    def _routed_names(self, properties: PublishProperties) -> list[bytes]:
        # Publishes with the same route share the list.
        if self._queue_names is None:
            is_default = self._exchange is self.vhost.router.default_exchange
            self._queue_names = routed_names(
                is_default, [self._routing_key, *properties.extra_routing_keys], self._queues
            )
        return self._queue_names

    def is_ahead(self) -> bool:
        """Does this channel publish faster to a queue than its consumers, which are ready for more, are served?"""
        for queue in self._queues:  # noqa: SIM110  # compiled, a generator costs more than the loop
            if queue.is_behind(self.connection.now_ms):
                return True
        return False

    def _route_by_headers(self, properties: PublishProperties) -> None:
        keys = [self._routing_key]
        keys.extend(properties.extra_routing_keys)
        self._set_queues(self.vhost.route(self._exchange, keys, properties.headers))
        # The cached route is not the one of the bare routing key.
        self._route_version = -1

    def _check_identity(self, properties: PublishProperties) -> bytes:
        check_user_id(properties, self.connection.user_name, self.connection.is_impersonator)
        if properties.reply_to == REPLY_TO:
            if not self.reply_name:
                raise ChannelException(PRECONDITION_FAILED, "fast reply consumer does not exist", 60, 40)
            return with_reply_to(properties.raw, self.reply_name)
        return properties.raw

    def _publish_reply(self, raw: bytes, body: bytes) -> None:
        receiver = self.vhost.reply_channels.get(self._routing_key)
        if receiver is not None:
            receiver.take_reply(self._address, raw, body)
        if self._mandatory:
            # As the original does: no queue was involved, so it is returned although it was delivered (P23).
            message = Message(self._address, raw, body, False, self.connection.now_ms)
            if self.transaction is None:
                self.return_message(message)
            else:
                publish = TransactionPublish(message, [], NO_LIMIT, True)
                self.connection.throttle.add_uncommitted(self.connection, self.transaction.add(publish))
        if self.is_confirming:
            self.publish_seq += 1
            self.connection.confirm_later(self)

    def return_message(self, message: Message) -> None:
        """basic.return of an unroutable mandatory message; goes out before its confirm (P15)."""
        out = self.connection.out
        out.method(self.number, BasicReturn(312, b"NO_ROUTE", message.exchange(), message.routing_key()))
        out.content(self.number, message.properties, message.body)
        self.connection.touch()

    # -- confirms ------------------------------------------------------------------------------------------------

    def on_durable(self, upto: i64, ok: bool) -> None:
        if self.is_closed or self.is_closing or not self.is_confirming:
            return
        if not ok:
            self._send_confirm(upto, False)
        if self.batches_in_flight == 0:
            # Nothing of this channel is on its way to the disk: transient ones published since are done as well.
            self._send_confirm(self.publish_seq, True)
        elif ok:
            self._send_confirm(upto, True)

    def confirm_finished(self) -> None:
        if self.batches_in_flight == 0 and self.is_confirming and not self.is_closing:
            self._send_confirm(self.publish_seq, True)

    def _send_confirm(self, upto: i64, ok: bool) -> None:
        count = upto - self.confirmed_upto
        if count > 0:
            self.confirmed_upto = upto
            self.connection.out.confirm(self.number, upto, count > 1, ok)
            self.connection.touch()

    # -- deliver -------------------------------------------------------------------------------------------------

    def can_take(self) -> bool:
        """May a consumer of this channel be given a message now?"""
        return self.room.is_open() and self.connection.can_take()

    def wait_for_turn(self, consumer: ChannelConsumer) -> None:
        """`consumer` was refused for want of room that it shares with others."""
        if not self.room.wait(consumer):
            self.connection.rotation.add(consumer)

    def deliver(self, consumer: ChannelConsumer, entry: Entry) -> None:
        """basic.deliver."""
        tag = self.next_delivery_tag
        self.next_delivery_tag = tag + 1
        self.room.turn_left -= 1
        if not consumer.no_ack:
            entry.delivery_tag = tag
            self.unacked.append(entry)
            self.room.unacked_count += 1
        connection = self.connection
        message = entry.message
        out = connection.out
        out.deliver(self.number, consumer.tag_field, tag, entry.redelivered, message.address)
        out.content(self.number, message.properties, message.body)
        connection.touch()

    def take_reply(self, address: bytes, properties: bytes, body: bytes) -> None:
        if not self.connection.has_room_for_reply(len(body)):
            return
        # The delivery tag is repeated, not advanced (9.6).
        out = self.connection.out
        out.deliver(self.number, self.reply_tag_field, self.next_delivery_tag, False, address)
        out.content(self.number, properties, body)
        self.connection.touch()

    # -- settle --------------------------------------------------------------------------------------------------

    def ack(self, tag: i64, multiple: bool) -> None:
        """basic.ack."""
        if not multiple and self.transaction is None:
            entry = self.unacked.take(tag)
            if entry is None:
                raise self._unknown_tag(tag)
            queue = entry.queue
            self._settle(entry, queue)
            self._serve(queue)
            return
        self.settle_entries(self._take_entries(tag, multiple), False, True)

    def reject(self, tag: i64, multiple: bool, requeue: bool) -> None:
        """basic.reject and basic.nack."""
        self.settle_entries(self._take_entries(tag, multiple), requeue, False)

    def settle_entries(self, entries: list[Entry], requeue: bool, is_ack: bool) -> None:
        """Settle entries that have left the window; in a transaction, at its commit."""
        if self.transaction is not None:
            self.transaction.settles.append(TransactionSettle(entries, requeue and not is_ack))
            return
        if requeue:
            self.requeue(entries)
            return
        touched: list[QueueEnd] = []
        for entry in entries:
            queue = entry.queue
            self._settle(entry, queue)
            if len(touched) == 0 or touched[-1] is not queue:
                touched.append(queue)
        for queue in touched:
            self._serve(queue)

    def requeue(self, entries: list[Entry]) -> None:
        """Return entries to their queues, each queue's together so that they keep their order."""
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
        # Consumers that wait for room go first: one that rejects the same message for ever must not starve them.
        self.room.close_while_waited_for()
        for returned in by_queue.values():
            returned[0].queue.requeue(returned, now_ms)
        self.room.serve(self.connection.now_ms)

    def _settle(self, entry: Entry, queue: QueueEnd) -> None:
        consumer = entry.consumer
        if consumer is not None:
            self.room.take_back(consumer)
        queue.settle(entry, self.connection.now_ms)

    def _serve(self, queue: QueueEnd) -> None:
        if self.room.prefetch != 0:
            self.room.serve(self.connection.now_ms)
        else:
            queue.deliver_ready(self.connection.now_ms)

    def _take_entries(self, tag: i64, multiple: bool) -> list[Entry]:
        if multiple:
            entries = self.unacked.take_upto(tag)
            if entries is None:
                raise self._unknown_tag(tag)
            return entries
        entry = self.unacked.take(tag)
        if entry is None:
            raise self._unknown_tag(tag)
        return [entry]

    def _unknown_tag(self, tag: i64) -> ChannelException:
        return ChannelException(PRECONDITION_FAILED, f"unknown delivery tag {unsigned64(tag)}")

    def collect_out(self, log: QueueLog, first: i64, end: i64, found: list[Entry]) -> None:
        self.unacked.collect(log, first, end, found)
        if self.transaction is not None:
            self.transaction.collect(log, first, end, found)

    # -- end -----------------------------------------------------------------------------------------------------

    def on_consumer_cancelled(self, consumer: ChannelConsumer) -> None:
        """A queue with a consumer of this channel was deleted (9.2)."""
        self.consumers.pop(consumer.tag, None)
        if self.connection.wants_cancel_notify and not self.is_closing:
            self._cancelled_tags.append(consumer.tag)
            if not self.is_deleting:
                self.send_cancels()

    def send_cancels(self) -> None:
        """basic.cancel for consumers whose queue was deleted."""
        for tag in self._cancelled_tags:
            self.connection.out.method(self.number, BasicCancel(tag, True))
            self.connection.touch()
        self._cancelled_tags.clear()

    def close(self) -> None:
        """Release everything the channel holds: consumers, unacked messages, an open transaction (5.1).

        Unacked messages are back in their queues when this returns.
        """
        if self.is_closed:
            return
        self.is_closed = True
        self.is_confirming = False
        self.vhost.host.channels.pop(self, None)
        self.vhost.reply_channels.pop(self.reply_name, None)
        self.backlog.drop(self.connection)
        self._drop_body()
        self._queues = []
        entries = self.unacked.take_all()
        if self.transaction is not None:
            self.connection.throttle.end_transaction(self.connection, self.transaction.size_bytes)
            entries.extend(self.transaction.take_entries())
            self.transaction = None
        consumers = list(self.consumers.values())
        self.consumers.clear()
        now_ms = self.connection.now_ms
        idle: list[bytes] = []
        for consumer in consumers:
            if consumer.queue.remove_consumer(consumer, now_ms):
                idle.append(consumer.queue.name)
        self.requeue(entries)
        for name in idle:
            self.vhost.delete_queue(self.vhost.queues[name], now_ms)

    def drop_content(self) -> None:
        """A channel error struck: whatever content was arriving is swallowed."""
        self._stage = EXPECT_METHOD
        self._drop_body()
        self._publish_raw = b""
