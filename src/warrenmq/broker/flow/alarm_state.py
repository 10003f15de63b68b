"""The state of a node's alarms, for the brakes of its connections (`throttle.py`); `alarms.py` judges and changes it."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.broker.transaction import Transaction
from warrenmq.wire.errors import PRECONDITION_FAILED, ChannelException

# Kept frames of all connections (bytes) above which a blocked connection is not read at all.
KEPT_BYTES_MAX: Final = 16777216
# Publishes of open transactions (bytes) that pass one memory alarm.
PASS_BYTES: Final = 33554432
# Share of the memory limit that one connection's unfinished messages may take, and all together during a memory alarm.
UNFINISHED_SHARE: Final = 4
# Unfinished messages may always take this much (bytes), however low the memory limit is.
UNFINISHED_MIN_BYTES: Final = 16777216
OFF: Final = -1


class AlarmState:
    """Which alarms are on, and what may pass them. Sizes in bytes.

    `max_unfinished_bytes` bounds the unfinished messages of a connection whatever the memory limit.
    """

    def __init__(self, max_unfinished_bytes: i64) -> None:
        self.memory_limit_bytes: i64 = 0
        # When each came on (ms), or OFF.
        self.memory_since_ms: i64 = OFF
        self.disk_since_ms: i64 = OFF
        self.is_on: bool = False
        # Bytes of frames that all connections together keep.
        self.kept_bytes: i64 = 0
        self.kept_bytes_max: i64 = KEPT_BYTES_MAX
        # Bytes of transactions that have passed this alarm.
        self.passed_bytes: i64 = 0
        self._max_unfinished_bytes: i64 = max_unfinished_bytes

    def reason(self) -> bytes:
        """What connection.blocked says."""
        if self.disk_since_ms == OFF:
            return b"low on memory"
        return b"low on disk" if self.memory_since_ms == OFF else b"low on memory & disk"

    def is_crowded(self) -> bool:
        """Do all connections together keep so much that blocked ones must not be read at all?"""
        return self.kept_bytes > self.kept_bytes_max

    def unfinished_limit(self) -> i64:
        """Bytes of unfinished messages that a connection may have, and all connections during a memory alarm."""
        share = max(self.memory_limit_bytes // UNFINISHED_SHARE, i64(UNFINISHED_MIN_BYTES))
        return min(share, self._max_unfinished_bytes)

    def lets_pass(self, transaction: Transaction) -> bool:
        """May publishes of `transaction` pass the alarm? Not a low disk: that does not wait for this transaction."""
        return self.disk_since_ms == OFF and not transaction.is_empty()

    def check_pass(self, size: i64) -> None:
        """Raises ChannelException 406 when a publish of `size` bytes may not pass the alarm."""
        if self.passed_bytes + size > PASS_BYTES:
            raise ChannelException(
                PRECONDITION_FAILED,
                "low on memory: the transaction cannot take more messages",
                60,
                40,
            )

    def pass_publish(self, size: i64) -> None:
        """A publish of `size` bytes passes the alarm. Raises like `check_pass`."""
        self.check_pass(size)
        self.passed_bytes += size
