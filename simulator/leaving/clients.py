"""The clients of one node in a history of messages that leave queues by rule.

One client publishes in confirm mode. The others consume, get, ack, reject and return messages, each
over a connection of its own with one channel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from simulator.leaving.histories import (
    CONSUMERS,
    DELAYED_EXCHANGE,
    FANOUT_EXCHANGE,
    FANOUT_QUEUES,
    QueueRules,
    Step,
)
from simulator.leaving.model import MessageModel, Stay
from simulator.leaving.oracle import Found, LeavingOracle, stay_of
from simulator.models.messages import Violation, body_of
from simulator.simulated.client import SimulatedClient, content_frames, method_frame
from simulator.simulated.node import SimulatedNode
from warrenmq.queues.queue import Queue
from warrenmq.wire.field_table import encode_table, fields_from_python
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicQos,
    ChannelClose,
    ConfirmSelect,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
)
from warrenmq.wire.properties import Properties

CHANNEL: Final = 1


def table(values: dict[str, object]) -> bytes:
    """The body of a field table."""
    return encode_table(fields_from_python(values)) if values else b""


def seqs_of(queue: Queue) -> int:
    """How many seq ids the levels of a queue have given away."""
    return sum(int(backing.ledger.next_seq) for backing in queue.backings())


class Publisher:
    """The client that declares everything, and publishes; `first` numbers its first message."""

    def __init__(self, node: SimulatedNode, oracle: LeavingOracle, first: int) -> None:
        self.node = node
        self.oracle = oracle
        self.next_number = first
        self._client = SimulatedClient(node.broker, self._receive, node.now_ms)
        self._client.open_channel(CHANNEL, node.now_ms)
        # Messages without an answer by publish number, each with the failed batches before it.
        self.unconfirmed: dict[int, tuple[int, int]] = {}
        self._count = 0
        self._send(ConfirmSelect(False))

    def _send(self, method: Method) -> None:
        self._client.send(method_frame(CHANNEL, method), self.node.now_ms)

    def declare(self, rules: tuple[QueueRules, ...]) -> None:
        """Declare the queues and exchanges of the history."""
        arguments = table({"x-delayed-type": "direct"})
        self._send(
            ExchangeDeclare(
                DELAYED_EXCHANGE, b"x-delayed-message", False, True, False, False, False, arguments
            )
        )
        for index, each in enumerate(rules):
            name = b"q%d" % index
            self._send(
                QueueDeclare(name, False, True, False, False, False, table(each.arguments()))
            )
            self._send(QueueBind(name, DELAYED_EXCHANGE, name, False, b""))
        for index in FANOUT_QUEUES:
            self._send(QueueBind(b"q%d" % index, FANOUT_EXCHANGE, b"", False, b""))

    def publish(self, step: Step) -> None:
        """Publish messages to one queue, some by the delayed exchange."""
        queue, count, size = step.number(0), step.number(1), step.number(2)
        is_persistent, expiration_ms = bool(step.number(3)), step.number(4)
        priority, delay_ms = step.number(5), step.number(6)
        headers: dict[str, object] = {"x-delay": delay_ms} if delay_ms else {}
        properties = Properties(
            delivery_mode=2 if is_persistent else 1,
            priority=priority,
            expiration=str(expiration_ms).encode() if expiration_ms else None,
            headers=table(headers) if headers else None,
        ).encode()
        method = BasicPublish(DELAYED_EXCHANGE if delay_ms else b"", b"q%d" % queue, False, False)
        for _ in range(count):
            number, self.next_number = self.next_number, self.next_number + 1
            body = body_of(number, size)
            self.oracle.published(
                MessageModel(
                    number,
                    queue,
                    body,
                    is_persistent,
                    expiration_ms,
                    priority,
                    self.node.now_ms,
                    delay_ms,
                )
            )
            self._count += 1
            self.unconfirmed[self._count] = (number, self.node.failed_batches)
            frames = method_frame(CHANNEL, method) + content_frames(CHANNEL, properties, body)
            target = self.node.vhost.queues[b"q%d" % queue]
            before = seqs_of(target)
            self._client.send(frames, self.node.now_ms)
            self.oracle.messages[number].has_seq = seqs_of(target) > before

    def _receive(self, _channel: int, method: Method, _properties: bytes, _body: bytes) -> None:
        if isinstance(method, BasicAck | BasicNack):
            first = min(self.unconfirmed, default=0) if method.multiple else method.delivery_tag
            for tag in range(first, method.delivery_tag + 1):
                if tag not in self.unconfirmed:
                    # With `multiple`, refused messages in between have their answer already.
                    continue
                number, failed = self.unconfirmed.pop(tag)
                has_failed = self.node.failed_batches != failed
                self.oracle.confirmed(number, isinstance(method, BasicAck), has_failed)
        elif isinstance(method, ChannelClose):
            raise Violation("closed", f"{method.reply_code} {method.reply_text.decode()}")


class ConsumingClient:
    """One client that consumes and gets; at most one consumer at a time."""

    def __init__(self, node: SimulatedNode, oracle: LeavingOracle, clients: ConsumingClients):
        self.node = node
        self.oracle = oracle
        self._clients = clients
        self._client = SimulatedClient(node.broker, self._receive, node.now_ms)
        self._client.open_channel(CHANNEL, node.now_ms)
        # Unacked messages by delivery tag.
        self.unacked: dict[int, Stay] = {}
        # Queue of the consumer, or -1.
        self.queue = -1
        self._no_ack = False
        self._tags = 0
        # Gets without an answer: queue, without acknowledgement, step.
        self._gets: list[tuple[int, bool, int]] = []

    def _send(self, method: Method) -> None:
        self._client.send(method_frame(CHANNEL, method), self.node.now_ms)

    def consume(self, queue: int, prefetch: int, no_ack: bool) -> None:
        """Begin to consume, unless the client does or waits for a get."""
        if self.queue >= 0 or self._gets:
            return
        self.queue, self._no_ack = queue, no_ack
        self._tags += 1
        self._send(BasicQos(0, prefetch, False))
        self._clients.waiting[queue].append(self)
        tag = b"c%d" % self._tags
        self._send(BasicConsume(b"q%d" % queue, tag, False, no_ack, False, False, b""))

    def cancel(self) -> None:
        """End consuming; messages that the client has stay with it."""
        if self.queue < 0:
            return
        self._clients.waiting[self.queue].remove(self)
        self._send(BasicCancel(b"c%d" % self._tags, False))
        self.queue = -1

    def get(self, queue: int, no_ack: bool) -> None:
        """Ask for one message; a get that waits for the disk holds the client's channel."""
        every = self.oracle.book.ever(queue)
        if self.queue >= 0 or self._gets or any(each.is_single_active for each in every):
            return
        self._gets.append((queue, no_ack, self.oracle.step))
        self._send(BasicGet(b"q%d" % queue, no_ack))

    def settle(self, place: int, is_ack: bool, flag: bool) -> None:
        """Ack or reject a message; `flag`: multiple for an ack, requeue for a reject."""
        if not self.unacked or self._gets:
            return
        tag = sorted(self.unacked)[place % len(self.unacked)]
        tags = [each for each in self.unacked if each <= tag] if is_ack and flag else [tag]
        for each in tags:
            stay = self.unacked.pop(each)
            if is_ack:
                self.oracle.acked(stay)
            elif flag:
                self.oracle.returned(stay)
            else:
                self.oracle.rejected(stay)
        method = BasicAck(tag, flag) if is_ack else BasicNack(tag, False, flag)
        self._send(method)

    def drop(self) -> None:
        """Lose the connection; the client's messages go back to their queues."""
        if self.queue >= 0:
            self._clients.waiting[self.queue].remove(self)
        for stay in self.unacked.values():
            self.oracle.returned(stay)
        self._client.engine.shell = None
        self.node.broker.disconnect(self._client.engine, self.node.now_ms)

    def _receive(self, _channel: int, method: Method, properties: bytes, body: bytes) -> None:
        if isinstance(method, BasicDeliver):
            self._check_active()
            no_ack = self._no_ack
            queue = self.queue
        elif isinstance(method, BasicGetOk):
            queue, no_ack, step = self._gets.pop()
            self._check_order(queue, properties, body, step)
        elif isinstance(method, BasicGetEmpty):
            self._gets.pop()
            return
        elif isinstance(method, ChannelClose):
            raise Violation("closed", f"{method.reply_code} {method.reply_text.decode()}")
        else:
            return
        stay = stay_of(queue, properties, body)
        self.oracle.delivered(stay, body, method.redelivered, self.node.now_ms)
        if no_ack:
            self.oracle.acked(stay)
        else:
            self.unacked[method.delivery_tag] = stay

    def _check_active(self) -> None:
        is_single = any(each.is_single_active for each in self.oracle.book.ever(self.queue))
        if is_single and self._clients.waiting[self.queue][0] is not self:
            raise Violation("active", f"a waiting consumer of q{self.queue} got a message")

    def _check_order(self, queue: int, properties: bytes, body: bytes, step: int) -> None:
        if not self._clients.waiting[queue]:
            stay = stay_of(queue, properties, body)
            if stay.number in self.oracle.messages:
                self.oracle.check_order(stay, step)


