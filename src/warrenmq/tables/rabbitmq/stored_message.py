"""Decodes a message as RabbitMQ stores it, in an index or in the message store: one term.

Up to RabbitMQ 3.12 the term is a `basic_message` record, in 3.13 a message container with the same
content in it. The body is a list of parts, the last one first. The properties are the block that
the publisher sent, or a decoded record.
"""

from typing import NamedTuple

from warrenmq.tables.rabbitmq.external_term import TermError, decode_term
from warrenmq.tables.rabbitmq.property_terms import encode_properties


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
