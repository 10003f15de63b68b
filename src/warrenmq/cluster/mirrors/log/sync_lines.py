"""Log lines about the synchronisation of one mirror: its start, its progress and its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# Time (ms) between two lines about the progress.
PROGRESS_LINE_MS: Final = 10_000


class SyncLines:
    """Writes the lines about each synchronisation of the mirror on `node`.

    `write(line, event)`: lines of other queues about the same event are counted together.
    """

    def __init__(self, node: str, write: Callable[[str, str], None]) -> None:
        self._mirror = f"mirror on node '{node}'"
        self._write = write
        # None while nothing is sent.
        self._began_ms: int | None = None
        self._told_ms = 0
        # Bytes that were sent by earlier synchronisations.
        self._earlier_bytes = 0

    def begins(self, messages: int, sent_bytes: int, now_ms: int) -> None:
        """Log that the mirror is about to get `messages`; `sent_bytes` were sent to it before."""
        if self._began_ms is None and messages > 0:
            self._began_ms = self._told_ms = now_ms
            self._earlier_bytes = sent_bytes
            event = f"Synchronising the {self._mirror}"
            self._write(f"{event}, messages to send: {messages}", event)

    def advances(self, messages: int, left: int, now_ms: int) -> None:
        """Log the progress now and then: `messages` are sent, and about `left` are missing."""
        if self._began_ms is not None and now_ms - self._told_ms >= PROGRESS_LINE_MS:
            self._told_ms = now_ms
            event = f"Synchronising the {self._mirror}"
            share = messages * 100 // max(1, messages + left)
            self._write(f"{event}, {share} %; messages sent: {messages}", f"{event} goes on")

    def ends(self, messages: int, sent_bytes: int, now_ms: int) -> None:
        """The mirror has everything; `sent_bytes` count from its first synchronisation on."""
        if self._began_ms is not None:
            seconds = (now_ms - self._began_ms) / 1000
            size = sent_bytes - self._earlier_bytes
            self._began_ms = None
            event = f"The {self._mirror} is synchronised"
            text = f"{event}, in {seconds:.1f} s; messages: {messages}, bytes: {size}"
            self._write(text, event)

    def breaks(self, why: str, messages: int) -> None:
        """The synchronisation has come to no end after so many messages."""
        if self._began_ms is not None:
            self._began_ms = None
            event = f"Synchronising the {self._mirror} has stopped: {why}"
            self._write(f"{event}; messages sent: {messages}", event)
