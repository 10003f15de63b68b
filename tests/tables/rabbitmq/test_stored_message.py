"""Tests stored messages: one of RabbitMQ 3.10.8, and the forms of other versions and events."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rabbitmq.directories import EVERY_PROPERTY, EVERY_TYPE, PERSISTENT
from tests.support.rabbitmq.files import encode_term, identity, message_term
from warrenmq.tables.rabbitmq.external_term import Atom, TermError, decode_term
from warrenmq.tables.rabbitmq.stored_message import StoredMessage, decode_message
from warrenmq.wire.field_table import encode_table
from warrenmq.wire.properties import Properties

# A message from a segment of 3.10.8: vhost "/", default exchange, queue "second version".
REAL = (
    bytes.fromhex("83680664000d")
    + b"basic_messageh\x04d\x00\x08resourcem\x00\x00\x00\x01/d\x00\x08exchangem\x00\x00\x00\x00"
    + b"l\x00\x00\x00\x01m\x00\x00\x00\x0esecond versionjh\x06d\x00\x07contenta<d\x00\x04nonem\x00\x00\x00\x03\x10\x00\x02"
    + b"d\x00\x19rabbit_framing_amqp_0_9_1l\x00\x00\x00\x01m\x00\x00\x00\x04bodyjm\x00\x00\x00\x10"
    + bytes.fromhex("71423b09846bc8d67500bbfe127f207b")
    + b"d\x00\x04true"
)


def test_a_message_of_3_10_8() -> None:
    assert decode_message(REAL) == StoredMessage(
        bytes.fromhex("71423b09846bc8d67500bbfe127f207b"),
        b"",
        [b"second version"],
        PERSISTENT,
        b"body",
    )


def _with(term: bytes, change: object, *path: int) -> bytes:
    """The message in `term` with one part replaced."""

    def changed(part: object, path: tuple[int, ...]) -> object:
        if not path:
            return change
        assert isinstance(part, tuple)
        return (*part[: path[0]], changed(part[path[0]], path[1:]), *part[path[0] + 1 :])

    return encode_term(changed(decode_term(term), path))


def test_parts_of_a_body_are_in_reverse_order() -> None:
    assert (
        decode_message(_with(REAL, [b"third", b"second", b"first"], 3, 5)).body
        == b"firstsecondthird"
    )
    assert decode_message(_with(REAL, [], 3, 5)).body == b""


def test_several_routing_keys() -> None:
    assert decode_message(message_term(1, b"", keys=(b"own", b"cc"))).routing_keys == [
        b"own",
        b"cc",
    ]


_TEXT = "longstr"
_DECODED_HEADERS = [
    (b"bool", Atom("bool"), Atom("true")),
    (b"byte", Atom("byte"), -7),
    (b"ubyte", Atom("unsignedbyte"), 200),
    (b"short", Atom("short"), -300),
    (b"ushort", Atom("unsignedshort"), 60000),
    (b"int", Atom("signedint"), -70000),
    (b"uint", Atom("unsignedint"), 4_000_000_000),
    (b"long", Atom("long"), -(1 << 60)),
    (b"float", Atom("float"), 1.5),
    (b"double", Atom("double"), 3.141592653589793),
    (b"decimal", Atom("decimal"), (2, 12345)),
    (b"text", Atom(_TEXT), "grüße".encode()),
    (b"octets", Atom("binary"), bytes(range(256))),
    (b"time", Atom("timestamp"), 1_700_000_000),
    (b"void", Atom("void"), Atom("undefined")),
    (b"table", Atom("table"), [(b"inner", Atom("table"), [(b"deep", Atom("signedint"), 1)])]),
    (b"array", Atom("array"), [(Atom("signedint"), 1), (Atom(_TEXT), b"two"), (Atom("array"), [])]),
]


def _record(headers: object) -> tuple[object, ...]:
    whole = EVERY_PROPERTY
    return (
        Atom("P_basic"), whole.content_type, whole.content_encoding, headers, 2, 9, whole.correlation_id,
        whole.reply_to, whole.expiration, whole.message_id, whole.timestamp, whole.type, whole.user_id,
        whole.app_id, whole.cluster_id,
    )  # fmt: skip


def test_decoded_properties_of_every_type() -> None:
    message = decode_message(message_term(1, b"", _record(_DECODED_HEADERS)))
    assert message.properties == EVERY_PROPERTY.encode()


def test_decoded_properties_that_are_absent() -> None:
    record = (Atom("P_basic"), *([Atom("undefined")] * 3), 2, *([Atom("undefined")] * 10))
    assert decode_message(message_term(1, b"", record)).properties == PERSISTENT


def test_a_header_that_comes_twice_stays_so() -> None:
    headers = [(b"a", Atom(_TEXT), b"1"), (b"a", Atom(_TEXT), b"2")]
    record = (
        Atom("P_basic"),
        Atom("undefined"),
        Atom("undefined"),
        headers,
        *([Atom("undefined")] * 11),
    )
    block = decode_message(message_term(1, b"", record)).properties
    assert block == Properties(headers=b"\x01aS\x00\x00\x00\x011\x01aS\x00\x00\x00\x012").encode()


def test_the_types_above_are_all_there_are() -> None:
    assert [name.decode() for name, _, _ in _DECODED_HEADERS] == list(EVERY_TYPE)
    assert encode_table(EVERY_TYPE) == EVERY_PROPERTY.headers


def test_a_message_container_of_3_13() -> None:
    content = (
        Atom("content"), 60, Atom("none"), PERSISTENT, Atom("rabbit_framing_amqp_0_9_1"), [b"body"],
    )  # fmt: skip
    annotations = {
        Atom("x"): b"ex",
        Atom("rk"): [b"key"],
        Atom("id"): identity(3),
        Atom("d"): Atom("true"),
    }
    term = encode_term((Atom("mc"), Atom("mc_amqpl"), content, annotations))
    assert decode_message(term) == StoredMessage(identity(3), b"ex", [b"key"], PERSISTENT, b"body")


@pytest.mark.parametrize(
    ("term", "reason"),
    [
        (encode_term((Atom("mc"), Atom("mc_amqp"), [], {})), "protocol mc_amqp"),
        (encode_term([1, 2]), "no message"),
        (_with(REAL, [], 2), "routing key"),
        (_with(REAL, [Atom("none")], 2), "routing key"),
        (_with(REAL, [1], 3, 5), "body"),
        (_with(REAL, Atom("none"), 3), "content"),
        (_with(REAL, Atom("none"), 3, 3), "content"),
        (message_term(1, b"", (Atom("P_basic"), 1)), "properties record"),
        (message_term(1, b"", _record([(b"a", Atom("signedint"), b"text")])), "no encoding"),
        (message_term(1, b"", _record([(b"a", Atom("unheard"), 1)])), "no encoding"),
        (message_term(1, b"", _record([(b"a" * 256, Atom("long"), 1)])), "too long"),
        (message_term(1, b"", _record(7)), "no encoding"),
    ],
)
def test_what_is_no_message(term: bytes, reason: str) -> None:
    with pytest.raises(TermError, match=reason):
        decode_message(term)


@given(st.data())
def test_changed_bytes_are_an_error_or_another_message(data: st.DataObject) -> None:
    raw = bytearray(
        data.draw(st.sampled_from([REAL, message_term(1, b"body", _record(_DECODED_HEADERS))]))
    )
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(
            st.integers(0, 255) | st.sampled_from(b"abhjlmtw")
        )
    with contextlib.suppress(TermError):
        decode_message(bytes(raw))
