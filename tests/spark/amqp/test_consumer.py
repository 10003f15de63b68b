"""Tests the thread that fills a spool with a broker whose answers come at the worst moment."""

from collections import deque
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from warrenmq.spark.amqp import consumer as amqp_consumer
from warrenmq.spark.amqp.connection import Delivery, Event
from warrenmq.spark.amqp.consumer import SpoolConsumer
from warrenmq.spark.amqp.options import parse_amqp_source
from warrenmq.spark.amqp.spool import Spool
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    BasicConsumeOk,
    BasicDeliver,
    BasicQosOk,
    QueueDeclare,
    QueueDeclareOk,
)


class Connection:
    """A connection whose last delivery arrives together with an answer "no messages are left".

    The broker first counts two messages. One of them has gone elsewhere since. The other one
    arrives with the answer that says for the second time that none is left.
    """

    def __init__(self) -> None:
        self.looks = 0
        self.events: deque[Event] = deque()
        self.sent: list[Method] = []

    @property
    def has_events(self) -> bool:
        return bool(self.events)

    def call(self, method: Method, expected: type[Method]) -> Method:
        if isinstance(method, QueueDeclare):
            self.looks += 1
            if self.looks == 3:
                deliver = BasicDeliver(b"tag", 1, False, b"", b"q")
                self.events.append(Delivery(deliver, b"\x00\x00", b"late"))
            return QueueDeclareOk(b"q", 2 if self.looks == 1 else 0, 0)
        return BasicConsumeOk(b"tag") if expected is BasicConsumeOk else BasicQosOk()

    def next_event(self) -> Event | None:
        return self.events.popleft() if self.events else None

    def wait(self, timeout_s: float) -> bool:
        return bool(self.events)

    def send_method(self, method: Method) -> None:
        self.sent.append(method)

    def close(self) -> None:
        pass

    def drop(self) -> None:
        pass


def test_a_queue_is_not_empty_while_its_last_message_is_on_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run to the end takes a message that was delivered before the answer, however late."""
    connection = Connection()
    monkeypatch.setattr(amqp_consumer, "AmqpConnection", lambda *arguments: connection)
    monkeypatch.setattr(amqp_consumer, "_EMPTY_PAUSE_S", 0.0)
    options = parse_amqp_source({"uri": "amqp://h", "queue": "q", "spoolDir": str(tmp_path)})
    spool = Spool(tmp_path, "/", "q", options.spool_bytes_max)
    consumer = SpoolConsumer(options, spool, drains=True)
    consumer.run()
    assert consumer.error is None
    assert (spool.tail, consumer.target, len(connection.sent)) == (1, 1, 1)
    spool.close()
