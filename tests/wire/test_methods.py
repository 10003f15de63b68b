"""Every method encodes and decodes, and bytes that are no method are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from tests.wire.strategies import METHOD_SPECS, arguments_of, build, methods_with_values
from tools.generate_wire import TARGET, MethodSpec, generate
from warrenmq.wire import methods
from warrenmq.wire.errors import ConnectionException
from warrenmq.wire.method import Method
from warrenmq.wire.methods import BasicPublish, ExchangeDeclare, QueueDeclare, decode_method


def payload_of(method: Method) -> bytes:
    """The payload of the method's frame."""
    out = BytesWriter()
    method.write_arguments(out)
    return int(method.id).to_bytes(4, "big") + out.getvalue()


def decode(payload: bytes) -> Method:
    return decode_method(payload, 0, len(payload))


def refused(payload: bytes) -> tuple[int, str, int, int]:
    """The code, text and ids of the error that answers `payload`."""
    with pytest.raises(ConnectionException) as caught:
        decode(payload)
    return caught.value.code, caught.value.text, caught.value.class_id, caught.value.method_id


def test_generated_file_is_what_the_specification_says() -> None:
    """methods.py was regenerated after the last change of the specification or the generator."""
    assert TARGET.read_text() == generate(METHOD_SPECS)


def test_specification_has_the_methods_of_rabbitmq() -> None:
    """All methods of RabbitMQ 3.10's specification, except those of its AMQP 1.0 plug-in, exist."""
    assert len(METHOD_SPECS) == 66
    assert len({spec.id for spec in METHOD_SPECS}) == 66
    assert [spec.name for spec in METHOD_SPECS if spec.content] == [
        "publish",
        "return",
        "deliver",
        "get-ok",
    ]


@given(methods_with_values())
def test_method_round_trip(example: tuple[MethodSpec, dict[str, object]]) -> None:
    """An encoded method decodes to the same class, ids and arguments, even inside a buffer."""
    spec, values = example
    method = build(spec, values)
    payload = payload_of(method)
    decoded = decode_method(b"ab" + payload + b"cd", 2, 2 + len(payload))
    assert type(decoded) is type(method)
    assert decoded.id == spec.id == getattr(methods, spec.constant)
    assert (decoded.class_id, decoded.method_id) == (spec.id >> 16, spec.id & 0xFFFF)
    assert arguments_of(spec, decoded) == values
    assert payload_of(decoded) == payload


@pytest.mark.parametrize("spec", METHOD_SPECS, ids=lambda spec: spec.python_class)
def test_method_of_defaults_round_trip(spec: MethodSpec) -> None:
    """Each method can be built without arguments."""
    method = build(spec, {})
    assert payload_of(decode(payload_of(method))) == payload_of(method)


@given(methods_with_values(), st.data())
def test_method_cut_short_is_refused(
    example: tuple[MethodSpec, dict[str, object]], data: st.DataObject
) -> None:
    """No proper prefix of a method's payload decodes."""
    spec, values = example
    payload = payload_of(build(spec, values))
    cut = data.draw(st.integers(0, len(payload) - 1))
    code, _, class_id, method_id = refused(payload[:cut])
    assert code == 501
    if cut >= 4:
        # A cut does not make a string invalid UTF-8: its length then exceeds the bytes, which is
        # the error.
        assert (class_id, method_id) == (spec.id >> 16, spec.id & 0xFFFF)


@given(methods_with_values(), st.binary(min_size=1, max_size=5))
def test_method_with_bytes_left_over_is_refused(
    example: tuple[MethodSpec, dict[str, object]], more: bytes
) -> None:
    """Bytes after the last argument are not ignored."""
    spec, values = example
    payload = payload_of(build(spec, values)) + more
    assert refused(payload)[0] == 501


def test_undecodable_arguments_are_quoted_in_the_reply() -> None:
    """The reply is 501 with the argument bytes as a decimal list and the ids of the method."""
    assert refused(b"\x00\x32\x00\x0a\x00\x00\x03ab") == (
        501,
        "FRAME_ERROR - cannot decode <<0,0,3,97,98>>",
        50,
        10,
    )


