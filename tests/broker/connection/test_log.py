"""The log of connections has the words of RabbitMQ 3.10.8; the lines are copied from its log."""

import logging

import pytest

from tests.support.brokers.amqp_frames import PROTOCOL_HEADER, table
from tests.support.brokers.amqp_peer import Peer
from tests.support.brokers.fixtures import Amqp
from warrenmq.wire.methods import (
    BasicQos,
    ConnectionOpen,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTuneOk,
    QueueDeclare,
)


class Logged:
    """A broker in memory, whose peers are all named `test`, and its log of connections."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        self.amqp = Amqp("")
        self.caplog = caplog

    def lines(self) -> list[tuple[str, str]]:
        """Return (level, text) of the log records since the last call."""
        found = [
            (record.levelname.lower(), record.getMessage())
            for record in self.caplog.records
            if record.name == "warren.connection"
        ]
        self.caplog.clear()
        return found

    def log_in(self, user: bytes = b"guest", name: str = "") -> Peer:
        peer = self.amqp.raw()
        peer.send(PROTOCOL_HEADER)
        peer.expect(ConnectionStart)
        properties = table(connection_name=name) if name else b""
        peer.method(0, ConnectionStartOk(properties, b"PLAIN", b"\0" + user + b"\0guest", b"en_US"))
        return peer


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Logged:
    return Logged(caplog)


def test_a_life_in_good_order(logged: Logged) -> None:
    peer = logged.log_in(name="my app")
    peer.method(0, ConnectionTuneOk(100, 131072, 0))
    peer.method(0, ConnectionOpen(b"/"))
    assert logged.lines() == [
        ("info", "accepting AMQP connection <0.1.0> (test)"),
        ("info", "connection <0.1.0> (test) has a client-provided name: my app"),
        (
            "info",
            "connection <0.1.0> (test - my app): user 'guest' authenticated and granted access to vhost '/'",
        ),
    ]
    peer.close()
    assert logged.lines() == [
        ("info", "closing AMQP connection <0.1.0> (test - my app, vhost: '/', user: 'guest')")
    ]


def test_a_client_that_hangs_up(logged: Logged) -> None:
    logged.amqp.connect().drop()
    logged.amqp.raw().send(PROTOCOL_HEADER)
    logged.amqp.peers[-1].drop()
    assert [line for line in logged.lines() if "closing" in line[1]] == [
        (
            "warning",
            (
                "closing AMQP connection <0.1.0> (test, vhost: '/', user: 'guest'):\n"
                "client unexpectedly closed TCP connection"
            ),
        ),
        (
            "warning",
            "closing AMQP connection <0.2.0> (test):\nclient unexpectedly closed TCP connection",
        ),
    ]


def test_a_channel_error_names_method_vhost_and_user(logged: Logged) -> None:
    channel = logged.amqp.channel()
    logged.lines()
    channel.publish(b"k", exchange=b"nope")
    channel.send(QueueDeclare(b"missing", True))
    other = channel.peer.channel()
    other.send(QueueDeclare(b"missing", True))
    where = "Channel error on connection <0.1.0> (test, vhost: '/', user: 'guest'), channel"
    assert logged.lines() == [
        (
            "error",
            f"{where} 1:\noperation basic.publish caused a channel exception not_found: no exchange 'nope' in vhost '/'",
        ),
        (
            "error",
            f"{where} 2:\noperation queue.declare caused a channel exception not_found: no queue 'missing' in vhost '/'",
        ),
    ]


def test_a_connection_error_names_them_too(logged: Logged) -> None:
    channel = logged.amqp.channel()
    logged.lines()
    channel.send(BasicQos(1, 1, False))
    channel.peer.drop()
    assert logged.lines() == [
        (
            "error",
            (
                "Error on AMQP connection <0.1.0> (test, vhost: '/', user: 'guest', state: running):\n"
                "operation basic.qos caused a connection exception not_implemented: prefetch_size!=0 (1)"
            ),
        ),
        ("info", "closing AMQP connection <0.1.0> (test, vhost: '/', user: 'guest')"),
    ]


def test_logins_that_fail(logged: Logged) -> None:
    logged.log_in(b"bad").drop()
    peer = logged.log_in()
    peer.method(0, ConnectionTuneOk(100, 131072, 0))
    peer.method(0, ConnectionOpen(b"nonesuch"))
    peer.drop()
    assert [line for line in logged.lines() if "accepting" not in line[1]] == [
        (
            "error",
            (
                "Error on AMQP connection <0.1.0> (test, state: starting):\n"
                "PLAIN login refused: user 'bad' - invalid credentials"
            ),
        ),
        ("info", "closing AMQP connection <0.1.0> (test)"),
        (
            "error",
            (
                "Error on AMQP connection <0.2.0> (test, user: 'guest', state: opening):\n"
                "vhost nonesuch not found"
            ),
        ),
        ("info", "closing AMQP connection <0.2.0> (test, vhost: 'none', user: 'guest')"),
    ]


def test_a_client_cannot_write_lines_of_its_own(logged: Logged) -> None:
    logged.log_in(b"bad\nuser", name="app\r\n2026-01-01 [info] all is well").drop()
    texts = [text for _, text in logged.lines()]
    assert (
        "(test) has a client-provided name: app\\x0d\\x0a2026-01-01 [info] all is well" in texts[1]
    )
    assert texts[2].endswith(":\nPLAIN login refused: user 'bad\\x0auser' - invalid credentials")


def test_a_dead_peer_is_told_of_once(logged: Logged) -> None:
    logged.amqp.connect(heartbeat=10)
    logged.lines()
    logged.amqp.pause(60_000)
    logged.amqp.close()
    assert logged.lines() == [
        (
            "error",
            (
                "closing AMQP connection <0.1.0> (test, vhost: '/', user: 'guest'):\n"
                "missed heartbeats from client, timeout: 10s"
            ),
        )
    ]
