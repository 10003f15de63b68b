"""Messages through the API: publish one, get some, move some.

For tests and repairs by hand; what a program does often belongs on AMQP.
"""

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from warrenmq.management.amqp import channel_of
from warrenmq.management.bodies import Body
from warrenmq.management.errors import HttpRefusal, bad_request
from warrenmq.management.rows import Row
from warrenmq.management.sessions import Caller

if TYPE_CHECKING:
    from pika import BasicProperties
    from pika.adapters.blocking_connection import BlockingChannel

# Properties of a message by their types in JSON.
_TEXTS: Final = (
    "content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id",
    "type", "user_id", "app_id", "cluster_id",
)  # fmt: skip
_NUMBERS: Final = ("delivery_mode", "priority", "timestamp")
# Modes of `get`: requeue the messages or remove them. `_CONSUMED` acks them on delivery.
_CONSUMED: Final = "ack_requeue_false"
_ACK_MODES: Final = (
    "ack_requeue_true", "reject_requeue_true", _CONSUMED, "reject_requeue_false",
)  # fmt: skip
# One reply takes no further message when it has bodies of so many bytes.
_GET_BYTES_MAX: Final = 64 * 1024 * 1024


def publish_message(caller: Caller, vhost: str, exchange: str, body: Body) -> bool:
    """Publish the message in `body`; whether some queue took it. Raises HttpRefusal."""
    from pika.exceptions import ChannelClosedByBroker

    body.require("properties", "routing_key", "payload", "payload_encoding")
    properties = message_properties(Body(body.table("properties")))
    payload = _payload(body)
    key = body.text("routing_key")
    with channel_of(caller, vhost) as channel:
        channel.confirm_delivery()
        try:
            return _is_taken(channel, (exchange, key), properties, payload)
        except ChannelClosedByBroker as error:
            # RabbitMQ takes everything that is wrong with a message for a bad request.
            raise bad_request(f"{error.reply_code} {error.reply_text}") from None


def get_messages(caller: Caller, vhost: str, queue: str, body: Body) -> list[Row]:
    """Get up to `count` messages, and settle them as `ackmode` says. Raises HttpRefusal."""
    mode = _ack_mode(body)
    count = body.number("count")
    shown = Shown.of(body)
    if count < 0:
        raise bad_request(["not_a_count", str(count)])
    rows: list[Row] = []
    size = 0
    with channel_of(caller, vhost) as channel:
        while len(rows) < count and size < _GET_BYTES_MAX:
            method, properties, payload = channel.basic_get(queue, auto_ack=mode == _CONSUMED)
            if method is None:
                break
            size += len(payload)
            rows.append(_row(method, properties, payload, shown))
        if rows and mode != _CONSUMED:
            # All at once and at the end: a message that went back before would come again.
            channel.basic_nack(0, multiple=True, requeue=mode.endswith("requeue_true"))
    return rows


def _ack_mode(body: Body) -> str:
    if not body.has("ackmode") and body.has("requeue"):
        # Clients for RabbitMQ before 3.7 send this flag.
        body.require("count")
        return "ack_requeue_true" if body.flag("requeue") else _CONSUMED
    body.require("ackmode", "count")
    mode = body.text("ackmode")
    if mode not in _ACK_MODES:
        raise bad_request(["invalid_ackmode", mode])
    return mode


def _payload(body: Body) -> bytes:
    text, encoding = body.values["payload"], body.text("payload_encoding")
    if not isinstance(text, str):
        raise bad_request("payload_not_string")
    if encoding == "string":
        return text.encode("utf-8", "surrogatepass")
    if encoding != "base64":
        raise bad_request(["unsupported_encoding", encoding])
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise bad_request(["not_base64", text]) from None


def message_properties(body: Body) -> "BasicProperties":
    """The properties of a message that `body` names. Raises HttpRefusal for a wrong type."""
    from pika import BasicProperties

    values = {name: _property(body.text, name, "not_string") for name in _TEXTS if body.has(name)}
    values |= {name: _property(body.number, name, "not_int") for name in _NUMBERS if body.has(name)}
    headers = body.table("headers")
    if headers:
        values["headers"] = headers
    return BasicProperties(**values)


