"""Measures the free disk space below the data directory and reports it to the broker.

The more space is free, the longer the time to the next measurement: half the time in which the
fastest disk would fill the space down to the limit. A thread measures, not the loop, because a disk
that hangs does not answer.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from warrenmq.broker.broker import Broker

logger = logging.getLogger("warren.disk")

# The fastest rate at which any disk fills up (bytes per ms).
FAST_BYTES_PER_MS: Final = 250000
# Bounds of the time between two measurements (ms).
INTERVAL_MIN_MS: Final = 100
INTERVAL_MAX_MS: Final = 10000


def interval_ms(free_bytes: int, limit_bytes: int) -> int:
    """Time (ms) until the next measurement."""
    if free_bytes < limit_bytes:
        return INTERVAL_MAX_MS
    ideal = (free_bytes - limit_bytes) // (2 * FAST_BYTES_PER_MS)
    return max(INTERVAL_MIN_MS, min(INTERVAL_MAX_MS, ideal))


def free_bytes(directory: Path) -> int:
    """Bytes that may still be written below `directory`; OSError when the disk does not answer."""
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize


class DiskMonitor:
    """Measures free disk space while the node runs.

    `measure` runs on another thread and returns bytes; `now_ms` is the node's clock.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        broker: Broker,
        now_ms: Callable[[], int],
        measure: Callable[[], int],
    ) -> None:
        self._loop = loop
        self._broker = broker
        self._now_ms = now_ms
        self._measure = measure
        self._has_failed = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False

    async def start(self) -> None:
        """Measure once before the first client connects, and from then on regularly."""
        await self._measure_and_plan()

    def stop(self) -> None:
        """Stop measuring."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    async def _measure_and_plan(self) -> None:
        wait_ms = INTERVAL_MAX_MS
        try:
            free = await self._loop.run_in_executor(None, self._measure)
        except OSError as error:
            # The last known figure stays in force.
            if not self._has_failed:
                logger.error("free disk space cannot be determined: %s", error)
            self._has_failed = True
        else:
            self._has_failed = False
            if self._is_stopped:
                return
            self._broker.disk_free(free, self._now_ms())
            wait_ms = interval_ms(free, self._broker.alarms.disk_limit_bytes)
        if not self._is_stopped:
            self._timer = self._loop.call_later(wait_ms / 1000, self._measure_again)

    def _measure_again(self) -> None:
        self._task = self._loop.create_task(self._measure_and_plan())
