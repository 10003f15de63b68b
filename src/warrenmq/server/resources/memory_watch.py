"""Measures how much of all memory this process uses, and reports it to the broker.

All memory is the machine's, or the limit of the process's control group (version 2 or 1) when that
is lower: beyond it the system kills. Used memory is the resident set, because the system decides by
it whom to kill.

The watch measures once a second, ten times a second when little is left, and whenever clients have
sent enough to matter: in one second a client can send more than there is room for.

Freed memory stays resident until the allocator gives it back, so a node that was full once may look
full forever. Three measures help:

* When much more is resident than messages take, the watch gives free gaps back in small steps
  (`heap_release.py`), and again when that surplus has grown since. At most every 10 s.
* When the limit is reached all the same, the watch calls malloc_trim, which stops everything for a
  while, and decides only afterwards whether there is an alarm. At most every 10 s, but sooner after
  much memory was freed: the end of a rolled-back transaction or of a large connection must end an
  alarm at once.
* A small process trims each time its clients fall silent, so that it takes only as much as it
  needs, whatever its past load.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from warrenmq.broker.broker import Broker
from warrenmq.server.resources.heap_release import HeapRelease

# Time between two measurements (s): normally, and when less than a fifth of the limit is left.
INTERVAL_S: Final = 1.0
CLOSE_INTERVAL_S: Final = 0.1
# Least time between two trims, and between two heap releases (ms).
TRIM_INTERVAL_MS: Final = 10000
# A trim comes sooner than TRIM_INTERVAL_MS when this many more bytes are free than the last trim
# left, but not within TRIM_AGAIN_MS.
TRIM_AGAIN_BYTES: Final = 1 << 25
TRIM_AGAIN_MS: Final = 500
# A heap release begins when unaccounted bytes exceed 1 / RELEASE_SHARE of the resident set, and
# have grown by RELEASE_MIN_BYTES since the last release.
RELEASE_SHARE: Final = 4
RELEASE_MIN_BYTES: Final = 1 << 27
# Pause between two steps of a heap release (s), ten times a step.
RELEASE_PAUSE_S: Final = 0.005
# A process of at most this many resident bytes is trimmed at once when nothing was received between
# two measurements: that takes a millisecond or two.
QUIET_TRIM_BYTES: Final = 1 << 27
# The next measurement is due after 1 / RECEIVED_SHARE of the remaining bytes was received, at least
# RECEIVED_MIN_BYTES. The share is small because a small message takes several times its wire size
# in memory.
RECEIVED_SHARE: Final = 16
RECEIVED_MIN_BYTES: Final = 1 << 20
# Total memory when neither the system nor the configuration says how much there is (RabbitMQ
# assumes the same).
UNKNOWN_TOTAL_BYTES: Final = 1 << 30
# A control group without a limit shows a number close to 2**63.
_NO_LIMIT_BYTES: Final = 1 << 60


def total_memory_bytes(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """All memory (bytes) that this process may use."""
    limits = [limit for limit in _group_limits(proc, groups) if limit < _NO_LIMIT_BYTES]
    for line in _lines(proc / "meminfo"):
        name, _, value = line.partition(":")
        if name == "MemTotal":
            limits.append(int(value.split()[0]) * 1024)
    return min(limits, default=UNKNOWN_TOTAL_BYTES)


def _group_limits(proc: Path, groups: Path) -> list[int]:
    """The limits (bytes) of the process's control groups and their parents."""
    found: list[int] = []
    for line in _lines(proc / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, name = groups, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = groups / "memory", "memory.limit_in_bytes"
        else:
            continue
        # Inside a container the path is the host's and does not exist there; the root is then the
        # container's own group.
        directory = root / path.strip("/")
        while True:
            found += [int(text) for text in _lines(directory / name) if text.strip().isdigit()]
            if directory == root:
                break
            directory = directory.parent
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


class ResidentMemory:
    """This process's resident set; unknown without /proc, and then there are no memory alarms."""

    def __init__(self) -> None:
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        try:
            self._descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._descriptor = -1

    def used_bytes(self) -> int:
        """Resident bytes; 0 when unknown."""
        if self._descriptor < 0:
            return 0
        return int(os.pread(self._descriptor, 128, 0).split()[1]) * self._page_bytes

    def close(self) -> None:
        """Close the descriptor."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def find_malloc_trim() -> Callable[[], object]:
    """glibc's malloc_trim; with another allocator a function that does nothing."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return (lambda: trim(0)) if trim is not None else (lambda: None)


class MemoryWatch:
    """Measures memory while the node runs. `now_ms` is the node's clock."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        broker: Broker,
        now_ms: Callable[[], int],
        used_bytes: Callable[[], int],
        trim: Callable[[], object],
        release: HeapRelease | None,
    ) -> None:
        self._loop = loop
        self._broker = broker
        self._now_ms = now_ms
        self._used_bytes = used_bytes
        self._trim = trim
        self._trimmed_ms = now_ms() - TRIM_INTERVAL_MS
        # Unaccounted bytes that the last trim left.
        self._trim_left_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        # Bytes of `_granted` that may still be received before the next measurement.
        self._receivable = RECEIVED_MIN_BYTES
        # Bytes that the last measurement allowed to be received before the next one.
        self._granted = RECEIVED_MIN_BYTES
        # Whether anything was received since the last trim of a silent process.
        self._has_worked = False
        self._is_trimming = False
        self._is_stopped = False
        # Gives free memory back in small steps; None when the allocator is not glibc's.
        self._release = release
        # Timer of the next step; None when no release is under way.
        self._release_timer: asyncio.TimerHandle | None = None
        # End of the last release (ms).
        self._released_ms = now_ms() - TRIM_INTERVAL_MS
        # Unaccounted bytes that stayed resident after the last release.
        self._stayed_bytes = 0

    def start(self) -> None:
        """Measure at once, and from then on regularly."""
        self._judge()

    def stop(self) -> None:
        """Stop measuring."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._end_release()

    def received(self, size: int) -> None:
        """Count `size` bytes from a client; measure when they have used up the allowance."""
        self._receivable -= size
        if self._receivable < 0 and not self._is_trimming and not self._is_stopped:
            if self._timer is not None:
                self._timer.cancel()
            self._measure()

    def _measure(self) -> None:
        now_ms = self._now_ms()
        used = self._used_bytes()
        if used > self._broker.alarms.memory_limit_bytes and self._is_trim_due(used, now_ms):
            self._trimmed_ms = now_ms
            self._is_trimming = True
            self._end_release()
            self._loop.run_in_executor(None, self._trim).add_done_callback(
                lambda _done: self._judge()
            )
        else:
            self._judge()

    def _is_trim_due(self, used: int, now_ms: int) -> bool:
        waited_ms = now_ms - self._trimmed_ms
        if waited_ms < TRIM_AGAIN_MS:
            return False
        freed = self._unaccounted(used) - self._trim_left_bytes
        return waited_ms >= TRIM_INTERVAL_MS or freed > TRIM_AGAIN_BYTES

    def _judge(self) -> None:
        if self._is_stopped:
            return
        used = self._used_bytes()
        if self._is_trimming:
            self._is_trimming = False
            self._trim_left_bytes = self._unaccounted(used)
        limit = self._broker.alarms.memory_limit_bytes
        is_silent = self._receivable == self._granted
        self._granted = max((limit - used) // RECEIVED_SHARE, RECEIVED_MIN_BYTES)
        self._receivable = self._granted
        self._broker.memory_used(used, self._now_ms())
        if not is_silent:
            self._has_worked = True
        elif self._has_worked and used <= QUIET_TRIM_BYTES:
            self._has_worked = False
            self._trim()
        self._plan_release(used)
        self._timer = self._loop.call_later(
            CLOSE_INTERVAL_S if used > limit * 4 // 5 else INTERVAL_S, self._measure
        )

    # -- free memory -------------------------------------------------------------------------------

    def _unaccounted(self, used: int) -> int:
        """Resident bytes that no message accounts for."""
        account = self._broker.memory_account
        return max(used - account.ram_bytes - account.unfinished_bytes, 0)

    def _plan_release(self, used: int) -> None:
        if self._release is None or self._release_timer is not None:
            return
        size = self._unaccounted(used)
        self._stayed_bytes = min(self._stayed_bytes, size)
        is_much = size > used // RELEASE_SHARE and size - self._stayed_bytes > RELEASE_MIN_BYTES
        if is_much and self._now_ms() - self._released_ms >= TRIM_INTERVAL_MS:
            self._release.begin()
            self._release_timer = self._loop.call_later(RELEASE_PAUSE_S, self._release_some)

    def _release_some(self) -> None:
        assert self._release is not None
        if self._release.step():
            self._release_timer = self._loop.call_later(RELEASE_PAUSE_S, self._release_some)
            return
        self._release_timer = None
        self._released_ms = self._now_ms()
        self._stayed_bytes = self._unaccounted(self._used_bytes())

    def _end_release(self) -> None:
        if self._release_timer is not None and self._release is not None:
            self._release_timer.cancel()
            self._release_timer = None
            self._release.end()
