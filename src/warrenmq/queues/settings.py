"""The settings that apply to a queue at this moment: limits and modes of this version."""

from typing import Final

from mypy_extensions import i64

NO_LIMIT: Final = -1


class QueueSettings:
    """Settings of one queue, never changed in place: `Queue.apply` replaces them.

    Times are in ms, NO_LIMIT for none. `message_ttl_ms`: how long each message may wait.
    `expires_ms`: how long the queue may be unused. `is_lazy`: next to nothing stays in memory.
    """

    def __init__(
        self, message_ttl_ms: i64 = NO_LIMIT, expires_ms: i64 = NO_LIMIT, is_lazy: bool = False
    ) -> None:
        self.message_ttl_ms: i64 = message_ttl_ms
        self.expires_ms: i64 = expires_ms
        self.is_lazy: bool = is_lazy

    def need_timer(self) -> bool:
        """Whether the broker's timer must check the queue even while no message in it expires."""
        return self.message_ttl_ms != NO_LIMIT or self.expires_ms != NO_LIMIT


def lower_ttl(queue_ttl_ms: i64, message_ttl_ms: i64) -> i64:
    """The lower of two times to live (ms), the queue's and the message's; NO_LIMIT for none."""
    if queue_ttl_ms == NO_LIMIT:
        return message_ttl_ms
    if message_ttl_ms == NO_LIMIT or queue_ttl_ms < message_ttl_ms:
        return queue_ttl_ms
    return message_ttl_ms
