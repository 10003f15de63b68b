"""The settings that apply to a queue at this moment: limits, dead letters, modes."""

from dataclasses import dataclass
from typing import Final

from mypy_extensions import i64

NO_LIMIT: Final = -1

# The overflow of a full queue. DROP_HEAD: the oldest ready messages leave.
DROP_HEAD: Final = 0
# The message is refused.
REJECT_PUBLISH: Final = 1
# The message is refused, and becomes a dead letter.
REJECT_PUBLISH_DLX: Final = 2


@dataclass(eq=False)
class LengthLimit:
    """How many ready messages a queue may have, and bytes of their bodies; NO_LIMIT for none.

    `overflow`: DROP_HEAD, REJECT_PUBLISH or REJECT_PUBLISH_DLX.
    """

    messages: i64
    body_bytes: i64
    overflow: i64

    def is_exceeded(self, messages: i64, body_bytes: i64) -> bool:
        """Whether a queue with so many ready messages and bytes of bodies has too many."""
        return (self.messages != NO_LIMIT and messages > self.messages) or (
            self.body_bytes != NO_LIMIT and body_bytes > self.body_bytes
        )


@dataclass(eq=False)
class DeadLetterRule:
    """Where a queue's dead letters go; `routing_key` None: each keeps its own keys."""

    exchange: bytes
    routing_key: bytes | None


@dataclass(eq=False)
class QueueTraits:
    """The traits that a queue has by its declaration and keeps.

    `max_priority`: the highest level of a priority queue, NO_LIMIT for a queue without priorities.
    """

    max_priority: i64 = NO_LIMIT
    # Only one of the consumers gets messages, until it is gone.
    is_single_active: bool = False
    # Declared as a quorum queue: deliveries of a message are counted.
    is_quorum: bool = False


_PLAIN: Final = QueueTraits()


@dataclass(eq=False)
class QueueSettings:
    """Settings of one queue, never changed in place: `Queue.apply` replaces them.

    Times are in ms, NO_LIMIT for none. `message_ttl_ms`: how long each message may wait.
    `expires_ms`: how long the queue may be unused. `is_lazy`: next to nothing stays in memory.
    `delivery_limit`: how often a message may be returned; NO_LIMIT: for ever.
    """

    message_ttl_ms: i64 = NO_LIMIT
    expires_ms: i64 = NO_LIMIT
    is_lazy: bool = False
    # None: the queue takes any number of messages.
    limit: LengthLimit | None = None
    # None: rejected and expired messages are dropped.
    dead_letters: DeadLetterRule | None = None
    delivery_limit: i64 = NO_LIMIT
    traits: QueueTraits = _PLAIN

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
