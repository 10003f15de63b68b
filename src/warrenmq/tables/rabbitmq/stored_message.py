"""Decodes a message as RabbitMQ stores it, in an index or in the message store: one term.

Up to RabbitMQ 3.12 the term is a `basic_message` record, in 3.13 a message container with the same
content in it. The body is a list of parts, the last one first. The properties are the block that
the publisher sent, or a decoded record.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from warrenmq.tables.rabbitmq.external_term import TermError, decode_term
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
    """The property block of a P_basic record, flag word first; TermError when it has none.

    RabbitMQ stores properties decoded as of a dead-lettered message: the fourteen properties in the
    order of the protocol; headers are a list of (name, type, value). Names and order of headers are
    preserved, also where a name repeats.
    """
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


class StoredMessage(NamedTuple):
    """A decoded message; its first routing key is the publisher's own.

    `properties` is the block as on the wire, flag word first. The index says whether the message is
    persistent, since that depends on the queue as well.
    """

    id: bytes
    exchange: bytes
    routing_keys: list[bytes]
    properties: bytes
    body: bytes


def decode_message(data: bytes) -> StoredMessage:
    """The message in the term `data`; TermError when it is no message."""
    match decode_term(data):
        case (
            "basic_message",
            ("resource", bytes(), "exchange", bytes(exchange)),
            list(routing_keys),
            content,
            bytes(message_id),
            _,
        ):
            return _message(message_id, exchange, routing_keys, content)
        case (
            "mc",
            "mc_amqpl",
            content,
            {"x": bytes(exchange), "rk": list(routing_keys), "id": bytes(message_id)},
        ):
            return _message(message_id, exchange, routing_keys, content)
        case ("mc", str(protocol), *_) if protocol != "mc_amqpl":
            raise TermError(f"a message of protocol {protocol}, not of AMQP 0-9-1")
    raise TermError("a term that is no message")


def _message(
    message_id: bytes, exchange: bytes, routing_keys: list[object], content: object
) -> StoredMessage:
    match content:
        case ("content", 60, _, bytes(block), "rabbit_framing_amqp_0_9_1", list(parts)):
            properties = block
        case ("content", 60, tuple(record), "none", _, list(parts)):
            properties = encode_properties(record)
        case _:
            raise TermError("a message without the content of a basic message")
    keys = [key for key in routing_keys if isinstance(key, bytes)]
    if len(keys) != len(routing_keys) or not keys:
        raise TermError("a message without a routing key")
    return StoredMessage(message_id, exchange, keys, properties, _body(parts))


def _body(parts: list[object]) -> bytes:
    if len(parts) == 1 and isinstance(parts[0], bytes):
        return parts[0]
    chunks = [part for part in reversed(parts) if isinstance(part, bytes)]
    if len(chunks) != len(parts):
        raise TermError("a body that is not made of binaries")
    return b"".join(chunks)
