"""How far mirrors are behind the ring messages of their master."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

# Ring messages that a log has at most. A mirror that lacks more is late whatever else is known.
_KEPT: Final = 65_536


class Sent(NamedTuple):
    """What a master has sent up to the ring message `number`: messages, and bytes of operations.

    `sent_ms`: when it sent this one (ms).
    """

    number: int
    messages: int
    size_bytes: int
    sent_ms: int = 0


class SentLog:
    """The ring messages that a mirror may lack, with what was sent up to each."""

    def __init__(self) -> None:
        # With consecutive numbers; the first one is what every mirror in sync has.
        self._sent: deque[Sent] = deque([Sent(0, 0, 0)])
        # The last ring message with an operation: a copy that lacks it is not complete.
        self.last_operation: int = 0

    def note(self, sent: Sent, has_operations: bool = True) -> None:
        """Note the next ring message; without operations it only begins an epoch or a level."""
        self._sent.append(sent)
        if len(self._sent) > _KEPT:
            self._sent.popleft()
        if has_operations:
            self.last_operation = sent.number

    def forget(self, upto: int) -> None:
        """Forget the ring messages that all mirrors in sync have: those up to `upto`."""
        sent = self._sent
        while len(sent) > 1 and sent[1].number <= upto:
            sent.popleft()

    def lacks(self, mark: int) -> bool:
        """Whether a copy with the ring messages up to `mark` lacks an operation."""
        return mark < self.last_operation

    def lacking_since_ms(self, mark: int) -> int:
        """When the first ring message behind `mark` was sent (ms); -1: no operation is missing."""
        if not self.lacks(mark):
            return -1
        sent = self._sent
        return sent[min(max(mark + 1 - sent[0].number, 1), len(sent) - 1)].sent_ms

    def behind(self, mark: int) -> tuple[int, int]:
        """(messages, bytes) that a mirror with the ring messages up to `mark` lacks.

        Of a mirror that lacks more than the log has, it is what the log has.
        """
        sent = self._sent
        last = sent[-1]
        found = next((each for each in reversed(sent) if each.number <= mark), sent[0])
        return last.messages - found.messages, last.size_bytes - found.size_bytes
