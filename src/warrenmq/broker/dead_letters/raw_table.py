"""Field tables as lists of raw fields, for code that changes a few fields and keeps the others.

A raw field is a name and its value: the type tag and the bytes behind it. Nothing inside a value is
decoded. Two things change as in RabbitMQ, which encodes the whole table again when the broker adds
a header: the tag `L` becomes `l`, and true becomes 1. Fields with equal names all stay; the first
one counts.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from warrenmq.wire import field_types, primitives
from warrenmq.wire.errors import MalformedBytes

RawField = tuple[bytes, bytes]

_ABSENT: Final = b""


def split_table(body: bytes) -> list[RawField]:
    """The fields of the table with this body, in the order of the wire.

    Raises MalformedBytes for a table that does not decode.
    """
    # New octets at positions where RabbitMQ writes others than it reads.
    changes: dict[i64, i64] = {}
    fields = _split(body, changes)
    if not changes:
        return fields
    changed = bytearray(body)
    for position, octet in changes.items():
        changed[position] = octet
    return _split(bytes(changed), changes)


def split_array(value: bytes) -> list[bytes]:
    """The items, each with its tag, of an array with tag and length."""
    changes: dict[i64, i64] = {}
    items: list[bytes] = []
    at: i64 = 5
    end: i64 = len(value)
    while at < end:
        start = at
        at = _value_end(value, at, end, 1, changes)
        items.append(value[start:at])
    return items


def join_table(fields: list[RawField]) -> bytes:
    """The body of the table with these fields."""
    out = BytesWriter()
    for name, value in fields:
        primitives.write_shortstr(out, name)
        out.write(value)
    return out.getvalue()


def find(fields: list[RawField], name: bytes) -> bytes:
    """The value of the first field of this name; b"" if there is none."""
    for each, value in fields:
        if each == name:
            return value
    return _ABSENT


def put(fields: list[RawField], name: bytes, value: bytes) -> None:
    """Replace the first field of this name, or append one."""
    for number, field in enumerate(fields):
        if field[0] == name:
            fields[number] = (name, value)
            return
    fields.append((name, value))


def remove(fields: list[RawField], name: bytes) -> None:
    """Remove the first field of this name; no effect without one."""
    for number, field in enumerate(fields):
        if field[0] == name:
            del fields[number]
            return


def sort_by_name(fields: list[RawField]) -> None:
    """Sort the fields by name; those with equal names keep their order."""
    fields.sort(key=_name)


def longstr_value(text: bytes) -> bytes:
    """`text` as a value of type longstr."""
    return _with_length(field_types.TAG_LONGSTR, text)


def array_value(items: list[bytes]) -> bytes:
    """An array of these values."""
    return _with_length(field_types.TAG_ARRAY, b"".join(items))


def table_value(fields: list[RawField]) -> bytes:
    """A table with these fields, as a value."""
    return _with_length(field_types.TAG_TABLE, join_table(fields))


def _with_length(tag: i64, body: bytes) -> bytes:
    out = BytesWriter()
    primitives.write_octet(out, tag)
    primitives.write_longstr(out, body)
    return out.getvalue()


def _name(field: RawField) -> bytes:
    return field[0]


def _split(body: bytes, changes: dict[i64, i64]) -> list[RawField]:
    fields: list[RawField] = []
    at: i64 = 0
    end: i64 = len(body)
    while at < end:
        name, start = primitives.read_shortstr(body, at, end)
        at = _value_end(body, start, end, 1, changes)
        fields.append((name, body[start:at]))
    return fields


def _value_end(data: bytes, at: i64, end: i64, depth: i64, changes: dict[i64, i64]) -> i64:
    """The position behind the value with its tag at `at`; notes the octets that change."""
    tag = primitives.read_octet(data, at, end)
    at += 1
    if tag in (field_types.TAG_LONGSTR, field_types.TAG_BINARY):
        return primitives.longstr_end(data, at, end)
    size = field_types.fixed_size(tag)
    if size >= 0:
        primitives.need(at, end, size)
        if tag == field_types.TAG_LONG_TOO:
            changes[at - 1] = field_types.TAG_LONG
        elif tag == field_types.TAG_BOOL and data[at] > 1:
            changes[at] = 1
        return at + size
    if tag != field_types.TAG_TABLE and tag != field_types.TAG_ARRAY:
        raise MalformedBytes(field_types.unknown_tag(tag))
    if depth >= field_types.DEPTH_MAX:
        raise MalformedBytes(field_types.TOO_DEEP)
    stop = primitives.longstr_end(data, at, end)
    at += 4
    while at < stop:
        if tag == field_types.TAG_TABLE:
            at += 1 + primitives.read_octet(data, at, stop)
        at = _value_end(data, at, stop, depth + 1, changes)
    return stop
