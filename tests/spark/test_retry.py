"""Tests which failures are retried, and which warnings a wait for the broker logs."""

import logging
import threading

import pytest

from warrenmq.admin.client.client import AdminRefusedError, NodeUnreachableError, OtherBrokerError
from warrenmq.spark import retry
from warrenmq.spark.amqp.connection import AmqpLostError, AmqpRefusedError
from warrenmq.spark.retry import BrokerAwayError, Retry, SourceError, is_transient
from warrenmq.vocabulary.error_codes import ACCESS_REFUSED, STORAGE_FAILED, UNROUTABLE

AWAY = NodeUnreachableError("no connection to mars:5672: refused")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (AWAY, True),
        (AmqpLostError("mars:5672 closed the connection without a reason"), True),
        (AdminRefusedError(STORAGE_FAILED, "the disk is full"), True),
        (BrokerAwayError("the rows could not be staged"), True),
        (OtherBrokerError("mars:5672 is an AMQP broker of another kind"), False),
        (AmqpRefusedError(404, "NOT_FOUND - no exchange 'missing'"), False),
        (AdminRefusedError(ACCESS_REFUSED, "login of user 'guest' was refused"), False),
        (AdminRefusedError(UNROUTABLE, "1 message would get to no queue"), False),
        (SourceError("a row cannot be written as a message"), False),
        (ValueError("no URI"), False),
    ],
)
def test_what_may_pass(error: Exception, expected: bool) -> None:
    assert is_transient(error) is expected
    pauses: list[float] = []
    waiting = Retry("mars:5672", 100, "retryTimeoutMs", pauses.append)
    with waiting:
        if expected:
            waiting.failed(error)
        else:
            with pytest.raises(SourceError):
                waiting.failed(error)
    assert len(pauses) == expected


def test_pauses_grow_until_something_succeeds() -> None:
    pauses: list[float] = []
    with Retry("mars:5672", 100, "retryTimeoutMs", pauses.append) as waiting:
        for _ in range(6):
            waiting.failed(AWAY)
        waiting.succeeded()
        waiting.failed(AWAY)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 0.1]


def test_no_time_to_wait_is_one_attempt() -> None:
    waiting = Retry("mars:5672", 0, "--retry-timeout")
    with pytest.raises(
        SourceError, match=r"given up after 0 s \(--retry-timeout\): no connection to mars"
    ):
        waiting.failed(AWAY)


class _Said(logging.Handler):
    """Records log lines; `came` is set with the first line."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.came = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self.came.set()


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> _Said:
    handler = _Said()
    monkeypatch.setattr(retry._log, "handlers", [handler])
    return handler


def test_a_connection_that_hangs_is_announced(said: _Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that hangs is logged even before it fails."""
    monkeypatch.setattr(retry, "ANNOUNCE_S", 0.01)
    with Retry("mars:5672", 100, "retryTimeoutMs") as waiting:
        waiting.attempt()
        assert said.came.wait(60)
    assert said.lines == ["waiting for the broker at mars:5672, 0 s"]


def test_trouble_is_announced_once_with_its_reason(
    said: _Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "ANNOUNCE_S", 0.0)
    with Retry("mars:5672", 100, "retryTimeoutMs", lambda seconds: None) as waiting:
        for _ in range(3):
            waiting.failed(AWAY)
        assert said.lines == [
            "waiting for the broker at mars:5672, 0 s: no connection to mars:5672: refused"
        ]
        # The next outage is another one.
        waiting.succeeded()
        waiting.failed(AWAY)
        assert len(said.lines) == 2


def test_nothing_is_announced_of_a_broker_that_answers(
    said: _Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that the broker answers late, such as a long poll, is no outage."""
    started: list[threading.Timer] = []
    monkeypatch.setattr(threading.Timer, "start", lambda timer: started.append(timer))
    with Retry("mars:5672", 100, "retryTimeoutMs") as waiting:
        waiting.attempt()
        waiting.connected()
    assert len(started) == 1 and started[0].finished.is_set()
