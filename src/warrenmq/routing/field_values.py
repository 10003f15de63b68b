"""Values of field tables: when two are equal, and how RabbitMQ writes them in its error texts.

There are two comparisons. `values_match` compares headers with a binding, and `values_equivalent`
arguments that are declared twice. Both ignore the type tags of the wire, since one client sends 1
as `l` and another as `I`; 1 equals 1.0 only in `values_match`. Inside tables and arrays, both
compare the tags too. The names in a table inside of another one count in their order. An empty
table matches an empty array: both are empty lists in Erlang.

Recursion is bounded: a decoded table is at most `DEPTH_MAX` levels deep.
"""

from typing import Final

from mypy_extensions import i64

from warrenmq.wire import field_types
from warrenmq.wire.field_table import Field

# Kinds of values: only values of one kind can be equal, except integers and floats in
# `values_match`.
_VOID: Final = 0
_BOOL: Final = 1
_INTEGER: Final = 2
_FLOAT: Final = 3
_DECIMAL: Final = 4
_BYTES: Final = 5
_ARRAY: Final = 6
_TABLE: Final = 7


def values_match(one: Field, other: Field) -> bool:
    """Whether values are equal, over all types of numbers and both types of bytes."""
    kind = _kind(one.tag)
    other_kind = _kind(other.tag)
    if kind == other_kind:
        return _equal_of_kind(kind, one, other)
    if kind in (_INTEGER, _FLOAT):
        return other_kind in (_INTEGER, _FLOAT) and one.value == other.value
    if kind in (_ARRAY, _TABLE):
        return other_kind in (_ARRAY, _TABLE) and not one.value and not other.value
    return False


def values_equivalent(one: Field, other: Field) -> bool:
    """Whether values are equal, over all types of integers, both of floats and both of bytes."""
    kind = _kind(one.tag)
    return kind == _kind(other.tag) and _equal_of_kind(kind, one, other)


def _kind(tag: i64) -> i64:
    if tag in (field_types.TAG_LONGSTR, field_types.TAG_BINARY):
        return _BYTES
    if tag == field_types.TAG_BOOL:
        return _BOOL
    if tag in (field_types.TAG_FLOAT, field_types.TAG_DOUBLE):
        return _FLOAT
    if tag == field_types.TAG_VOID:
        return _VOID
    if tag == field_types.TAG_DECIMAL:
        return _DECIMAL
    if tag == field_types.TAG_ARRAY:
        return _ARRAY
    if tag == field_types.TAG_TABLE:
        return _TABLE
    return _INTEGER


def _equal_of_kind(kind: i64, one: Field, other: Field) -> bool:
    if kind == _ARRAY:
        return _equal_arrays(one.value, other.value)
    if kind == _TABLE:
        return _equal_tables(one.value, other.value)
    return one.value == other.value


def _equal_inside(one: Field, other: Field) -> bool:
    """Whether two values are equal together with their tags; `L` is another tag of the type `l`."""
    tag: i64 = field_types.TAG_LONG if one.tag == field_types.TAG_LONG_TOO else one.tag
    other_tag: i64 = field_types.TAG_LONG if other.tag == field_types.TAG_LONG_TOO else other.tag
    return tag == other_tag and _equal_of_kind(_kind(tag), one, other)


def _equal_arrays(one: object, other: object) -> bool:
    assert isinstance(one, list) and isinstance(other, list)
    if len(one) != len(other):
        return False
    return all([_equal_inside(value, other[index]) for index, value in enumerate(one)])


def _equal_tables(one: object, other: object) -> bool:
    assert isinstance(one, dict) and isinstance(other, dict)
    if list(one) != list(other):
        return False
    return all([_equal_inside(value, other[name]) for name, value in one.items()])


def erlang_value(field: Field) -> str:
    """The text of a value as RabbitMQ prints its Erlang term: `<<"x">>`, `[{signedint,1}]`."""
    value = field.value
    if isinstance(value, bytes):
        return erlang_bytes(value)
    if isinstance(value, dict):
        rows = [_erlang_row(name, inner) for name, inner in value.items()]
        return "[" + ",".join(rows) + "]"
    if isinstance(value, list):
        items = [
            "{" + field_types.type_name(inner.tag) + "," + erlang_value(inner) + "}"
            for inner in value
        ]
        return "[" + ",".join(items) + "]"
    if isinstance(value, tuple):
        scale, unscaled = value
        return "{" + str(scale) + "," + str(unscaled) + "}"
    if value is None:
        return "undefined"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def erlang_bytes(value: bytes) -> str:
    """The text of bytes as Erlang prints them: `<<"x">>` for Latin-1 text, else `<<1,2,3>>`.

    Latin-1 text that is UTF-8 as well shows its characters, since RabbitMQ sends the same bytes.
    """
    if not value:
        return "<<>>"
    text = ""
    for octet in value:
        if octet == 0x22 or octet == 0x5C:
            text += "\\" + chr(octet)
        elif 0x20 <= octet <= 0x7E or octet >= 0xA0:
            text += chr(octet)
        elif octet == 0x1B:
            text += "\\e"
        elif 0x08 <= octet <= 0x0D:
            text += "\\" + "btnvfr"[octet - 0x08]
        else:
            return "<<" + ",".join([str(number) for number in value]) + ">>"
    try:
        return '<<"' + text.encode("latin-1").decode() + '">>'
    except UnicodeDecodeError:
        return '<<"' + text + '">>'


def _erlang_row(name: str, field: Field) -> str:
    quoted = erlang_bytes(name.encode("utf-8", "surrogateescape"))
    return "{" + quoted + "," + field_types.type_name(field.tag) + "," + erlang_value(field) + "}"
