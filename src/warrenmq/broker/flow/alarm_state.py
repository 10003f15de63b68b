"""The state of a node's alarms: `alarms.py` switches it, the throttle of a connection uses it."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.broker.transaction import Transaction
from warrenmq.wire.errors import PRECONDITION_FAILED, ChannelException

# Kept frames of all connections (bytes) above which a blocked connection is not read.
KEPT_BYTES_MAX: Final = 16777216
# Publishes of open transactions (bytes) that may pass one memory alarm.
PASS_BYTES: Final = 33554432
# Unfinished messages may take the memory limit divided by this: those of one connection, and during
# a memory alarm those of all connections together.
UNFINISHED_SHARE: Final = 4
# Unfinished messages may always take this much (bytes), however low the memory limit is.
UNFINISHED_MIN_BYTES: Final = 16777216
OFF: Final = -1


class AlarmState:
    """The alarms that are on, and the limits that apply to clients. Sizes in bytes.

    `max_unfinished_bytes` limits the unfinished messages of a connection whatever the memory limit.
    """

    def __init__(self, max_unfinished_bytes: i64) -> None:
        self.memory_limit_bytes: i64 = 0
        # Start of the memory alarm (ms), or OFF.
        self.memory_since_ms: i64 = OFF
        # Start of the disk alarm (ms), or OFF.
        self.disk_since_ms: i64 = OFF
        # True while at least one alarm is on.
        self.is_on: bool = False
        # Bytes of the kept frames of all connections.
        self.kept_bytes: i64 = 0
        self.kept_bytes_max: i64 = KEPT_BYTES_MAX
        # Bytes of transactions that have passed the current alarm.
        self.passed_bytes: i64 = 0
        self._max_unfinished_bytes: i64 = max_unfinished_bytes

    def reason(self) -> bytes:
        """The reason in connection.blocked."""
        if self.disk_since_ms == OFF:
            return b"low on memory"
        return b"low on disk" if self.memory_since_ms == OFF else b"low on memory & disk"

    def names(self) -> str:
        """The alarms that are on, in words for a client that has waited in vain."""
        if self.disk_since_ms == OFF:
            subject = "the memory alarm of the broker is"
        elif self.memory_since_ms == OFF:
            subject = "the disk alarm of the broker is"
        else:
            subject = "the memory and disk alarms of the broker are"
        return f"{subject} on; publishers are blocked until that ends"

    def is_crowded(self) -> bool:
        """True while all connections keep so many bytes that blocked ones must not be read."""
        return self.kept_bytes > self.kept_bytes_max

    def unfinished_limit(self) -> i64:
        """Bytes of unfinished messages that one connection may have."""
        share = max(self.memory_limit_bytes // UNFINISHED_SHARE, i64(UNFINISHED_MIN_BYTES))
        return min(share, self._max_unfinished_bytes)

    def lets_pass(self, transaction: Transaction) -> bool:
        """Whether publishes of `transaction` may pass: it is not empty, and the disk alarm is off.

        The end of the transaction frees memory, but it does not help against a low disk.
        """
        return self.disk_since_ms == OFF and not transaction.is_empty()

    def check_pass(self, size: i64) -> None:
        """Raise ChannelException 406 if a publish of `size` bytes may not pass the alarm."""
        if self.passed_bytes + size > PASS_BYTES:
            raise ChannelException(
                PRECONDITION_FAILED,
                "low on memory: the transaction cannot take more messages",
                60,
                40,
            )

    def pass_publish(self, size: i64) -> None:
        """Count a publish of `size` bytes that passes the alarm; raises like `check_pass`."""
        self.check_pass(size)
        self.passed_bytes += size
