"""The settings that apply to a queue at this moment: limits, dead letters, modes."""

from typing import Final

from mypy_extensions import i64

NO_LIMIT: Final = -1

# The overflow of a full queue. DROP_HEAD: the oldest ready messages leave.
DROP_HEAD: Final = 0
# The message is refused.
REJECT_PUBLISH: Final = 1
# The message is refused, and becomes a dead letter.
REJECT_PUBLISH_DLX: Final = 2


class LengthLimit:
    """How many ready messages a queue may have, and bytes of their bodies; NO_LIMIT for none.

    `overflow`: DROP_HEAD, REJECT_PUBLISH or REJECT_PUBLISH_DLX.
    """

    def __init__(self, messages: i64, body_bytes: i64, overflow: i64) -> None:
        self.messages: i64 = messages
        self.body_bytes: i64 = body_bytes
        self.overflow: i64 = overflow

    def is_exceeded(self, messages: i64, body_bytes: i64) -> bool:
        """Whether a queue with so many ready messages and bytes of bodies has too many."""
        return (self.messages != NO_LIMIT and messages > self.messages) or (
            self.body_bytes != NO_LIMIT and body_bytes > self.body_bytes
        )


class DeadLetterRule:
    """Where a queue's dead letters go; `routing_key` None: each keeps its own keys."""

    def __init__(self, exchange: bytes, routing_key: bytes | None) -> None:
        self.exchange: bytes = exchange
        self.routing_key: bytes | None = routing_key


class QueueTraits:
    """The traits that a queue has by its declaration and keeps.

    `max_priority`: the highest level of a priority queue, NO_LIMIT for a queue without priorities.
    """

    def __init__(
        self, max_priority: i64 = NO_LIMIT, is_single_active: bool = False, is_quorum: bool = False
    ) -> None:
        self.max_priority: i64 = max_priority
        # Only one of the consumers gets messages, until it is gone.
        self.is_single_active: bool = is_single_active
        # Declared as a quorum queue: deliveries of a message are counted.
        self.is_quorum: bool = is_quorum


_PLAIN: Final = QueueTraits()


class QueueSettings:
    """Settings of one queue, never changed in place: `Queue.apply` replaces them.

    Times are in ms, NO_LIMIT for none. `message_ttl_ms`: how long each message may wait.
    `expires_ms`: how long the queue may be unused. `is_lazy`: next to nothing stays in memory.
    `delivery_limit`: how often a message may be returned; NO_LIMIT: for ever.
    """

    def __init__(
        self,
        message_ttl_ms: i64 = NO_LIMIT,
        expires_ms: i64 = NO_LIMIT,
        is_lazy: bool = False,
        limit: LengthLimit | None = None,
        dead_letters: DeadLetterRule | None = None,
        delivery_limit: i64 = NO_LIMIT,
        traits: QueueTraits = _PLAIN,
    ) -> None:
        self.message_ttl_ms: i64 = message_ttl_ms
        self.expires_ms: i64 = expires_ms
        self.is_lazy: bool = is_lazy
        # None: the queue takes any number of messages.
        self.limit: LengthLimit | None = limit
        # None: rejected and expired messages are dropped.
        self.dead_letters: DeadLetterRule | None = dead_letters
        self.delivery_limit: i64 = delivery_limit
        self.traits: QueueTraits = traits

    def need_timer(self) -> bool:
        """Whether the broker's timer must check the queue even while no message in it expires."""
        return self.message_ttl_ms != NO_LIMIT or self.expires_ms != NO_LIMIT


def lower_limit(one: i64, other: i64) -> i64:
    """The lower of two limits or times to live; NO_LIMIT for none."""
    if one == NO_LIMIT:
        return other
    if other == NO_LIMIT or one < other:
        return one
    return other
