"""Field tables: every type of RabbitMQ, byte-exact round trips, limits, and Python values."""

import math
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given

from tests.wire.strategies import field_tables
from warrenmq.wire.errors import ConnectionException
from warrenmq.wire.field_table import (
    Field,
    decode_table,
    encode_table,
    fields_from_python,
    to_python,
    validate_table,
)
from warrenmq.wire.field_types import DEPTH_MAX, type_name

# name "a", then tag and value in hex; the value; RabbitMQ's name of the type
TYPES: list[tuple[str, str, object, str]] = [
    ("t", "01", True, "bool"),
    ("t", "00", False, "bool"),
    ("b", "80", -128, "byte"),
    ("B", "ff", 255, "unsignedbyte"),
    ("s", "8000", -32768, "short"),
    ("u", "ffff", 65535, "unsignedshort"),
    ("I", "80000000", -(1 << 31), "signedint"),
    ("i", "ffffffff", (1 << 32) - 1, "unsignedint"),
    ("l", "8000000000000000", -(1 << 63), "long"),
    ("L", "ffffffffffffffff", -1, "long"),
    ("f", "3fc00000", 1.5, "float"),
    ("d", "bff8000000000000", -1.5, "double"),
    ("d", "7ff0000000000000", math.inf, "double"),
    ("D", "02ffffffff", (2, (1 << 32) - 1), "decimal"),
    ("S", "00000002ff00", b"\xff\x00", "longstr"),
    ("x", "0000000161", b"a", "binary"),
    ("T", "ffffffffffffffff", (1 << 64) - 1, "timestamp"),
    ("V", "", None, "void"),
    ("F", "00000003016256", {"b": Field(ord("V"), None)}, "table"),
    ("A", "000000037401" + "56", [Field(ord("t"), True), Field(ord("V"), None)], "array"),
]


def nested_table(depth: int) -> bytes:
    """A table of `depth` levels, itself being the first."""
    body = b""
    for _ in range(depth - 1):
        body = b"\x01aF" + len(body).to_bytes(4, "big") + body
    return body


def nested_array(depth: int) -> bytes:
    """A table of `depth` levels whose only value is a nested array; it is the first level."""
    body = b""
    for _ in range(depth - 2):
        body = b"A" + len(body).to_bytes(4, "big") + body
    return b"\x01aA" + len(body).to_bytes(4, "big") + body


def is_refused(raw: bytes) -> None:
    """Check that both readers refuse `raw`, each with its own code."""
    with pytest.raises(ConnectionException) as caught:
        decode_table(raw)
    assert (caught.value.code, caught.value.text) == (541, "INTERNAL_ERROR")
    with pytest.raises(ConnectionException) as caught:
        validate_table(raw, 0, len(raw))
    assert caught.value.code == 501


@pytest.mark.parametrize(("tag", "value_hex", "value", "name"), TYPES)
def test_each_type_decodes_and_encodes(tag: str, value_hex: str, value: object, name: str) -> None:
    """Each type of a field table decodes to its value, and the value encodes to the same bytes."""
    raw = b"\x01a" + tag.encode() + bytes.fromhex(value_hex)
    validate_table(b"?" + raw + b"?", 1, 1 + len(raw))
    table = decode_table(raw)
    assert table == {"a": Field(ord(tag), value)}
    assert type(table["a"].value) is type(value)
    assert type_name(ord(tag)) == name
    assert encode_table(table) == raw


@pytest.mark.parametrize(("tag", "value_hex", "value", "name"), TYPES)
def test_each_type_cut_short_is_refused(tag: str, value_hex: str, value: object, name: str) -> None:
    """Every proper prefix is an error, never a guess."""
    raw = b"\x01a" + tag.encode() + bytes.fromhex(value_hex)
    for cut in range(1, len(raw)):
        is_refused(raw[:cut])


@given(field_tables)
def test_table_round_trip_is_byte_exact(table: dict[str, Field]) -> None:
    """Encoding, decoding and encoding again changes no value, no byte and no order."""
    raw = encode_table(table)
    validate_table(raw, 0, len(raw))
    decoded = decode_table(raw)
    assert decoded == table
    assert list(decoded) == list(table)
    assert encode_table(decoded) == raw


def test_first_of_equal_names_wins() -> None:
    """The first of equal names wins, as in RabbitMQ's look-ups."""
    assert decode_table(b"\x01at\x01\x01aV\x01bV") == {
        "a": Field(ord("t"), True),
        "b": Field(ord("V"), None),
    }


def test_any_non_zero_bool_is_true() -> None:
    """A true value is encoded as 1."""
    assert encode_table(decode_table(b"\x01at\xff")) == b"\x01at\x01"


def test_nan_is_accepted() -> None:
    """A NaN header is accepted, although RabbitMQ drops the connection for it."""
    for raw in (b"\x01ad\x7f\xf8" + bytes(6), b"\x01af\x7f\xc0" + bytes(2)):
        value = decode_table(raw)["a"].value
        assert isinstance(value, float)
        assert math.isnan(value)
        assert encode_table(decode_table(raw)) == raw


