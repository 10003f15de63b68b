"""Encodes properties that RabbitMQ stores decoded (as of a dead-lettered message) as AMQP blocks.

The record is `P_basic` with the fourteen properties in the order of the protocol; headers are a
list of (name, type, value). Names and order of headers are preserved, also where a name repeats.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

from warrenmq.tables.rabbitmq.external_term import TermError
from warrenmq.wire.properties import Properties

# Tag and layout of the field types with a fixed size.
_FIXED: Final[dict[str, tuple[bytes, struct.Struct]]] = {
    "signedint": (b"I", struct.Struct(">i")),
    "unsignedint": (b"i", struct.Struct(">I")),
    "long": (b"l", struct.Struct(">q")),
    "short": (b"s", struct.Struct(">h")),
    "unsignedshort": (b"u", struct.Struct(">H")),
    "byte": (b"b", struct.Struct(">b")),
    "unsignedbyte": (b"B", struct.Struct(">B")),
    "double": (b"d", struct.Struct(">d")),
    "float": (b"f", struct.Struct(">f")),
    "timestamp": (b"T", struct.Struct(">Q")),
}
_DECIMAL: Final = struct.Struct(">BI")


def encode_properties(record: tuple[Any, ...]) -> bytes:
    """The property block of a P_basic record, flag word first; TermError when it has none."""
    if len(record) != 15 or record[0] != "P_basic":
        raise TermError("no properties record")
    values = [None if value == "undefined" else value for value in record[1:]]
    try:
        if values[2] is not None:
            values[2] = _table(values[2])
        return Properties(*values).encode()
    except (TypeError, ValueError, struct.error, KeyError, OverflowError, RecursionError) as error:
        raise TermError(f"properties that have no encoding: {error}") from None


def _table(fields: list[tuple[bytes, str, Any]]) -> bytes:
    out = []
    for name, kind, value in fields:
        if len(name) > 255:
            raise TermError("a header's name is too long")
        out.append(bytes([len(name)]) + name + _value(kind, value))
    return b"".join(out)


def _value(kind: str, value: Any) -> bytes:
    """Tag and value of one field."""
    if kind in _FIXED:
        tag, layout = _FIXED[kind]
        return tag + layout.pack(value)
    return _VARIABLE[kind](value)


def _sized(tag: bytes, value: bytes) -> bytes:
    return tag + struct.pack(">I", len(value)) + value


def _array(items: list[tuple[str, Any]]) -> bytes:
    return b"".join([_value(kind, value) for kind, value in items])


_VARIABLE: Final[dict[str, Callable[[Any], bytes]]] = {
    "longstr": lambda value: _sized(b"S", value),
    "binary": lambda value: _sized(b"x", value),
    "table": lambda value: _sized(b"F", _table(value)),
    "array": lambda value: _sized(b"A", _array(value)),
    "bool": lambda value: b"t\x01" if value == "true" else b"t\x00",
    "void": lambda value: b"V",
    "decimal": lambda value: b"D" + _DECIMAL.pack(*value),
}
