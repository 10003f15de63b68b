"""Memory and disk alarms: when they are on, and how they block publishers.

The memory alarm is on while the node uses more memory than its limit; the disk alarm is on while
less disk space than its limit is free. While either alarm is on, connections that publish are
blocked (`throttle.py`). All other connections continue, so that consumers can empty the node.
Publishers continue when both alarms are off. The shell measures and reports (`memory_used`,
`disk_free`). Limits may change while the node runs; a new limit applies at once to the last
measurement.

After an alarm, connections are unblocked one after another, about RELEASE_BYTES of kept frames a
turn: thousands of blocked publishers must not stop all other clients a second time. If an alarm
comes on again meanwhile, the connections that still wait stay blocked.

Blocked connections use memory themselves: bodies that are arriving and transactions without a
commit. No consumer can free this memory, so the memory alarm must not wait for that. An open
transaction may continue until PASS_BYTES of all transactions together have passed the alarm; then
it is refused. If unfinished messages still take more than a quarter of the limit after
SHED_AFTER_MS, the connections with the most are closed with 506 (`shed`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final

from mypy_extensions import i64

from warrenmq.broker.event_listener import INTERNAL_USER, EventListener
from warrenmq.broker.flow.alarm_state import OFF, UNFINISHED_MIN_BYTES, UNFINISHED_SHARE, AlarmState
from warrenmq.broker.flow.throttle import ThrottleHost
from warrenmq.wire.errors import RESOURCE_ERROR, ConnectionException

logger = logging.getLogger("warren.alarms")

# A memory alarm lasts this long (ms) before connections are closed for their unfinished messages:
# time for paging and for commits.
SHED_AFTER_MS: Final = 1000
# Kept frames (bytes) that one turn handles after an alarm.
RELEASE_BYTES: Final = 1048576
_UNKNOWN: Final = -1


class Alarms(AlarmState):
    """The alarms of a node and their limits, in bytes.

    Limits are absolute, or relative to the machine's memory: `set_memory_limit` and
    `set_disk_limit` take either. `clients` are the node's connections, the oldest first, as they
    come and go; `wake` asks for a turn.
    """

    def __init__(
        self,
        total_memory_bytes: i64,
        max_unfinished_bytes: i64,
        clients: Collection[ThrottleHost],
        wake: Callable[[], None],
    ) -> None:
        super().__init__(max_unfinished_bytes)
        self.total_memory_bytes: i64 = total_memory_bytes
        self.disk_limit_bytes: i64 = 0
        # The memory limit as a share of all memory; negative for an absolute limit.
        self.memory_limit_share: float = -1.0
        self.memory_used_bytes: i64 = _UNKNOWN
        self.disk_free_bytes: i64 = _UNKNOWN
        self.release_bytes: i64 = RELEASE_BYTES
        # None while nobody wants to know of events.
        self.events: EventListener | None = None
        self._clients: Collection[ThrottleHost] = clients
        self._wake: Callable[[], None] = wake
        self._releasing: list[ThrottleHost] = []

    # -- unfinished messages -----------------------------------------------------------------------

    def shed(self, now_ms: i64) -> None:
        """Close connections whose unfinished messages keep the memory alarm on.

        Called about once a second.
        """
        if self.memory_since_ms == OFF or now_ms - self.memory_since_ms < SHED_AFTER_MS:
            return
        limit = max(self.memory_limit_bytes // UNFINISHED_SHARE, i64(UNFINISHED_MIN_BYTES))
        total: i64 = 0
        for connection in self._clients:
            total += connection.throttle.unfinished_bytes
        if total <= limit:
            return
        logger.warning(
            "memory alarm: unfinished messages take %d bytes, %d are allowed; connections with most are closed",
            total,
            limit,
        )
        for connection in sorted(self._clients, key=_unfinished_bytes, reverse=True):
            size = connection.throttle.unfinished_bytes
            connection.now_ms = now_ms
            connection.fail(
                ConnectionException(
                    RESOURCE_ERROR,
                    f"low on memory: {size} bytes of unfinished messages on this connection",
                )
            )
            total -= size
            if total <= limit // 2:
                return

    # -- limits ------------------------------------------------------------------------------------

    def set_memory_limit(self, absolute_bytes: i64, relative: float, now_ms: i64) -> None:
        """Set the limit in bytes, at most all memory; if `absolute_bytes` < 0, to a share of it."""
        total = self.total_memory_bytes
        self.memory_limit_share = relative if absolute_bytes < 0 else -1.0
        self.memory_limit_bytes = (
            share_of(total, relative) if absolute_bytes < 0 else min(absolute_bytes, total)
        )
        logger.info(
            "memory high watermark set to %d MiB (%d bytes) of %d MiB (%d bytes) total",
            self.memory_limit_bytes >> 20,
            self.memory_limit_bytes,
            total >> 20,
            total,
        )
        self._judge_memory(now_ms)

    def set_disk_limit(self, absolute_bytes: i64, relative: float, now_ms: i64) -> None:
        """Set the limit in bytes, or to `relative` times all memory if `absolute_bytes` < 0."""
        limit = (
            share_of(self.total_memory_bytes, relative) if absolute_bytes < 0 else absolute_bytes
        )
        self.disk_limit_bytes = limit
        logger.info("disk free limit set to %d MB (%d bytes)", limit // 1000000, limit)
        self._judge_disk(now_ms)

    # -- measurements ------------------------------------------------------------------------------

    def memory_used(self, used_bytes: i64, now_ms: i64) -> None:
        """Take a new measurement of the node's memory and switch the alarm."""
        self.memory_used_bytes = used_bytes
        self._judge_memory(now_ms)

    def disk_free(self, free_bytes: i64, now_ms: i64) -> None:
        """Take a new measurement of the free disk space and switch the alarm."""
        self.disk_free_bytes = free_bytes
        self._judge_disk(now_ms)

    def _judge_memory(self, now_ms: i64) -> None:
        used = self.memory_used_bytes
        if used == _UNKNOWN:
            return
        limit = self.memory_limit_bytes
        is_on = used > limit
        if is_on == (self.memory_since_ms != OFF):
            return
        if is_on:
            logger.warning(
                "memory alarm: %d bytes are used, %d are allowed; publishers are blocked until it clears",
                used,
                limit,
            )
        else:
            seconds = (now_ms - self.memory_since_ms) // 1000
            logger.info(
                "memory alarm cleared after %d s: %d bytes are used, %d are allowed",
                seconds,
                used,
                limit,
            )
        self.memory_since_ms = now_ms if is_on else OFF
        self._announce("memory", is_on)
        self._apply()

    def _judge_disk(self, now_ms: i64) -> None:
        free = self.disk_free_bytes
        if free == _UNKNOWN:
            return
        limit = self.disk_limit_bytes
        is_on = free < limit
        if is_on == (self.disk_since_ms != OFF):
            return
        if is_on:
            logger.warning(
                "disk alarm: %d bytes are free, the limit is %d; publishers are blocked until it clears",
                free,
                limit,
            )
        else:
            seconds = (now_ms - self.disk_since_ms) // 1000
            logger.info(
                "disk alarm cleared after %d s: %d bytes are free, the limit is %d",
                seconds,
                free,
                limit,
            )
        self.disk_since_ms = now_ms if is_on else OFF
        self._announce("disk", is_on)
        self._apply()

    # -- effect ------------------------------------------------------------------------------------

    def _announce(self, source: str, is_on: bool) -> None:
        if self.events is not None:
            self.events("alarm.set" if is_on else "alarm.cleared", source, b"", INTERNAL_USER)

    def _apply(self) -> None:
        is_on = self.memory_since_ms != OFF or self.disk_since_ms != OFF
        if is_on == self.is_on:
            return
        self.is_on = is_on
        if is_on:
            self._releasing = []
            self.passed_bytes = 0
            for connection in self._clients:
                connection.throttle.is_alarmed = True
            return
        for connection in self._clients:
            if connection.throttle.is_blocked:
                self._releasing.append(connection)
                self._wake()
            else:
                connection.throttle.end_alarm(connection)
        # `release_some` takes connections from the end of the list: the oldest connection is first.
        self._releasing.reverse()

    def release_some(self, now_ms: i64) -> None:
        """Unblock the next connections after an alarm; called once a turn."""
        waiting = self._releasing
        if len(waiting) == 0:
            return
        size: i64 = 0
        while len(waiting) > 0 and size < self.release_bytes:
            connection = waiting.pop()
            size += connection.throttle.unblock(connection, now_ms)
            self._wake()


def share_of(total_bytes: i64, share: float) -> i64:
    """`share` times `total_bytes`, cut to whole bytes."""
    whole = int(float(total_bytes) * share)
    return whole


def _unfinished_bytes(connection: ThrottleHost) -> int:
    return connection.throttle.unfinished_bytes