def _property(read: Callable[[str], Any], name: str, kind: str) -> Any:
    """A property's value; a refusal names the property, not the value."""
    try:
        return read(name)
    except HttpRefusal:
        raise bad_request([kind, name]) from None


# Where a message is to go: exchange and routing key; None: it stays.
Address = tuple[str, str] | None


@dataclass(frozen=True)
class Carried:
    """Messages of a queue that were published elsewhere, stayed, and are in the queue now."""

    moved: int
    kept: int
    left: int


def carry_messages(
    caller: Caller,
    vhost: str,
    queue: str,
    count: int,
    address: Callable[["BlockingChannel", Any, Any], Address],
    skips: bool = False,
) -> Carried:
    """Publish up to `count` messages of a queue anew, and ack each that is confirmed.

    `address` says where each goes, by its method and its properties, which it may change. A message
    that has no address, or that no queue takes, stays; it ends the work unless `skips`. Raises
    HttpRefusal, after which the messages that are not moved are in the queue.
    """
    moved, kept, left, size = 0, 0, 0, 0
    with channel_of(caller, vhost) as channel:
        channel.confirm_delivery()
        while moved + kept < count and size < _GET_BYTES_MAX and (skips or not kept):
            method, properties, payload = channel.basic_get(queue)
            if method is None:
                left = 0
                break
            left = method.message_count
            size += len(payload)
            target = address(channel, method, properties)
            if target is not None and _is_taken(channel, target, properties, payload):
                channel.basic_ack(method.delivery_tag)
                moved += 1
            else:
                kept += 1
        if kept:
            # All at once and at the end: a message that went back before would come again.
            channel.basic_nack(0, multiple=True, requeue=True)
    return Carried(moved, kept, left + kept)


def _is_taken(
    channel: "BlockingChannel", target: tuple[str, str], properties: Any, payload: bytes
) -> bool:
    """Publish a message on a channel in confirm mode; whether some queue took it."""
    from pika.exceptions import NackError, UnroutableError

    try:
        channel.basic_publish(*target, payload, properties, mandatory=True)
    except (NackError, UnroutableError):
        return False
    return True


@dataclass(frozen=True)
class Shown:
    """How messages are shown: bodies `encoding` "auto" or "base64", cut after `truncate` bytes."""

    encoding: str
    truncate: int | None

    @classmethod
    def of(cls, body: Body) -> "Shown":
        """The way that `body` asks for. Raises HttpRefusal."""
        encoding = body.text("encoding", "auto")
        if encoding not in ("auto", "base64"):
            raise bad_request("Unsupported encoding. Please use auto or base64.")
        truncate = max(0, body.number("truncate")) if body.has("truncate") else None
        return cls(encoding, truncate)

    def payload(self, body: bytes) -> Row:
        """The fields of a message's body."""
        text, used = _encoded(body[: self.truncate], self.encoding)
        return {"payload_bytes": len(body), "payload": text, "payload_encoding": used}

    def properties(self, values: dict[str, Any]) -> Row:
        """Properties by name, without those that are None."""
        return {name: _plain(each) for name, each in values.items() if each is not None}


def _row(method: Any, properties: Any, payload: bytes, shown: Shown) -> Row:
    known = {name: getattr(properties, name) for name in (*_TEXTS, *_NUMBERS, "headers")}
    return {
        "redelivered": method.redelivered,
        "exchange": method.exchange,
        "routing_key": method.routing_key,
        "message_count": method.message_count,
        "properties": shown.properties(known),
        **shown.payload(payload),
    }


def _encoded(payload: bytes, encoding: str) -> tuple[str, str]:
    if encoding == "auto":
        try:
            return payload.decode(), "string"
        except UnicodeDecodeError:
            pass
    return base64.b64encode(payload).decode(), "base64"


def _plain(value: Any) -> Any:
    """A value of a header as JSON has it."""
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bytes | bytearray):
        return _encoded(bytes(value), "auto")[0]
    if isinstance(value, datetime):
        return int(value.timestamp())
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