@pytest.mark.parametrize("nest", [nested_table, nested_array])
def test_nesting_is_limited(nest: object) -> None:
    """64 levels are accepted; 65 and 100,000 are refused without coming near the stack's end."""
    assert callable(nest)
    raw = nest(DEPTH_MAX)
    validate_table(raw, 0, len(raw))
    assert encode_table(decode_table(raw)) == raw
    is_refused(nest(DEPTH_MAX + 1))
    is_refused(nest(2000))
    # 100,000 levels, each with a length that claims more bytes than there are.
    is_refused(b"\x01aF\xff\xff\xff\xff" * 100_000)


@pytest.mark.parametrize(
    "tag", [tag for tag in range(256) if chr(tag) not in {row[0] for row in TYPES}]
)
def test_unknown_tag_is_refused(tag: int) -> None:
    """An unknown tag is refused, such as the standard's U, which RabbitMQ does not know."""
    is_refused(b"\x01a" + bytes([tag]) + bytes(20))


@pytest.mark.parametrize("tag", ["S", "x", "F", "A"])
def test_length_beyond_the_table_is_refused(tag: str) -> None:
    """A length is believed only if that many bytes are there."""
    is_refused(b"\x01a" + tag.encode() + b"\xff\xff\xff\xff")
    is_refused(b"\x01a" + tag.encode() + b"\x00\x00\x00\x01")


def test_python_values_become_fields() -> None:
    """Each Python type has its tag; integers take l only when 32 bits are too few."""
    fields = fields_from_python(
        {
            "bool": True,
            "int": -(1 << 31),
            "long": 1 << 31,
            "str": "é",
            "bytes": b"\xff",
            "float": 0.5,
            "none": None,
            "dict": {"a": 1},
            "list": [1, "x"],
            "time": datetime(2024, 1, 1, tzinfo=UTC),
            "decimal": Decimal("1.50"),
        }
    )
    assert {name: chr(field.tag) for name, field in fields.items()} == {
        "bool": "t",
        "int": "I",
        "long": "l",
        "str": "S",
        "bytes": "S",
        "float": "d",
        "none": "V",
        "dict": "F",
        "list": "A",
        "time": "T",
        "decimal": "D",
    }
    assert fields["decimal"].value == (2, 150)
    assert decode_table(encode_table(fields)) == fields


def test_python_values_come_back() -> None:
    """to_python reverses fields_from_python for values that have one meaning."""
    values: dict[str, object] = {
        "a": [True, 1, 1 << 40, "é", b"\xff", 0.5, None, {"b": Decimal("1.50")}],
        "time": datetime(2024, 1, 1, 12, tzinfo=UTC),
    }
    assert to_python(fields_from_python(values)) == values


def test_time_behind_the_year_9999_stays_a_number() -> None:
    """A timestamp has 64 bits, more than a datetime can express."""
    assert to_python({"t": Field(ord("T"), (1 << 64) - 1)}) == {"t": (1 << 64) - 1}
    assert to_python({"t": Field(ord("T"), 253402300799)}) == {
        "t": datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    }


@pytest.mark.parametrize(
    "value",
    [
        1 << 63,
        -(1 << 63) - 1,
        Decimal("-1"),
        Decimal("NaN"),
        Decimal(1 << 32),
        Decimal("1e-256"),
        datetime(1969, 12, 31, tzinfo=UTC),
    ],
)
def test_python_value_without_encoding_is_refused(value: object) -> None:
    """Such a value raises ValueError and does not become another value."""
    with pytest.raises(ValueError, match=r"encoding|64-bit|before 1970"):
        fields_from_python({"a": value})


def test_python_type_without_encoding_is_refused() -> None:
    """TypeError names the type."""
    with pytest.raises(TypeError, match="type set"):
        fields_from_python({"a": set()})


def test_python_nesting_is_limited() -> None:
    """A list that contains itself ends at the limit."""
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="nested deeper"):
        fields_from_python({"a": endless})


@pytest.mark.parametrize(
    ("field", "error"),
    [
        (Field(ord("b"), 128), ValueError),
        (Field(ord("u"), -1), ValueError),
        (Field(ord("I"), 1 << 31), ValueError),
        (Field(ord("l"), 1 << 63), ValueError),
        (Field(ord("T"), -1), ValueError),
        (Field(ord("D"), (256, 1)), ValueError),
        (Field(ord("S"), "text"), TypeError),
        (Field(ord("F"), []), TypeError),
        (Field(ord("f"), 1), TypeError),
        (Field(ord("U"), 1), TypeError),
    ],
    ids=lambda value: repr(value) if isinstance(value, Field) else None,
)
def test_field_without_encoding_is_our_mistake(field: Field, error: type[Exception]) -> None:
    """Encoding refuses what the wire cannot express, compiled and interpreted alike."""
    with pytest.raises(error):
        encode_table({"a": field})
    with pytest.raises(ValueError, match="at most 255"):
        encode_table({"n" * 256: Field(ord("V"), None)})
