"""Keeps what fails thousands of times from filling the log."""

import time
from typing import Final

INTERVAL_S: Final = 1.0
# So many subjects are remembered; it does no harm to forget them.
_SUBJECTS_MAX: Final = 1000


class LineLimit:
    """Lets a line about the same subject through once a second. Any thread may ask."""

    def __init__(self) -> None:
        # When each may be spoken of again, in seconds of the monotonic clock.
        self._next_s: dict[str, float] = {}

    def allows(self, subject: str) -> bool:
        """May there be a line about `subject` now?"""
        now_s = time.monotonic()
        if now_s < self._next_s.get(subject, now_s):
            return False
        if len(self._next_s) >= _SUBJECTS_MAX:
            self._next_s = {}
        self._next_s[subject] = now_s + INTERVAL_S
        return True
