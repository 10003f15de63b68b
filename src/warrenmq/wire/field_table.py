"""Field tables: names with typed values, nested, in arguments of methods and headers of messages.

A table travels through the broker as the raw bytes of its body (without the u32 length). Only code
that needs its values decodes it. Decoding keeps each value's type tag in a `Field`, so that
encoding a decoded table gives the same bytes again. Two things may differ: of equal names the first
is kept, and true is written as 1.

`field_types` has the types, and the limits for tables from untrusted peers.
"""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, final

from librt.strings import (
    BytesWriter,
    read_f32_be,
    read_f64_be,
    write_f32_be,
    write_f64_be,
)
from mypy_extensions import i64, mypyc_attr

from warrenmq.wire import field_types, primitives
from warrenmq.wire.errors import (
    FRAME_ERROR,
    INTERNAL_ERROR,
    ConnectionException,
    MalformedBytes,
    octets_text,
)

# 9999-12-31T23:59:59Z, the last second a datetime can hold.
DATETIME_SECONDS_MAX: Final = 253402300799


@final
@mypyc_attr(native_class=True)
class Field:
    """One value of a table or array with its type tag; treat it as immutable.

    Type of `value` by tag: S, x bytes; F dict[str, Field]; A list[Field]; D (scale, unscaled
    value); t bool; V None; f, d float; all others int (T unsigned, seconds since 1970; l and L
    signed).
    """

    def __init__(self, tag: i64, value: object) -> None:
        self.tag: i64 = tag
        self.value: object = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Field) and self.tag == other.tag and self.value == other.value

    def __repr__(self) -> str:
        return f"Field({chr(self.tag)!r}, {self.value!r})"


def validate_table(data: bytes, start: i64, end: i64) -> None:
    """Check the structure of the table body `data[start:end]`.

    Raises ConnectionException 501 if the table would not decode.
    """
    try:
        field_types.check_table(data, start, end)
    except MalformedBytes as error:
        reason = error.reason if error.reason else f"cannot decode {octets_text(data[start:end])}"
        raise ConnectionException(FRAME_ERROR, reason) from None


def decode_table(raw: bytes) -> dict[str, Field]:
    """Decode the table with body `raw`; the fields keep the order of the wire.

    Raises ConnectionException 541 if it does not decode. Tables of methods are checked together
    with their method, so an error means a message's headers table, for which RabbitMQ replies 541.
    """
    if not raw:
        return {}
    try:
        return _read_table(raw, 0, len(raw), 1)
    except MalformedBytes:
        raise ConnectionException(INTERNAL_ERROR, "") from None


def encode_table(table: dict[str, Field]) -> bytes:
    """Encode `table`; returns its body, without the length.

    Raises ValueError for a name over 255 bytes, a number out of its type's range or nesting over
    DEPTH_MAX, TypeError for a value that does not fit its tag.
    """
    out = BytesWriter()
    _write_fields(out, table, 1)
    return out.getvalue()


def _read_table(data: bytes, at: i64, end: i64, depth: i64) -> dict[str, Field]:
    if depth > field_types.DEPTH_MAX:
        raise MalformedBytes(field_types.TOO_DEEP)
    table: dict[str, Field] = {}
    while at < end:
        raw_name, at = primitives.read_shortstr(data, at, end)
        field, at = _read_field(data, at, end, depth)
        name = raw_name.decode("utf-8", "surrogateescape")
        if name not in table:
            table[name] = field
    return table


def _read_array(data: bytes, at: i64, end: i64, depth: i64) -> list[Field]:
    if depth > field_types.DEPTH_MAX:
        raise MalformedBytes(field_types.TOO_DEEP)
    array: list[Field] = []
    while at < end:
        field, at = _read_field(data, at, end, depth)
        array.append(field)
    return array


def _read_field(data: bytes, at: i64, end: i64, depth: i64) -> tuple[Field, i64]:
    """The field whose tag is at `at`, and the position behind it."""
    tag = primitives.read_octet(data, at, end)
    at += 1
    if tag in (field_types.TAG_LONGSTR, field_types.TAG_BINARY):
        text, stop = primitives.read_longstr(data, at, end)
        return Field(tag, text), stop
    size = field_types.fixed_size(tag)
    if size >= 0:
        primitives.need(at, end, size)
        return Field(tag, _read_fixed(tag, data, at, end)), at + size
    if tag == field_types.TAG_TABLE:
        stop = primitives.longstr_end(data, at, end)
        return Field(tag, _read_table(data, at + 4, stop, depth + 1)), stop
    if tag == field_types.TAG_ARRAY:
        stop = primitives.longstr_end(data, at, end)
        return Field(tag, _read_array(data, at + 4, stop, depth + 1)), stop
    raise MalformedBytes(field_types.unknown_tag(tag))


