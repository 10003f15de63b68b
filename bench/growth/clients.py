"""Clients that wait until the broker has done what they asked, so that its CPU time counts."""

from typing import Final

from bench.brokers import Broker
from bench.measure import MeasureError
from bench.scenario import ANSWER_TIMEOUT_S
from warrenmq.perf.client import CHANNEL, Client
from warrenmq.perf.options import parse_uri
from warrenmq.perf.publisher import PublishFrames
from warrenmq.perf.topology import basic_properties
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    ConfirmSelect,
    QueueDeclare,
)

# Requests that are sent before the first answer is awaited.
PIPELINE: Final = 500
# Bytes and messages that a publisher sends before it waits for confirms.
WINDOW_BYTES: Final = 1 << 20
WINDOW: Final = 1000


def connected(broker: Broker) -> Client:
    """A client with an open channel."""
    return Client(parse_uri(broker.uri), "bench growth", ANSWER_TIMEOUT_S)


def request_all(client: Client, methods: list[Method]) -> None:
    """Send requests, PIPELINE at a time; PerfError when the broker closes the channel."""
    for at in range(0, len(methods), PIPELINE):
        some = methods[at : at + PIPELINE]
        for method in some[:-1]:
            client.send(CHANNEL, method)
        answers = [client.request(some[-1])]
        answers += [client.receive() for _ in some[1:]]
        if len({type(answer) for answer in answers}) != 1:
            raise MeasureError(f"a request was answered by {answers[-1]!r}")


def publish_octets(key: bytes, size: int, exchange: bytes = b"", persistent: bool = False) -> bytes:
    """The frames of a publish of `size` bytes."""
    properties = basic_properties(persistent)
    return PublishFrames(exchange, key, properties, False, size, 131072).stamped(1)


class Publisher:
    """Publishes with confirms, and returns when the last one has come."""

    def __init__(self, broker: Broker) -> None:
        self.client = connected(broker)
        self.client.request(ConfirmSelect())
        self._published = 0
        # All delivery tags up to this one are confirmed, and these above it.
        self._upto = 0
        self._singles: set[int] = set()

    def publish(self, publishes: list[bytes]) -> None:
        """Publish each of these publishes once."""
        window = max(1, min(WINDOW, WINDOW_BYTES // max(1, len(publishes[0]))))
        for at in range(0, len(publishes), window):
            some = publishes[at : at + window]
            self.client.sock.sendall(b"".join(some))
            self._published += len(some)
            while self._upto + len(self._singles) < self._published:
                self._take_confirm()

    def _take_confirm(self) -> None:
        reply = self.client.receive()
        if not isinstance(reply, BasicAck):
            raise MeasureError(f"expected a confirm, got {reply!r}")
        if not reply.multiple:
            self._singles.add(int(reply.delivery_tag))
        elif reply.delivery_tag > self._upto:
            self._upto = int(reply.delivery_tag)
            self._singles = {tag for tag in self._singles if tag > self._upto}

    def close(self) -> None:
        """Close the connection."""
        self.client.close()


class Holder:
    """A consumer without prefetch limit that acks when and in which order it is told."""

    def __init__(self, broker: Broker, queue: bytes) -> None:
        self.client = connected(broker)
        self._queue = queue
        self.client.request(QueueDeclare(queue=queue))
        if not isinstance(self.client.request(BasicConsume(queue=queue)), BasicConsumeOk):
            raise MeasureError("basic.consume is not answered")

    def take(self, count: int) -> list[int]:
        """The delivery tags of the next `count` messages."""
        tags: list[int] = []
        while len(tags) < count:
            method = self.client.receive()
            if not isinstance(method, BasicDeliver):
                raise MeasureError(f"expected a delivery, got {method!r}")
            tags.append(int(method.delivery_tag))
        return tags

    def ack(self, tags: list[int]) -> None:
        """Ack messages one by one; returns when the broker has handled it."""
        for tag in tags:
            self.client.send(CHANNEL, BasicAck(delivery_tag=tag))
        self.client.request(QueueDeclare(queue=self._queue, passive=True))

    def close(self) -> None:
        """Close the connection."""
        self.client.close()
