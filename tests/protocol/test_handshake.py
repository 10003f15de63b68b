"""Opening a connection: offers, accepted answers, and refusals (protocol sections 2, 10)."""

import struct

import pytest

from tests.support.brokers.amqp_frames import (
    METHOD,
    PROTOCOL_HEADER,
    frame,
    method_frame,
    payload_of,
    table,
)
from tests.support.brokers.amqp_peer import Peer
from tests.support.brokers.fixtures import Amqp
from tests.support.skips import does_not_apply
from warrenmq.wire.field_table import decode_table, to_python
from warrenmq.wire.methods import (
    BasicQos,
    ChannelOpen,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    QueueDeclare,
)

LOGIN = b"\0guest\0guest"
LOGIN_REFUSED = (
    "Login was refused using authentication mechanism {}. For details see the broker logfile."
)
CLOSES_ON_REFUSAL = table(capabilities={"authentication_failure_close": True})


def start_ok(
    mechanism: bytes = b"PLAIN", response: bytes = LOGIN, properties: bytes = b""
) -> ConnectionStartOk:
    return ConnectionStartOk(properties, mechanism, response, b"en_US")


def greeted(amqp: Amqp) -> Peer:
    """A peer that has received connection.start."""
    peer = amqp.raw()
    peer.send(PROTOCOL_HEADER)
    peer.expect(ConnectionStart)
    return peer


def test_start_offers_what_clients_look_for(amqp: Amqp) -> None:
    peer = amqp.raw()
    peer.send(PROTOCOL_HEADER)
    start = peer.expect(ConnectionStart)
    assert (start.version_major, start.version_minor) == (0, 9)
    assert sorted(start.mechanisms.split(b" ")) == [b"AMQPLAIN", b"PLAIN"]
    assert start.locales == b"en_US"
    fields = decode_table(start.server_properties)
    assert list(fields) == [
        "capabilities", "cluster_name", "copyright", "information", "platform", "product", "version",
    ]  # fmt: skip
    properties = to_python(fields)
    assert (properties["product"], properties["version"]) == ("RabbitMQ", "3.10.8")
    capabilities = properties["capabilities"]
    assert isinstance(capabilities, dict)
    assert list(capabilities) == [
        "publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify",
        "connection.blocked", "consumer_priorities", "authentication_failure_close", "per_consumer_qos",
        "direct_reply_to",
    ]  # fmt: skip
    assert all(value is True for value in capabilities.values())


def test_tune_offers_the_documented_limits(amqp: Amqp) -> None:
    tune = amqp.raw().start()
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2047, 131072, 60)


def test_header_may_come_byte_by_byte(amqp: Amqp) -> None:
    peer = amqp.raw()
    for octet in PROTOCOL_HEADER:
        peer.send(bytes([octet]))
    peer.expect(ConnectionStart)


def test_protocol_0_9_is_served(amqp: Amqp) -> None:
    peer = amqp.raw()
    peer.send(b"AMQP\x01\x01\x00\x09")
    peer.expect(ConnectionStart)


@pytest.mark.parametrize(
    "header",
    [
        b"AMQP\x00\x00\x09\x02",
        b"AMQP\x00\x01\x00\x00",
        b"GET / HT",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"\0" * 8,
    ],
    ids=["0-9-2", "1.0", "HTTP", "TLS", "zeros"],
)
def test_wrong_header_is_answered_with_ours_and_the_end(amqp: Amqp, header: bytes) -> None:
    if amqp.memory is not None:
        does_not_apply("the protocol header belongs to the listener")
    peer = amqp.raw()
    peer.send(header)
    received = b""
    while data := peer.link.receive(peer.link.patience_s):
        received += data
    assert received == PROTOCOL_HEADER


def test_a_health_check_that_says_nothing_harms_nothing(amqp: Amqp) -> None:
    amqp.raw().drop()
    peer = amqp.raw()
    peer.send(PROTOCOL_HEADER[:5])
    peer.drop()
    amqp.channel().declare(exclusive=True)