def _read_fixed(tag: i64, data: bytes, at: i64, end: i64) -> object:
    if tag == field_types.TAG_BOOL:
        return primitives.read_octet(data, at, end) != 0
    if tag == field_types.TAG_VOID:
        return None
    if tag == field_types.TAG_FLOAT:
        return read_f32_be(data, at)
    if tag == field_types.TAG_DOUBLE:
        return read_f64_be(data, at)
    if tag == field_types.TAG_DECIMAL:
        scale: int = primitives.read_octet(data, at, end)
        unscaled: int = primitives.read_long(data, at + 1, end)
        return scale, unscaled
    if tag == field_types.TAG_TIMESTAMP:
        return primitives.unsigned64(primitives.read_longlong(data, at, end))
    return int(_read_integer(tag, data, at, end))


def _read_integer(tag: i64, data: bytes, at: i64, end: i64) -> i64:
    if tag == field_types.TAG_SIGNED_INT:
        return (primitives.read_long(data, at, end) ^ 0x80000000) - 0x80000000
    if tag == field_types.TAG_UNSIGNED_INT:
        return primitives.read_long(data, at, end)
    if tag == field_types.TAG_SHORT:
        return (primitives.read_short(data, at, end) ^ 0x8000) - 0x8000
    if tag == field_types.TAG_UNSIGNED_SHORT:
        return primitives.read_short(data, at, end)
    if tag == field_types.TAG_BYTE:
        return (primitives.read_octet(data, at, end) ^ 0x80) - 0x80
    if tag == field_types.TAG_UNSIGNED_BYTE:
        return primitives.read_octet(data, at, end)
    return primitives.read_longlong(data, at, end)


def _write_fields(out: BytesWriter, table: dict[str, Field], depth: i64) -> None:
    if depth > field_types.DEPTH_MAX:
        raise ValueError(field_types.TOO_DEEP)
    for name, field in table.items():
        primitives.write_shortstr(out, name.encode("utf-8", "surrogateescape"))
        _write_field(out, field, depth)


def _write_items(out: BytesWriter, array: list[Field], depth: i64) -> None:
    if depth > field_types.DEPTH_MAX:
        raise ValueError(field_types.TOO_DEEP)
    for field in array:
        _write_field(out, field, depth)


def _write_field(out: BytesWriter, field: Field, depth: i64) -> None:
    tag = field.tag
    value = field.value
    primitives.write_octet(out, tag)
    if tag == field_types.TAG_TABLE and isinstance(value, dict):
        at = len(out)
        primitives.write_long(out, 0)
        _write_fields(out, value, depth + 1)
        primitives.patch_long(out, at, len(out) - at - 4)
    elif tag == field_types.TAG_ARRAY and isinstance(value, list):
        at = len(out)
        primitives.write_long(out, 0)
        _write_items(out, value, depth + 1)
        primitives.patch_long(out, at, len(out) - at - 4)
    elif (tag in (field_types.TAG_LONGSTR, field_types.TAG_BINARY)) and isinstance(value, bytes):
        primitives.write_longstr(out, value)
    elif tag == field_types.TAG_DECIMAL and isinstance(value, tuple):
        scale, unscaled = value
        primitives.write_octet(out, scale)
        primitives.write_long(out, unscaled)
    elif tag == field_types.TAG_FLOAT and isinstance(value, float):
        write_f32_be(out, value)
    elif tag == field_types.TAG_DOUBLE and isinstance(value, float):
        write_f64_be(out, value)
    elif tag == field_types.TAG_VOID and value is None:
        pass
    elif field_types.fixed_size(tag) > 0 and isinstance(value, int):
        _write_integer(out, tag, value)
    else:
        raise TypeError(f"a field of type tag {tag} cannot hold {value!r}")


def _write_integer(out: BytesWriter, tag: i64, value: int) -> None:
    if tag == field_types.TAG_BOOL:
        primitives.write_octet(out, 1 if value else 0)
    elif tag == field_types.TAG_BYTE:
        primitives.write_octet(out, _signed(value, 8))
    elif tag == field_types.TAG_UNSIGNED_BYTE:
        primitives.write_octet(out, _unsigned(value, 8))
    elif tag == field_types.TAG_SHORT:
        primitives.write_short(out, _signed(value, 16))
    elif tag == field_types.TAG_UNSIGNED_SHORT:
        primitives.write_short(out, _unsigned(value, 16))
    elif tag == field_types.TAG_SIGNED_INT:
        primitives.write_long(out, _signed(value, 32))
    elif tag == field_types.TAG_UNSIGNED_INT:
        primitives.write_long(out, _unsigned(value, 32))
    elif tag in (field_types.TAG_LONG, field_types.TAG_LONG_TOO):
        primitives.write_longlong(out, primitives.signed64(_signed(value, 64)))
    elif tag == field_types.TAG_TIMESTAMP:
        primitives.write_longlong(out, primitives.signed64(value))
    else:
        raise TypeError(f"a field of type tag {tag} cannot hold {value!r}")


def _signed(value: int, bits: int) -> int:
    """The signed number `value` as the unsigned number with the same `bits` bits.

    Raises ValueError for a number out of range.
    """
    if value < -(1 << (bits - 1)) or value >= 1 << (bits - 1):
        raise ValueError(f"{value} is not a signed {bits}-bit number")
    return value & ((1 << bits) - 1)


