"""One event of the firehose: a message that was published, or that a client got from a queue.

An event is a copy of the message whose headers describe it (broker/channel/tracing.py). A line for
people has what identifies the message; JSON has all of it.
"""

import base64
import json
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from warrenmq.spark.amqp.connection import Delivery
from warrenmq.wire.field_table import decode_table, to_python
from warrenmq.wire.properties import decode_properties

PUBLISH: Final = "publish"
DELIVER: Final = "deliver"
# Properties that tell messages apart, in the order of a line.
_SHOWN: Final = ("message_id", "correlation_id", "reply_to", "type", "app_id")


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """A message on its way. `at`: when the event arrived here; `queue`: "" for a publish."""

    at: datetime
    kind: str
    exchange: str
    routing_keys: list[str]
    # The queues that a published message went to.
    routed_queues: list[str]
    queue: str
    is_redelivered: bool
    user: str
    connection: str
    channel: int
    node: str
    vhost: str
    properties: dict[str, Any]
    headers: dict[str, Any]
    body: bytes

    @property
    def queues(self) -> list[str]:
        """The queues that the event concerns."""
        return self.routed_queues if self.kind == PUBLISH else [self.queue]

    def line(self, body_bytes: int) -> str:
        """The event in one line, with so many bytes of its body."""
        keys = ", ".join(map(_quoted, self.routing_keys))
        if self.kind == PUBLISH:
            places = ", ".join(map(_quoted, self.routed_queues)) or "no queue"
            where = f"exchange {_quoted(self.exchange)} key {keys} to {places}"
        else:
            again = " redelivered" if self.is_redelivered else ""
            where = f"queue {_quoted(self.queue)} key {keys}{again}"
        who = f"{self.user} {self.connection} ({self.channel})"
        parts = [
            self.at.strftime("%H:%M:%S.%f")[:-3],
            self.kind,
            where,
            f"by {who}" if self.kind == PUBLISH else f"to {who}",
            f"{len(self.body)} B",
            *(
                f"{name} {_quoted(str(self.properties[name]))}"
                for name in _SHOWN
                if name in self.properties
            ),
        ]
        if body_bytes:
            parts.append(_quoted(self.body[:body_bytes].decode("utf-8", "replace")))
        return "  ".join(parts)

    def json(self, body_bytes: int) -> str:
        """The event as a JSON object, with so many bytes of its body."""
        fields: dict[str, Any] = {
            "time": self.at.isoformat(timespec="milliseconds"),
            "event": self.kind,
            "exchange": self.exchange,
            "routing_keys": self.routing_keys,
            "queues": self.queues,
            "user": self.user,
            "connection": self.connection,
            "channel": self.channel,
            "node": self.node,
            "vhost": self.vhost,
            "body_bytes": len(self.body),
            "properties": self.properties,
            "headers": self.headers,
        }
        if self.kind == DELIVER:
            fields["redelivered"] = self.is_redelivered
        if body_bytes:
            fields["payload"], fields["payload_encoding"] = _payload(self.body[:body_bytes])
        return json.dumps(fields, default=_plain)


def event_of(delivery: Delivery, at: datetime) -> TraceEvent:
    """Read a copy that the firehose has delivered."""
    kind, _, name = delivery.method.routing_key.decode("utf-8", "replace").partition(".")
    table = decode_properties(delivery.properties).headers or b""
    told: dict[str, Any] = to_python(decode_table(table))
    properties = dict(told["properties"])
    headers = properties.pop("headers", {})
    return TraceEvent(
        at,
        kind,
        _text(told["exchange_name"]),
        [_text(key) for key in told["routing_keys"]],
        [_text(queue) for queue in told.get("routed_queues", ())],
        name if kind == DELIVER else "",
        bool(told.get("redelivered")),
        _text(told["user"]),
        _text(told["connection"]),
        told["channel"],
        _text(told["node"]),
        _text(told["vhost"]),
        properties,
        headers,
        delivery.body,
    )


def _text(value: Any) -> str:
    """A name; one that is no UTF-8 comes as bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _quoted(text: str) -> str:
    """The text in quotes and in one line, whatever bytes a client has put into it."""
    return repr(text)


def _payload(body: bytes) -> tuple[str, str]:
    try:
        return body.decode(), "string"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"


def _plain(value: object) -> Any:
    """A value of a header that JSON does not have."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    return _text(value)