def test_the_whole_handshake_in_one_packet(amqp: Amqp) -> None:
    peer = amqp.raw()
    channel = peer.expect_channel(1)
    peer.send(
        PROTOCOL_HEADER,
        method_frame(0, start_ok()),
        method_frame(0, ConnectionTuneOk(10, 131072, 0)),
        method_frame(0, ConnectionOpen(b"/")),
        method_frame(1, ChannelOpen()),
        method_frame(1, QueueDeclare(b"", False, False, True)),
    )
    peer.expect(ConnectionStart)
    peer.expect(ConnectionTune)
    peer.expect(ConnectionOpenOk)
    channel.reply()
    channel.reply()


def test_amqplain(amqp: Amqp) -> None:
    peer = greeted(amqp)
    peer.method(0, start_ok(b"AMQPLAIN", table(LOGIN="guest", PASSWORD="guest")))
    peer.expect(ConnectionTune)


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        (b"PLAIN", b"\0guest\0wrong"),
        (b"PLAIN", b"\0nobody\0guest"),
        (b"PLAIN", b"\0guest\0"),
        (b"AMQPLAIN", table(LOGIN="guest", PASSWORD="wrong")),
    ],
    ids=["password", "user", "blank", "amqplain"],
)
def test_login_refused(amqp: Amqp, mechanism: bytes, response: bytes) -> None:
    peer = greeted(amqp)
    peer.method(0, start_ok(mechanism, response, CLOSES_ON_REFUSAL))
    close = peer.await_close()
    assert (close.reply_code, close.failing_class_id, close.failing_method_id) == (403, 0, 0)
    assert close.reply_text.decode() == "ACCESS_REFUSED - " + LOGIN_REFUSED.format(
        mechanism.decode()
    )
    peer.finish_close()


def test_login_refused_silently_without_the_capability(amqp: Amqp) -> None:
    amqp.slow_in_real_time()
    peer = greeted(amqp)
    peer.method(0, start_ok(response=b"\0guest\0wrong"))
    assert peer.frames_until_end() == []


def test_guest_only_from_loopback(amqp: Amqp) -> None:
    amqp.engine()
    peer = amqp.raw(is_loopback=False)
    peer.send(PROTOCOL_HEADER)
    peer.expect(ConnectionStart)
    peer.method(0, start_ok(properties=CLOSES_ON_REFUSAL))
    assert peer.await_close().reply_code == 403


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        (b"EXTERNAL", b""),
        (b"NONSENSE", LOGIN),
        (b"PLAIN", b""),
        (b"PLAIN", b"guest\0guest"),
        (b"PLAIN", b"\0guest\0gu\0est"),
        (b"AMQPLAIN", table(LOGIN="guest")),
        (b"AMQPLAIN", b"\x05LOGINS\0\0\0\xff"),
    ],
)
def test_faults_of_start_ok_are_silent(amqp: Amqp, mechanism: bytes, response: bytes) -> None:
    amqp.slow_in_real_time()
    peer = greeted(amqp)
    peer.method(0, start_ok(mechanism, response, CLOSES_ON_REFUSAL))
    assert peer.frames_until_end() == []


def test_start_ok_over_4096_bytes_is_refused_by_closing(amqp: Amqp) -> None:
    amqp.slow_in_real_time()
    peer = greeted(amqp)
    peer.method(0, start_ok(properties=table(junk="x" * 5000)))
    assert peer.frames_until_end() == []


def test_start_ok_just_under_4096_bytes_is_taken(amqp: Amqp) -> None:
    peer = greeted(amqp)
    room = 4096 - len(payload_of(start_ok(properties=table(junk=""))))
    peer.method(0, start_ok(properties=table(junk="x" * room)))
    peer.expect(ConnectionTune)


@pytest.mark.parametrize(
    ("tuned", "text"),
    [
        (
            (2048, 131072),
            "negotiated channel_max = 2048 is higher than the maximum allowed value (2047)",
        ),
        (
            (0, 131072),
            "negotiated channel_max = 0 (no limit) is higher than the maximum allowed value (2047)",
        ),
        (
            (2047, 131073),
            "negotiated frame_max = 131073 is higher than the maximum allowed value (131072)",
        ),
        ((2047, 0), "negotiated frame_max = 0 is higher than the maximum allowed value (131072)"),
        (
            (2047, 4095),
            "negotiated frame_max = 4095 is lower than the minimum allowed value (4096)",
        ),
    ],
)
def test_tune_ok_out_of_bounds(amqp: Amqp, tuned: tuple[int, int], text: str) -> None:
    amqp.departure("RabbitMQ means to send this close, but does not")
    peer = amqp.raw()
    peer.start()
    peer.method(0, ConnectionTuneOk(*tuned, 0))
    peer.closed_with(530, f"failed to negotiate connection parameters: {text}", 10, 30)


