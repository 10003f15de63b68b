"""Loads that wait: their data is not written yet, or a read has failed and will be retried."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

# Retries of a failed read. The pauses double up to a second, which makes five seconds and a half in
# all; other loads run meanwhile. A load does not wait for a file that is gone.
READ_TRIES: Final = 8
_RETRY_MS: Final = 100
_RETRY_MAX_MS: Final = 1000


class WaitingLoad:
    """A load that can be resumed."""

    def read_on(self) -> None:
        """Resume: check again whether the data can be read."""
        raise RuntimeError("abstract")


class Loads:
    """The waiting loads of one vhost. Times in ms."""

    def __init__(self) -> None:
        self._waiting: list[WaitingLoad] = []
        # Loads waiting for a retry, with their due time (ms).
        self._failed: list[tuple[i64, WaitingLoad]] = []

    def wait(self, load: WaitingLoad) -> None:
        """Resume `load` when more data is written."""
        self._waiting.append(load)

    def retry(self, load: WaitingLoad, failures: i64, now_ms: i64) -> None:
        """Retry `load` after a pause, which doubles with each of its `failures`, up to a second."""
        pause: i64 = _RETRY_MS
        while failures > 0 and pause < _RETRY_MAX_MS:
            pause *= 2
            failures -= 1
        self._failed.append((now_ms + min(pause, i64(_RETRY_MAX_MS)), load))

    def is_retrying(self) -> bool:
        """True while a load waits for a retry."""
        return len(self._failed) > 0

    def retry_due(self, now_ms: i64) -> None:
        """Resume the failed loads whose pause is over."""
        waiting = self._failed
        self._failed = []
        for entry in waiting:
            if now_ms >= entry[0]:
                entry[1].read_on()
            else:
                self._failed.append(entry)

    def resume_waiting(self) -> None:
        """Resume every load that waits for data: more may be written now."""
        loads = self._waiting
        self._waiting = []
        for load in loads:
            load.read_on()