class ConsumingClients:
    """All clients that consume, by number; they connect when they are first used."""

    def __init__(self, node: SimulatedNode, oracle: LeavingOracle, queues: int) -> None:
        self._node = node
        self._oracle = oracle
        self._clients: dict[int, ConsumingClient] = {}
        # Clients with a consumer by queue, the oldest consumer first.
        self.waiting: list[list[ConsumingClient]] = [[] for _ in range(queues)]

    def run(self, step: Step) -> None:
        """Run the step of one client."""
        assert step.number(0) < CONSUMERS
        client = self._clients.get(step.number(0))
        if client is None:
            client = ConsumingClient(self._node, self._oracle, self)
            self._clients[step.number(0)] = client
            self._node.turn()
        match step.kind:
            case "consume":
                client.consume(step.number(1), step.number(2), bool(step.number(3)))
            case "cancel":
                client.cancel()
            case "get":
                client.get(step.number(1), bool(step.number(2)))
            case "ack" | "reject":
                client.settle(step.number(1), step.kind == "ack", bool(step.number(2)))
            case "drop":
                del self._clients[step.number(0)]
                client.drop()

    def drop_all(self) -> None:
        """Disconnect everybody."""
        for number in sorted(self._clients):
            self._clients.pop(number).drop()
            self._node.turn()


def drain(node: SimulatedNode, queues: int, late: Callable[[], None]) -> list[Found]:
    """Consume every queue until it is empty; `late` is called when no more comes at this time."""
    found: list[Found] = []

    def receive(_channel: int, method: Method, properties: bytes, body: bytes) -> None:
        if isinstance(method, BasicDeliver):
            stay = stay_of(int(method.consumer_tag), properties, body)
            found.append(Found(stay, body, node.now_ms))

    client = SimulatedClient(node.broker, receive, node.now_ms)
    client.open_channel(CHANNEL, node.now_ms)
    for index in range(queues):
        consume = BasicConsume(b"q%d" % index, b"%d" % index, False, True, False, True, b"")
        client.send(method_frame(CHANNEL, consume), node.now_ms)
    node.drain()
    late()
    client.engine.shell = None
    node.broker.disconnect(client.engine, node.now_ms)
    return found