@pytest.mark.parametrize(
    "tuned", [(2048, 131072), (0, 131072), (2047, 131073), (2047, 0), (2047, 4095)]
)
def test_tune_ok_out_of_bounds_ends_the_connection(amqp: Amqp, tuned: tuple[int, int]) -> None:
    amqp.slow_in_real_time()
    peer = amqp.raw()
    peer.start()
    peer.method(0, ConnectionTuneOk(*tuned, 0))
    peer.frames_until_end()


@pytest.mark.parametrize("tuned", [(1, 4096), (2047, 131072)])
def test_tune_ok_at_the_bounds(amqp: Amqp, tuned: tuple[int, int]) -> None:
    amqp.connect(*tuned).channel()


def test_missing_vhost(amqp: Amqp) -> None:
    peer = amqp.raw()
    peer.start()
    peer.method(0, ConnectionTuneOk(2047, 131072, 0))
    peer.method(0, ConnectionOpen(b"no such"))
    peer.closed_with(530, "vhost no such not found", 10, 40)


def test_vhost_without_permission(amqp: Amqp) -> None:
    amqp.engine()
    peer = amqp.raw()
    peer.start(user=b"outsider")
    peer.method(0, ConnectionTuneOk(2047, 131072, 0))
    peer.method(0, ConnectionOpen(b"/"))
    peer.closed_with(530, "access to vhost '/' refused for user 'outsider'", 10, 40)


def test_open_out_of_turn(amqp: Amqp) -> None:
    peer = amqp.connect()
    peer.method(0, ConnectionOpen(b"/"))
    peer.closed_with(504, "unexpected method in connection state running", 10, 40)


def test_method_out_of_turn_while_opening(amqp: Amqp) -> None:
    peer = amqp.raw()
    peer.start()
    peer.method(0, ConnectionTuneOk(2047, 131072, 0))
    peer.method(0, ConnectionTuneOk(2047, 131072, 0))
    peer.closed_with(504, "unexpected method in connection state opening", 10, 31)


def test_channel_method_on_channel_0(amqp: Amqp) -> None:
    peer = amqp.connect()
    peer.method(0, BasicQos(0, 1))
    peer.closed_with(504, "unexpected method in connection state running", 60, 10)


def test_channel_open_on_channel_0(amqp: Amqp) -> None:
    peer = amqp.connect()
    peer.method(0, ChannelOpen())
    peer.closed_with(504, "unexpected method in connection state running", 20, 10)


@pytest.mark.parametrize(
    "first", [ConnectionOpen(b"/"), ConnectionTuneOk(1, 4096, 0), ChannelOpen()]
)
def test_out_of_turn_before_login_is_silent(
    amqp: Amqp, first: ConnectionOpen | ConnectionTuneOk | ChannelOpen
) -> None:
    amqp.slow_in_real_time()
    peer = greeted(amqp)
    peer.method(0, first)
    assert peer.frames_until_end() == []


def test_garbage_before_login_is_silent(amqp: Amqp) -> None:
    amqp.slow_in_real_time()
    peer = greeted(amqp)
    peer.send(b"\xff" * 64)
    assert peer.frames_until_end() == []


def test_undecodable_start_ok_is_silent(amqp: Amqp) -> None:
    amqp.slow_in_real_time()
    peer = greeted(amqp)
    peer.send(frame(METHOD, 0, struct.pack(">HH", 10, 11) + b"\xff\xff\xff\xff"))
    assert peer.frames_until_end() == []


def test_close_before_open(amqp: Amqp) -> None:
    amqp.departure("RabbitMQ does not answer a close during the handshake")
    peer = greeted(amqp)
    peer.method(0, ConnectionClose(200, b"", 0, 0))
    peer.expect(ConnectionCloseOk)


def test_handshake_must_not_take_forever(amqp: Amqp) -> None:
    amqp.slow_in_real_time()
    peer = greeted(amqp)
    assert peer.frames_until_end(15) == []


def test_update_secret(amqp: Amqp) -> None:
    peer = amqp.connect()
    peer.method(0, ConnectionUpdateSecret(b"new", b"expired"))
    peer.expect(ConnectionUpdateSecretOk)
