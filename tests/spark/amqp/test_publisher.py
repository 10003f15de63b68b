"""Tests the publisher for other brokers with scripted answers that are rare with a real broker."""

from collections import deque
from collections.abc import Sequence

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from warrenmq.spark import retry
from warrenmq.spark.amqp.connection import AmqpLostError, Event
from warrenmq.spark.amqp.options import parse_amqp_sink
from warrenmq.spark.amqp.publisher import ConfirmedPublisher
from warrenmq.spark.retry import SourceError
from warrenmq.spark.sinks.columns import MessageMaker
from warrenmq.wire.methods import BasicAck, BasicNack

OPTIONS = parse_amqp_sink(
    {
        "uri": "amqp://h",
        "exchange": "",
        "routingKey": "q",
        "retryTimeoutMs": "2000",
        "confirmTimeoutMs": "1",
    }
)
Answer = Event | AmqpLostError


class Connection:
    """A connection that answers each write with the next events of `script`."""

    frame_max = 131072
    is_blocked = False

    def __init__(self, script: Sequence[Sequence[Answer]]) -> None:
        self.script = deque(script)
        self.answers: deque[Answer] = deque()
        self.writes: list[bytes] = []

    def send(self, octets: bytes) -> None:
        self.writes.append(octets)
        self.answers.extend(self.script.popleft())

    def wait(self, timeout_s: float) -> bool:
        return bool(self.answers)

    def next_event(self) -> Event | None:
        if not self.answers:
            return None
        answer = self.answers.popleft()
        if isinstance(answer, AmqpLostError):
            raise answer
        return answer

    def drop(self) -> None:
        pass


def published(
    monkeypatch: pytest.MonkeyPatch, connections: Sequence[Connection], count: int
) -> None:
    """Publish `count` messages over `connections`, and wait until all are confirmed."""
    left = deque(connections)
    monkeypatch.setattr(retry, "PAUSE_FIRST_S", 0.01)
    monkeypatch.setattr(ConfirmedPublisher, "_connect", lambda _: left.popleft())
    publisher = ConfirmedPublisher(OPTIONS)
    rows = pa.RecordBatch.from_pydict({"body": [f"m{number}" for number in range(count)]})
    publisher.publish(MessageMaker("", "q").messages(rows))
    publisher.finish()
    assert not left


def test_what_is_refused_right_before_the_connection_breaks_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker that goes down nacks the messages that it cannot store, then closes."""
    first = Connection([[BasicAck(1), BasicNack(2, True), AmqpLostError("it closed")]])
    second = Connection([[BasicAck(1)]])
    published(monkeypatch, [first, second], 2)
    assert [b"m0" in write for write in second.writes] == [False]
    assert b"m1" in second.writes[0]


def test_what_was_refused_before_is_in_front_of_what_was_not_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = Connection([[BasicNack(1), AmqpLostError("it closed")]])
    second = Connection([[BasicAck(3, True)]])
    published(monkeypatch, [first, second], 3)
    places = [second.writes[0].index(b"m%d" % number) for number in range(3)]
    assert places == sorted(places)


def test_a_broker_that_confirms_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        SourceError, match=r"h:5672 has confirmed nothing for 0\.001 s \(confirmTimeoutMs\)"
    ):
        published(monkeypatch, [Connection([[BasicAck(1)]])], 2)
