"""Queues to declare: durable, shared and permanent unless a declaration says otherwise (S2)."""

import base64
import uuid
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

from warrenmq.topology.arguments import Arguments, ArgumentValue
from warrenmq.topology.declarable import Declarable, argument, flag_argument

ANONYMOUS_PREFIX: Final = "warren.gen-"
_LOCATOR: Final = "x-queue-master-locator"
_AWAITING: Final = "_awaiting_declaration"


def base64url_name(prefix: str = ANONYMOUS_PREFIX) -> str:
    """`prefix` and 22 characters of base64url: 122 random bits, so that no two names are equal."""
    return prefix + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


@dataclass(frozen=True, eq=False)
class Queue(Declarable):
    """A queue.

    Times are in ms. A queue without a name gets a new one from the broker at each declaration;
    until then `local_name` stands for it in bindings.
    """

    kind: ClassVar[str] = "queue"

    name: str = ""
    exclusive: bool = False
    message_ttl: int | None = argument("x-message-ttl", int)
    expires: int | None = argument("x-expires", int)
    max_length: int | None = argument("x-max-length", int)
    max_length_bytes: int | None = argument("x-max-length-bytes", int)
    # "drop-head", "reject-publish" or "reject-publish-dlx".
    overflow: str | None = argument("x-overflow", str)
    dead_letter_exchange: str | None = argument("x-dead-letter-exchange", str)
    dead_letter_routing_key: str | None = argument("x-dead-letter-routing-key", str)
    max_priority: int | None = argument("x-max-priority", int)
    single_active_consumer: bool = flag_argument("x-single-active-consumer", True)
    lazy: bool = flag_argument("x-queue-mode", "lazy")
    quorum: bool = flag_argument("x-queue-type", "quorum")
    delivery_limit: int | None = argument("x-delivery-limit", int)
    # "min-masters", "client-local" or "random".
    master_locator: str | None = argument(_LOCATOR, str)
    local_name: str = field(init=False, repr=False, default="")

    def __post_init__(self) -> None:
        super().__post_init__()
        local_name = self.name or base64url_name() + _AWAITING
        object.__setattr__(self, "local_name", local_name)

    def __str__(self) -> str:
        return super().__str__() if self.name else "queue without a name"


@dataclass(frozen=True, eq=False)
class AnonymousQueue(Queue):
    """A queue for one connection, with a generated name that stays the same in redeclarations.

    It is exclusive and auto-delete, not durable, and on the node of its client. For names with
    another prefix, pass `base64url_name(prefix)`.
    """

    name: str = field(default_factory=base64url_name)
    durable: bool = False
    auto_delete: bool = True
    exclusive: bool = True

    def __post_init__(self) -> None:
        if self.master_locator is None and _LOCATOR not in self.arguments:
            object.__setattr__(self, "master_locator", "client-local")
        super().__post_init__()


class QueueBuilder:
    """Builds a queue step by step: `QueueBuilder.durable("q").ttl(60_000).lazy().build()`."""

    def __init__(self, name: str, is_durable: bool) -> None:
        self._name = name
        self._durable = is_durable
        self._exclusive = False
        self._auto_delete = False
        self._arguments: dict[str, ArgumentValue] = {}
        self._fields: dict[str, Any] = {}

    @classmethod
    def durable(cls, name: str | None = None) -> Self:
        """Begin a durable queue; without a name it gets a generated one."""
        return cls(base64url_name() if name is None else name, True)

    @classmethod
    def non_durable(cls, name: str | None = None) -> Self:
        """Begin a queue that is gone after a restart; without a name it gets a generated one."""
        return cls(base64url_name() if name is None else name, False)

    def exclusive(self) -> Self:
        """Let only the declaring connection use the queue."""
        self._exclusive = True
        return self

    def auto_delete(self) -> Self:
        """Delete the queue when its last consumer leaves."""
        self._auto_delete = True
        return self

    def with_argument(self, key: str, value: ArgumentValue) -> Self:
        """Set any argument."""
        self._arguments[key] = value
        return self

    def with_arguments(self, arguments: Arguments) -> Self:
        """Set any arguments."""
        self._arguments.update(arguments)
        return self

    def ttl(self, ms: int) -> Self:
        """Expire messages after `ms`."""
        return self._with("message_ttl", ms)

    def expires(self, ms: int) -> Self:
        """Delete the queue when nobody has used it for `ms`."""
        return self._with("expires", ms)

    def max_length(self, messages: int) -> Self:
        """Limit the number of ready messages."""
        return self._with("max_length", messages)

    def max_length_bytes(self, size: int) -> Self:
        """Limit the bytes of ready messages."""
        return self._with("max_length_bytes", size)

    def overflow(self, behaviour: str) -> Self:
        """Say what happens at a limit: drop-head, reject-publish or reject-publish-dlx."""
        return self._with("overflow", behaviour)

    def dead_letter_exchange(self, name: str) -> Self:
        """Publish rejected, expired and dropped messages to this exchange."""
        return self._with("dead_letter_exchange", name)

    def dead_letter_routing_key(self, key: str) -> Self:
        """Replace the routing key of dead letters."""
        return self._with("dead_letter_routing_key", key)

    def max_priority(self, levels: int) -> Self:
        """Deliver by priority, up to `levels`."""
        return self._with("max_priority", levels)

    def lazy(self) -> Self:
        """Keep messages on disk."""
        return self._with("lazy", True)

    def single_active_consumer(self) -> Self:
        """Deliver to one consumer at a time."""
        return self._with("single_active_consumer", True)

    def quorum(self) -> Self:
        """Make it a quorum queue."""
        return self._with("quorum", True)

    def delivery_limit(self, deliveries: int) -> Self:
        """Limit the deliveries of a message of a quorum queue."""
        return self._with("delivery_limit", deliveries)

    def master_locator(self, strategy: str) -> Self:
        """Say where the queue lives: min-masters, client-local or random."""
        return self._with("master_locator", strategy)

    def build(self) -> Queue:
        """The queue. TypeError or ValueError for a value that no queue can have."""
        return Queue(
            self._name,
            durable=self._durable,
            exclusive=self._exclusive,
            auto_delete=self._auto_delete,
            arguments=self._arguments,
            **self._fields,
        )

    def _with(self, name: str, value: object) -> Self:
        self._fields[name] = value
        return self