def _unsigned(value: int, bits: int) -> int:
    if value < 0 or value >= 1 << bits:
        raise ValueError(f"{value} is not an unsigned {bits}-bit number")
    return value


def fields_from_python(values: dict[str, object]) -> dict[str, Field]:
    """Convert Python values to fields, for command lines, the admin protocol and tests.

    Tags by type: bool t; int I, or l when it needs more than 32 bits; str and bytes S; float d;
    Decimal D; None V; datetime T (naive ones count as UTC); dict F; list A. Raises ValueError for a
    number or a nesting without an encoding, TypeError for other types.
    """
    return _table_from_python(values, 1)


def to_python(table: dict[str, Field]) -> dict[str, object]:
    """Convert the fields of `table` to Python values, without type tags.

    S becomes str, or bytes when it is not UTF-8; D becomes Decimal; T becomes a datetime in UTC, or
    an int after the year 9999; tables and arrays become dicts and lists of converted values.
    """
    values: dict[str, object] = {}
    for name, field in table.items():
        values[name] = field_to_python(field)
    return values


def field_to_python(field: Field) -> object:
    """Convert one field as `to_python` does; the field must come from `decode_table`.

    `decode_table` limits the nesting, and with it the recursion here.
    """
    tag = field.tag
    value = field.value
    if tag == field_types.TAG_LONGSTR and isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return value
    if tag == field_types.TAG_TABLE and isinstance(value, dict):
        return to_python(value)
    if tag == field_types.TAG_ARRAY and isinstance(value, list):
        return [field_to_python(item) for item in value]
    if tag == field_types.TAG_DECIMAL and isinstance(value, tuple):
        scale, unscaled = value
        return Decimal(unscaled).scaleb(-scale)
    if (
        tag == field_types.TAG_TIMESTAMP
        and isinstance(value, int)
        and value <= DATETIME_SECONDS_MAX
    ):
        return datetime.fromtimestamp(value, UTC)
    return value


def _table_from_python(values: dict[str, object], depth: i64) -> dict[str, Field]:
    if depth > field_types.DEPTH_MAX:
        raise ValueError(field_types.TOO_DEEP)
    table: dict[str, Field] = {}
    for name, value in values.items():
        table[name] = _field_from_python(value, depth)
    return table


def _array_from_python(values: list[object], depth: i64) -> list[Field]:
    if depth > field_types.DEPTH_MAX:
        raise ValueError(field_types.TOO_DEEP)
    return [_field_from_python(value, depth) for value in values]


def _field_from_python(value: object, depth: i64) -> Field:
    if value is None:
        return Field(field_types.TAG_VOID, None)
    # A bool is an int in Python, so it must be checked before int.
    if isinstance(value, bool):
        return Field(field_types.TAG_BOOL, value)
    if isinstance(value, int):
        return _integer_field(value)
    if isinstance(value, str):
        return Field(field_types.TAG_LONGSTR, value.encode("utf-8", "surrogateescape"))
    if isinstance(value, bytes):
        return Field(field_types.TAG_LONGSTR, value)
    if isinstance(value, float):
        return Field(field_types.TAG_DOUBLE, value)
    if isinstance(value, dict):
        return Field(field_types.TAG_TABLE, _table_from_python(value, depth + 1))
    if isinstance(value, list):
        return Field(field_types.TAG_ARRAY, _array_from_python(value, depth + 1))
    if isinstance(value, datetime):
        return _timestamp_field(value)
    if isinstance(value, Decimal):
        return _decimal_field(value)
    raise TypeError(f"a field table cannot hold a value of type {type(value).__name__}")


def _integer_field(value: int) -> Field:
    if -(1 << 31) <= value < 1 << 31:
        return Field(field_types.TAG_SIGNED_INT, value)
    if -(1 << 63) <= value < 1 << 63:
        return Field(field_types.TAG_LONG, value)
    raise ValueError(f"{value} is not a signed 64-bit number")


def _timestamp_field(value: datetime) -> Field:
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    seconds = int(value.timestamp())
    if seconds < 0:
        raise ValueError(f"{value.isoformat()} lies before 1970 and has no timestamp")
    return Field(field_types.TAG_TIMESTAMP, seconds)


def _decimal_field(value: Decimal) -> Field:
    if not value.is_finite():
        raise ValueError(f"{value} has no decimal encoding")
    exponent = int(value.as_tuple().exponent)
    scale = -exponent if exponent < 0 else 0
    # Check the magnitude before scaling: scaleb is only exact within the context's precision, and
    # 2**32 has ten digits.
    if scale > 255 or value.adjusted() > 9 or value < 0:
        raise ValueError(f"{value} has no decimal encoding")
    unscaled = int(value.scaleb(scale))
    if unscaled >= 1 << 32:
        raise ValueError(f"{value} has no decimal encoding")
    return Field(field_types.TAG_DECIMAL, (scale, unscaled))
