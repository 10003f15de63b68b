"""Log lines for lost messages and damaged files: at most one line a second for each queue.

Thousands of messages may be lost for one reason. So losses are gathered by queue and cause and
logged together at the end of a turn: the first at once, later ones a second after the last report.
The figures count each loss when it occurs (`StoreFigures`).
"""

from __future__ import annotations

import logging
from typing import Final

from mypy_extensions import i64

logger = logging.getLogger("warren.losses")

_INTERVAL_MS: Final = 1000
# Lines of one report; the other queues follow a second later.
_QUEUES_MAX: Final = 500


class _Lost:
    """The losses of one subject for one cause: their number, lowest and highest id."""

    def __init__(self, first: i64) -> None:
        self.count: i64 = 0
        self.first: i64 = first
        self.last: i64 = first


class _Losses:
    """The unreported losses of one queue or content store. Sizes in bytes."""

    def __init__(self, subject: str, what: str) -> None:
        self.subject: str = subject
        self.what: str = what
        # Losses by cause.
        self.lost: dict[str, _Lost] = {}
        self.stretches: i64 = 0
        self.damaged_bytes: i64 = 0
        self.first_place: str = ""
        self.last_place: str = ""

    def text(self) -> str:
        parts: list[str] = []
        for cause, lost in self.lost.items():
            parts.append(
                f"{lost.count} {self.what} are lost: {cause} (ids {lost.first} to {lost.last})"
            )
        if self.stretches > 0:
            parts.append(
                f"{self.stretches} damaged stretches with {self.damaged_bytes} bytes, from {self.first_place} "
                f"to {self.last_place}; copied to lost+found"
            )
        return f"{self.subject}: {'; '.join(parts)}"


class LossLog:
    """The unreported losses of one vhost. Times in ms."""

    def __init__(self, vhost: bytes) -> None:
        self._vhost: str = vhost.decode("utf-8", "replace")
        # Unreported losses by subject.
        self._waiting: dict[str, _Losses] = {}
        self._next_ms: i64 = 0

    def add_messages(
        self, queue: str, count: i64, first_seq: i64, last_seq: i64, cause: str
    ) -> None:
        """Add `count` lost messages of a queue, out of those from `first_seq` to `last_seq`."""
        _add(self._of(queue, "messages"), count, first_seq, last_seq, cause)

    def add_content(self, directory: str, content_id: i64) -> None:
        """Add a lost content; its queues report the lost messages when they load them."""
        _add(self._of(directory, "contents"), 1, content_id, content_id, "they are damaged")

    def add_damage(self, queue: str, path: str, offset: i64, size: i64) -> None:
        """Add a damaged stretch of `size` bytes in a file of a queue."""
        losses = self._of(queue, "messages")
        if losses.stretches == 0:
            losses.first_place = f"byte {offset} of {path}"
        losses.last_place = f"byte {offset + size} of {path}"
        losses.stretches += 1
        losses.damaged_bytes += size

    def report(self, now_ms: i64) -> None:
        """Log gathered losses if the last report is a second old or more; called once a turn."""
        if len(self._waiting) > 0 and now_ms >= self._next_ms:
            self._next_ms = now_ms + _INTERVAL_MS
            self._log(_QUEUES_MAX)

    def report_all(self) -> None:
        """Log all gathered losses; called at the end of a start and when the node stops."""
        self._log(len(self._waiting))

    def _log(self, queues_max: i64) -> None:
        for subject in list(self._waiting)[:queues_max]:
            logger.error("vhost '%s': %s", self._vhost, self._waiting.pop(subject).text())

    def _of(self, subject: str, what: str) -> _Losses:
        losses = self._waiting.get(subject)
        if losses is None:
            losses = self._waiting[subject] = _Losses(subject, what)
        return losses


def _add(losses: _Losses, count: i64, first: i64, last: i64, cause: str) -> None:
    lost = losses.lost.get(cause)
    if lost is None:
        lost = losses.lost[cause] = _Lost(first)
    lost.count += count
    lost.first = min(lost.first, first)
    lost.last = max(lost.last, last)
