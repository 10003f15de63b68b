"""Publishes of the clients of a history: messages, their queues, and their confirms."""

from __future__ import annotations

from simulator.models.messages import (
    Content,
    Copy,
    QueueModel,
    Violation,
    body_of,
)
from simulator.models.oracle import Oracle
from simulator.models.topology import encode_arguments
from simulator.operations import (
    EXCHANGES,
    FANOUT,
    HEADERS,
    ROUTING_KEYS,
    Operation,
    exchange_name,
)
from simulator.sessions.alarms import AlarmSessions
from simulator.sessions.states import (
    CONFIRM,
    TRANSACTION,
    ChannelModel,
    Publish,
    TransactionPublish,
    Unconfirmed,
)
from simulator.sessions.topology import EXCHANGE
from simulator.simulated.client import content_frames, method_frame
from simulator.simulated.node import SimulatedNode
from warrenmq.wire.methods import BasicPublish
from warrenmq.wire.properties import Properties


class PublishSessions:
    """The clients of one node as publishers; `first_number` is the number of the next message."""

    def __init__(
        self,
        node: SimulatedNode,
        oracle: Oracle,
        channels: dict[int, ChannelModel],
        first_number: int,
    ) -> None:
        self.node = node
        self.oracle = oracle
        self.channels = channels
        self.next_number = first_number
        self.alarms = AlarmSessions(node, self)

    def publish(self, channel: ChannelModel, operation: Operation) -> bool:
        target, count, size = operation.number(1), operation.number(2), operation.number(3)
        is_persistent, expiration_ms = bool(operation.number(4)), operation.number(5)
        exchange, key = (EXCHANGE, b"") if target == FANOUT else (b"", b"q%d" % target)
        method = BasicPublish(exchange, key, operation.seed % 4 == 0, False)
        properties = Properties(
            delivery_mode=2 if is_persistent else 1,
            expiration=str(expiration_ms).encode() if expiration_ms else None,
        )
        self._send_messages(channel, method, [key], {}, properties, count, size, expiration_ms)
        return True

    def publish_to(self, channel: ChannelModel, operation: Operation) -> bool:
        slot = operation.number(1)
        exchange, key = exchange_name(slot), ROUTING_KEYS[operation.number(2)]
        headers = HEADERS[operation.number(3)]
        model = self.oracle.topology.exchanges.get(exchange)
        # A declared exchange may be deleted before a deferred publish is handled, which would close
        # the channel.
        if model is None or model.internal or (slot < EXCHANGES and self.alarms.defers(channel)):
            return False
        carbon_copies = headers.get("CC", [])
        assert isinstance(carbon_copies, list)
        keys = [key, *(name.encode() for name in carbon_copies)]
        method = BasicPublish(exchange, key, bool(operation.number(7)), False)
        properties = Properties(
            delivery_mode=2 if operation.number(6) else 1,
            headers=encode_arguments(tuple(headers.items())) if headers else None,
        )
        count, size = operation.number(4), operation.number(5)
        self._send_messages(channel, method, keys, headers, properties, count, size, 0)
        return True

    def _send_messages(
        self,
        channel: ChannelModel,
        method: BasicPublish,
        keys: list[bytes],
        headers: dict[str, object],
        properties: Properties,
        count: int,
        size: int,
        expiration_ms: int,
    ) -> None:
        """Publish `count` messages with bodies of `size` bytes."""
        raw = properties.encode()
        frame = method_frame(channel.number, method)
        for _ in range(count):
            number = self.take_number()
            body = body_of(number, size)
            content = Content(number, raw, body, properties.delivery_mode == 2)
            publish = Publish(content, method, keys, headers, expiration_ms)
            if self.alarms.defers(channel):
                self.alarms.defer(channel, publish)
            else:
                self.take_effect(channel, publish, {})
            channel.client.send(frame + content_frames(channel.number, raw, body), self.node.now_ms)

    def take_effect(self, channel: ChannelModel, publish: Publish, before: dict[int, int]) -> None:
        """Expect `publish`, which the node handles, in its queues; `before`: see `enqueue`."""
        method, content = publish.method, publish.content
        queues = self.oracle.topology.route(method.exchange, publish.keys, publish.headers)
        copies: list[Copy] = []
        if channel.mode == TRANSACTION:
            # The default exchange routes to queue names, which need not exist before the commit.
            names = (
                [queue.name.encode() for queue in queues]
                if method.exchange
                else list(dict.fromkeys(publish.keys))
            )
            channel.publishes.append(
                TransactionPublish(content, names, publish.expiration_ms, method.mandatory)
            )
        else:
            copies = self.enqueue(content, queues, publish.expiration_ms, before)
            if method.mandatory and not queues:
                channel.returns.append((channel.publish_count + 1, content))
        if channel.mode == CONFIRM:
            channel.publish_count += 1
            channel.unconfirmed[channel.publish_count] = Unconfirmed(
                copies, self.node.failed_batches
            )

    def take_number(self) -> int:
        self.next_number += 1
        return self.next_number - 1

    def enqueue(
        self,
        content: Content,
        queues: list[QueueModel],
        expiration_ms: int,
        before: dict[int, int],
    ) -> list[Copy]:
        """Add a publish to its queues in the oracle.

        `before` counts the messages that the node handles in one go, by queue id: the seq id of a
        message is the engine's next seq id plus the messages before it.
        """
        copies: list[Copy] = []
        for queue in queues:
            if queue.is_deleting:
                continue
            engine = self.node.vhost.queues.get(queue.name.encode())
            if engine is None:
                raise Violation("topology", f"queue {queue.name} is not there")
            times = [time for time in (expiration_ms, queue.ttl_ms) if time]
            expiry_ms = self.node.now_ms + min(times) if times else 0
            seq = engine.next_seq + before.get(queue.id, 0)
            before[queue.id] = before.get(queue.id, 0) + 1
            copies.append(self.oracle.enqueue(content, queue, seq, expiry_ms))
        return copies