def test_long_undecodable_arguments_are_cut_in_the_reply() -> None:
    """A reply text has at most 255 bytes, the last three of which are dots."""
    text = refused(b"\x00\x32\x00\x0a" + b"\x00" * 1000)[1]
    assert text.startswith("FRAME_ERROR - cannot decode <<0,0,")
    assert len(text) == 255
    assert text.endswith("...")


def test_unknown_method_is_command_invalid() -> None:
    """The reply is 503 with the ids that were sent; ids over 32767 are unsigned."""
    assert refused(b"\x00\x3c\x00\x0b\x00\xff")[0] == 501  # 60,11 exists and has no arguments
    assert refused(b"\x00\x3c\x00\x0c") == (
        503,
        "COMMAND_INVALID - unknown method 12 of class 60",
        60,
        12,
    )
    assert refused(b"\xff\xff\xff\xfe")[2:] == (65535, 65534)


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_method_frame_without_a_whole_id_is_an_unknown_frame(size: int) -> None:
    """The reply is 501 with all octets quoted and without ids."""
    octets = ",".join(["1"] * size)
    text = f"FRAME_ERROR - type 1, all octets = <<{octets}>>: unknown_frame"
    assert refused(b"\x01" * size) == (501, text, 0, 0)


def test_shortstr_that_is_not_utf8_is_refused_without_content_only() -> None:
    """queue.declare's names are checked (RabbitMQ blames no method), basic.publish's are not."""
    declare = payload_of(QueueDeclare(queue=b"caf\xe9"))
    assert refused(declare) == (501, "FRAME_ERROR - Malformed UTF-8 in shortstr", 0, 0)
    assert payload_of(decode(payload_of(QueueDeclare(queue="café".encode())))) != declare
    publish = decode(payload_of(BasicPublish(exchange=b"\xff", routing_key=b"caf\xe9")))
    assert isinstance(publish, BasicPublish)
    assert (publish.exchange, publish.routing_key) == (b"\xff", b"caf\xe9")


def test_bits_share_an_octet_lowest_first_and_unused_ones_are_ignored() -> None:
    """durable is exchange.declare's second bit; the three unused bits may have any value."""
    payload = payload_of(ExchangeDeclare(exchange=b"e", type=b"t", durable=True))
    assert payload.hex() == "0028000a" + "0000" + "0165" + "0174" + "02" + "00000000"
    decoded = decode(payload[:-5] + b"\xe2" + payload[-4:])
    assert payload_of(decoded) == payload


def test_reserved_arguments_are_skipped() -> None:
    """A ticket other than 0 changes nothing."""
    payload = payload_of(BasicPublish(exchange=b"e", routing_key=b"k"))
    assert payload_of(decode(payload[:4] + b"\xff\xff" + payload[6:])) == payload


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("01 61 55 0001", "FRAME_ERROR - unknown type tag 85 in a field table"),
        (
            "01 61 53 00000005 6162",
            "FRAME_ERROR - cannot decode <<0,0,1,113,0,0,0,0,10,1,97,83,0,0,0,5,97,98>>",
        ),
    ],
)
def test_bad_table_in_a_method_is_refused(table: str, text: str) -> None:
    """The reply is 501 with the ids of the method."""
    body = bytes.fromhex(table)
    payload = payload_of(QueueDeclare(queue=b"q", arguments=body))
    code, refused_text, class_id, method_id = refused(payload)
    if "unknown" not in text:
        text = text.replace("0,0,0,0,10", f"0,0,0,0,{len(body)}")
    assert (code, refused_text, class_id, method_id) == (501, text, 50, 10)


@pytest.mark.parametrize(
    "method",
    [
        QueueDeclare(queue=b"x" * 256),
        methods.BasicQos(prefetch_count=65536),
        methods.BasicQos(prefetch_count=-1),
        methods.BasicQos(prefetch_size=1 << 32),
        methods.ConnectionStart(version_major=256),
    ],
    ids=["shortstr", "short", "negative", "long", "octet"],
)
def test_value_without_encoding_is_our_mistake(method: Method) -> None:
    """A value out of its type's range raises ValueError, compiled and interpreted alike."""
    with pytest.raises(ValueError, match=r"at most 255|unsigned"):
        payload_of(method)
