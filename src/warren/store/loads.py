"""Loads that cannot go on at the moment: what they read is not written yet, or a read has failed."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

_RETRY_MS: Final = 100
_RETRY_MAX_MS: Final = 1000


class WaitingLoad:
    """A load, as those see it who have it wait."""

    def __init__(self) -> None:
        # Messages that it would have brought and that are lost.
        self.damaged_count: i64 = 0

    def read_on(self) -> None:
        """Look again whether what is wanted can be read."""
        raise RuntimeError("abstract")


class Loads:
    """The loads of one vhost that wait. Times in ms."""

    def __init__(self) -> None:
        self._waiting: list[WaitingLoad] = []
        # Those that are tried again, and when.
        self._failed: list[tuple[i64, WaitingLoad]] = []

    def wait(self, load: WaitingLoad) -> None:
        """`load` goes on when more has been written."""
        self._waiting.append(load)

    def retry(self, load: WaitingLoad, failures: i64, now_ms: i64) -> None:
        """`load` could not be done just now and is tried again after a pause, the longer the more `failures` came before."""
        pause: i64 = _RETRY_MS
        while failures > 0 and pause < _RETRY_MAX_MS:
            pause *= 2
            failures -= 1
        self._failed.append((now_ms + min(pause, i64(_RETRY_MAX_MS)), load))

    def is_retrying(self) -> bool:
        """Is there a load to be tried again?"""
        return len(self._failed) > 0

    def try_again(self, now_ms: i64) -> None:
        """Go on with the failed loads whose pause is over."""
        waiting = self._failed
        self._failed = []
        for entry in waiting:
            if now_ms >= entry[0]:
                entry[1].read_on()
            else:
                self._failed.append(entry)

    def go_on(self) -> None:
        """What loads wait for may have come."""
        loads = self._waiting
        self._waiting = []
        for load in loads:
            load.read_on()
