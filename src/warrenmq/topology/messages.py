"""Messages with Spring AMQP's defaults: persistent, priority 0, application/octet-stream (S3).

A message knows no client: `to_pika` and `to_aio_pika` make what these clients publish.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Self

from warrenmq.topology.arguments import Arguments, ArgumentValue, checked_arguments

if TYPE_CHECKING:
    import aio_pika

TRANSIENT: Final = 1
PERSISTENT: Final = 2
_DELAY_HEADER: Final = "x-delay"


@dataclass(frozen=True)
class MessageProperties:
    """The properties of a message; None means absent."""

    content_type: str | None = "application/octet-stream"
    content_encoding: str | None = None
    headers: Arguments = field(default_factory=dict)
    # PERSISTENT or TRANSIENT.
    delivery_mode: int = PERSISTENT
    priority: int = 0
    correlation_id: str | None = None
    reply_to: str | None = None
    # Time to live in ms.
    expiration: int | None = None
    message_id: str | None = None
    # Sent in whole seconds; must have a time zone.
    timestamp: datetime.datetime | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "headers", checked_arguments(self.headers, "headers"))
        if self.timestamp is not None and self.timestamp.tzinfo is None:
            raise ValueError(f"the timestamp {self.timestamp} has no time zone")


@dataclass(frozen=True)
class Message:
    """A body with its properties."""

    body: bytes
    properties: MessageProperties = field(default_factory=MessageProperties)

    def to_pika(self) -> Any:
        """The properties as `pika.BasicProperties`; pika takes the body beside them."""
        import pika

        properties = self.properties
        expiration = None if properties.expiration is None else str(properties.expiration)
        timestamp = None
        if properties.timestamp is not None:
            timestamp = int(properties.timestamp.timestamp())
        return pika.BasicProperties(
            **_same_everywhere(properties),
            headers=dict(properties.headers) or None,
            expiration=expiration,
            timestamp=timestamp,
        )

    def to_aio_pika(self) -> aio_pika.Message:
        """The whole message for aio-pika."""
        import aio_pika

        properties = self.properties
        expiration = None
        if properties.expiration is not None:
            expiration = datetime.timedelta(milliseconds=properties.expiration)
        timestamp = None
        if properties.timestamp is not None:
            timestamp = properties.timestamp.astimezone(datetime.UTC)
        # Any, because dicts are invariant: aio-pika's headers have more types of values.
        headers: Any = dict(properties.headers)
        return aio_pika.Message(
            self.body,
            **_same_everywhere(properties),
            headers=headers,
            expiration=expiration,
            timestamp=timestamp,
        )


class MessageBuilder:
    """Builds a message: `MessageBuilder.with_body(b"...").set(type="order").build()`."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._properties = MessageProperties()
        self._headers: dict[str, ArgumentValue] = {}

    @classmethod
    def with_body(cls, body: bytes) -> Self:
        """Begin a message with this body."""
        return cls(body)

    @classmethod
    def with_text(cls, text: str) -> Self:
        """Begin a message with a text: UTF-8, of the content type text/plain."""
        return cls(text.encode()).set(content_type="text/plain", content_encoding="UTF-8")

    def set(self, **properties: Any) -> Self:
        """Set properties by the names of the fields of MessageProperties."""
        self._properties = replace(self._properties, **properties)
        return self

    def header(self, key: str, value: ArgumentValue) -> Self:
        """Set a header."""
        self._headers[key] = value
        return self

    def delay(self, ms: int) -> Self:
        """Let a delayed exchange keep the message for `ms`."""
        return self.header(_DELAY_HEADER, ms)

    def transient(self) -> Self:
        """Let a restart of the broker drop the message."""
        return self.set(delivery_mode=TRANSIENT)

    def build(self) -> Message:
        """The message. TypeError or ValueError for a header that none can have."""
        headers = {**self._properties.headers, **self._headers}
        return Message(self._body, replace(self._properties, headers=headers))


def _same_everywhere(properties: MessageProperties) -> dict[str, Any]:
    """The properties that all clients take under the same name and as the same type."""
    names = (
        "content_type", "content_encoding", "delivery_mode", "priority", "correlation_id",
        "reply_to", "message_id", "type", "user_id", "app_id",
    )  # fmt: skip
    return {name: getattr(properties, name) for name in names}
