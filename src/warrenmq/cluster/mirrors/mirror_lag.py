"""How far mirrors are behind the ring messages of their master."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class Sent(NamedTuple):
    """What a master has sent up to the ring message `number`: messages, and bytes of operations."""

    number: int
    messages: int
    size_bytes: int


class SentLog:
    """The ring messages that a mirror may lack, with what was sent up to each."""

    def __init__(self) -> None:
        # In order; the first one is what every mirror in sync has.
        self._sent: deque[Sent] = deque([Sent(0, 0, 0)])

    def note(self, sent: Sent) -> None:
        """Note the next ring message."""
        self._sent.append(sent)

    def forget(self, upto: int) -> None:
        """Forget the ring messages that all mirrors in sync have: those up to `upto`."""
        sent = self._sent
        while len(sent) > 1 and sent[1].number <= upto:
            sent.popleft()

    def behind(self, mark: int) -> tuple[int, int]:
        """(messages, bytes) that a mirror with the ring messages up to `mark` lacks.

        Of a mirror that lacks more than the log has, it is what the log has.
        """
        sent = self._sent
        last = sent[-1]
        found = next((each for each in reversed(sent) if each.number <= mark), sent[0])
        return last.messages - found.messages, last.size_bytes - found.size_bytes
