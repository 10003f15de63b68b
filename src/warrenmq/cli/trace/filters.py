"""Which events `warren trace` prints: all conditions must be met.

The bindings of the firehose's queue narrow what the node copies as far as keys can; the rest is
decided here.
"""

from dataclasses import dataclass, field
from typing import Final

from warrenmq.cli.trace.event import DELIVER, PUBLISH, TraceEvent
from warrenmq.routing.exchange import Binding, Destination
from warrenmq.routing.topic import TopicExchange

# Longest routing key (bytes); the firehose cuts its keys there as well.
_KEY_BYTES_MAX: Final = 255


class KeyPattern:
    """A pattern of routing keys, as a topic exchange matches it: `orders.*`, `#.error`."""

    def __init__(self, pattern: str) -> None:
        self._exchange = TopicExchange(b"", False, False, False, b"")
        binding = Binding(self._exchange, Destination(b"", True), pattern.encode(), b"")
        self._exchange.add(binding)

    def matches(self, keys: list[str]) -> bool:
        """Whether one of the keys matches."""
        found: list[Destination] = []
        self._exchange.match([key.encode() for key in keys], {}, found)
        return bool(found)


@dataclass(frozen=True, slots=True)
class TraceFilter:
    """Conditions; None and empty ones are met by every event."""

    kinds: tuple[str, ...] = (PUBLISH, DELIVER)
    exchange: str | None = None
    key: KeyPattern | None = None
    queue: str | None = None
    user: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    def binding_keys(self) -> list[bytes]:
        """Patterns for the exchange of the firehose, which every wanted event matches."""
        names = {PUBLISH: self.exchange, DELIVER: self.queue}
        keys = [f"{kind}.{'#' if names[kind] is None else names[kind]}" for kind in self.kinds]
        return [key.encode()[:_KEY_BYTES_MAX] for key in keys]

    def takes(self, event: TraceEvent) -> bool:
        """Whether the event is wanted."""
        return (
            event.kind in self.kinds
            and self.exchange in (None, event.exchange)
            and (self.key is None or self.key.matches(event.routing_keys))
            and (self.queue is None or self.queue in event.queues)
            and self.user in (None, event.user)
            and all([str(event.properties.get(n)) == v for n, v in self.properties.items()])
            and all([str(event.headers.get(n)) == v for n, v in self.headers.items()])
        )
