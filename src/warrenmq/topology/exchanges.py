"""Exchanges to declare: durable, and not deleted automatically, unless a declaration says so (S1).

Each type has a class, which only fixes `type`. A delayed exchange keeps a message for the time of
its header `x-delay` and then routes it as its type does: it is declared as an `x-delayed-message`
exchange with the argument `x-delayed-type`.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Final

from warrenmq.topology.arguments import ArgumentValue
from warrenmq.topology.declarable import Declarable, argument

DELAYED_TYPE: Final = "x-delayed-message"
_TYPE_ARGUMENT: Final = "x-delayed-type"


@dataclass(frozen=True, eq=False)
class Exchange(Declarable):
    """An exchange of any type.

    `internal`: only other exchanges may publish to it. `alternate_exchange` gets messages that no
    queue takes.
    """

    kind: ClassVar[str] = "exchange"
    type: str = "direct"
    internal: bool = False
    delayed: bool = False
    alternate_exchange: str | None = argument("alternate-exchange", str)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.name:
            raise ValueError("the default exchange has no name and is always there")
        if not isinstance(self.type, str):
            raise TypeError(f"{self}: type is {self.type!r}, not a text")
        if self.type == DELAYED_TYPE:
            self._take_delayed_type()
        elif self.delayed and _TYPE_ARGUMENT in self.arguments:
            raise ValueError(f"{self}: the type of a delayed exchange is `type`, not an argument")

    def _take_delayed_type(self) -> None:
        """Read the way in which the broker knows a delayed exchange."""
        left = dict(self.arguments)
        type = left.pop(_TYPE_ARGUMENT, None)
        if not isinstance(type, str):
            raise ValueError(f"{self}: the type {DELAYED_TYPE} needs the argument {_TYPE_ARGUMENT}")
        object.__setattr__(self, "type", type)
        object.__setattr__(self, "delayed", True)
        object.__setattr__(self, "arguments", left)

    @property
    def declared_type(self) -> str:
        """The type that is sent to the broker."""
        return DELAYED_TYPE if self.delayed else self.type

    @property
    def declared_arguments(self) -> dict[str, ArgumentValue]:
        """See Declarable."""
        table = super().declared_arguments
        return table | {_TYPE_ARGUMENT: self.type} if self.delayed else table


@dataclass(frozen=True, eq=False)
class DirectExchange(Exchange):
    """Routes to the queues whose binding has the message's routing key."""

    type: str = field(default="direct", init=False)


@dataclass(frozen=True, eq=False)
class TopicExchange(Exchange):
    """Routes by patterns of words: `*` stands for one word, `#` for any number."""

    type: str = field(default="topic", init=False)


@dataclass(frozen=True, eq=False)
class FanoutExchange(Exchange):
    """Routes to all queues that are bound."""

    type: str = field(default="fanout", init=False)


@dataclass(frozen=True, eq=False)
class HeadersExchange(Exchange):
    """Routes by the headers of the message."""

    type: str = field(default="headers", init=False)


@dataclass(frozen=True, eq=False)
class ConsistentHashExchange(Exchange):
    """Routes to one queue, by a hash of the routing key; a binding's key is the queue's weight.

    The arguments `hash-header` and `hash-property` choose something else to hash.
    """

    type: str = field(default="x-consistent-hash", init=False)


@dataclass(frozen=True, eq=False)
class RandomExchange(Exchange):
    """Routes to one of its queues by chance."""

    type: str = field(default="x-random", init=False)
