"""Bindings to declare, and a builder that reads like a sentence.

bind(queue).to(topic_exchange).with_("orders.#")
bind(queue).to(fanout_exchange)
bind(queue).to(headers_exchange).where("type").matches("order")
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, overload

from warrenmq.topology.arguments import (
    Arguments,
    ArgumentValue,
    check_name,
    check_short_text,
    checked_arguments,
    same_value,
)
from warrenmq.topology.exchanges import (
    ConsistentHashExchange,
    Exchange,
    FanoutExchange,
    HeadersExchange,
    RandomExchange,
)
from warrenmq.topology.queues import Queue

DestinationType: TypeAlias = Literal["queue", "exchange"]
_MATCH: Final = "x-match"


@dataclass(frozen=True, eq=False)
class Binding:
    """Routes from `exchange` to `destination`, a queue or another exchange; both are names."""

    exchange: str
    destination: str
    routing_key: str = ""
    arguments: Arguments = field(default_factory=dict)
    destination_type: DestinationType = "queue"

    def __post_init__(self) -> None:
        check_name(self.exchange, "the exchange of a binding")
        check_name(self.destination, "the destination of a binding")
        if not self.exchange or not self.destination:
            raise ValueError("a binding needs the name of its exchange and of its destination")
        if self.destination_type not in ("queue", "exchange"):
            raise ValueError(f"the destination of a binding is no {self.destination_type!r}")
        check_short_text(self.routing_key, f"{self}: the routing key")
        arguments = checked_arguments(self.arguments, f"{self}: arguments")
        object.__setattr__(self, "arguments", arguments)

    def __str__(self) -> str:
        return (
            f"binding of {self.destination_type} '{self.destination}' "
            f"to exchange '{self.exchange}' with '{self.routing_key}'"
        )

    @property
    def ends(self) -> tuple[str, str, str, str]:
        """Everything but the arguments."""
        return self.exchange, self.destination_type, self.destination, self.routing_key

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Binding):
            return NotImplemented
        return self.ends == other.ends and same_value(dict(self.arguments), dict(other.arguments))

    def __hash__(self) -> int:
        return hash(self.ends)


class WithRoutingKey:
    """The binding's key is missing."""

    def __init__(self, destination: Queue | Exchange, exchange: Exchange) -> None:
        self._destination = destination
        self._exchange = exchange

    def with_(self, routing_key: str, arguments: Arguments | None = None) -> Binding:
        """The binding with this key: a name, a pattern, or what the exchange's type makes of it."""
        return _binding(self._destination, self._exchange, routing_key, arguments or {})

    def with_queue_name(self) -> Binding:
        """The binding whose key is the name of its destination."""
        return self.with_(_name_of(self._destination))


class WithWeight:
    """The binding's weight is missing."""

    def __init__(self, destination: Queue | Exchange, exchange: Exchange) -> None:
        self._destination = destination
        self._exchange = exchange

    def with_weight(self, weight: int) -> Binding:
        """The binding of a queue that gets `weight` shares of the messages."""
        return _binding(self._destination, self._exchange, str(weight), {})


class WithHeaders:
    """The binding's headers are missing."""

    def __init__(self, destination: Queue | Exchange, exchange: Exchange) -> None:
        self._destination = destination
        self._exchange = exchange

    def where(self, key: str) -> "WithHeader":
        """Route by one header."""
        return WithHeader(self, key)

    def where_all(self, headers: Mapping[str, ArgumentValue] | Iterable[str]) -> Binding:
        """The binding for messages with all of the headers: with their values, or just present."""
        return self._where("all", headers)

    def where_any(self, headers: Mapping[str, ArgumentValue] | Iterable[str]) -> Binding:
        """The binding for messages with one of the headers."""
        return self._where("any", headers)

    def _where(self, match: str, headers: Mapping[str, ArgumentValue] | Iterable[str]) -> Binding:
        # None matches any value of a header that is there.
        wanted = dict(headers) if isinstance(headers, Mapping) else dict.fromkeys(headers)
        return _binding(self._destination, self._exchange, "", {_MATCH: match, **wanted})


class WithHeader:
    """The binding's value of one header is missing."""

    def __init__(self, headers: WithHeaders, key: str) -> None:
        self._headers = headers
        self._key = key

    def exists(self) -> Binding:
        """The binding for messages that have the header."""
        return self._headers.where_all([self._key])

    def matches(self, value: ArgumentValue) -> Binding:
        """The binding for messages whose header has this value."""
        return self._headers.where_all({self._key: value})


class BindingBuilder:
    """The exchange of the binding is missing."""

    def __init__(self, destination: Queue | Exchange) -> None:
        self._destination = destination

    # The classes of exchanges with a step of their own come first. mypy warns that a variable of
    # the type Exchange may hold one of them.
    @overload
    def to(self, exchange: FanoutExchange | RandomExchange) -> Binding: ...  # type: ignore[overload-overlap]  # see above
    @overload
    def to(self, exchange: HeadersExchange) -> WithHeaders: ...  # type: ignore[overload-overlap]  # see above
    @overload
    def to(self, exchange: ConsistentHashExchange) -> WithWeight: ...  # type: ignore[overload-overlap]  # see above
    @overload
    def to(self, exchange: Exchange) -> WithRoutingKey: ...
    def to(self, exchange: Exchange) -> Binding | WithHeaders | WithWeight | WithRoutingKey:
        """Say to which exchange; what follows depends on its class.

        A fanout or a random exchange needs nothing more.
        """
        if isinstance(exchange, FanoutExchange | RandomExchange):
            return _binding(self._destination, exchange, "", {})
        if isinstance(exchange, HeadersExchange):
            return WithHeaders(self._destination, exchange)
        if isinstance(exchange, ConsistentHashExchange):
            return WithWeight(self._destination, exchange)
        return WithRoutingKey(self._destination, exchange)


def bind(destination: Queue | Exchange) -> BindingBuilder:
    """Begin a binding of a queue, or of an exchange, to an exchange."""
    return BindingBuilder(destination)


def _binding(
    destination: Queue | Exchange, exchange: Exchange, key: str, arguments: Arguments
) -> Binding:
    kind: DestinationType = "queue" if isinstance(destination, Queue) else "exchange"
    return Binding(exchange.name, _name_of(destination), key, arguments, kind)


def _name_of(destination: Queue | Exchange) -> str:
    return destination.local_name if isinstance(destination, Queue) else destination.name
