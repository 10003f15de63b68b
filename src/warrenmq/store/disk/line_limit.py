"""Limits how often a repeated failure writes a line to the log."""

import time
from typing import Final

INTERVAL_S: Final = 1.0
# Subjects remembered at most. Forgetting one does no harm: its next line comes early.
_SUBJECTS_MAX: Final = 1000


class LineLimit:
    """Allows one log line a second about each subject. Any thread may call it."""

    def __init__(self) -> None:
        # When the next line about a subject is allowed, in seconds of the monotonic clock.
        self._next_s: dict[str, float] = {}

    def allows(self, subject: str) -> bool:
        """Whether a line about `subject` is allowed now; the caller writes it then."""
        now_s = time.monotonic()
        if now_s < self._next_s.get(subject, now_s):
            return False
        if len(self._next_s) >= _SUBJECTS_MAX:
            self._next_s = {}
        self._next_s[subject] = now_s + INTERVAL_S
        return True
