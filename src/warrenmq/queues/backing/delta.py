"""Delta: the messages of a queue that are on disk only, as a range of seq ids with a count."""

from typing import Final

from mypy_extensions import i64

from warrenmq.queues.entry import Entry

# Value of `Delta.first_expiry_ms` while the oldest message would have to be read to know it.
UNKNOWN: Final = -1


class Delta:
    """The seq ids [start, end), of which `count` are ready messages that are on disk only.

    Other seq ids in the range may be unacked: code that loads from it must ask for these.
    """

    def __init__(self) -> None:
        self.start: i64 = 0
        self.end: i64 = 0
        self.count: i64 = 0
        # Bytes of the bodies; an estimate after a restart.
        self.body_bytes: i64 = 0
        # Bytes of addresses, properties and bodies; an estimate after a restart.
        self.content_bytes: i64 = 0
        # Transient messages of a durable queue; an estimate after `shrink`, and while uncertain.
        self.transient_count: i64 = 0
        # Bytes of the bodies of these messages.
        self.transient_bytes: i64 = 0
        # When the oldest message expires (ms since 1970); 0: never.
        self.first_expiry_ms: i64 = UNKNOWN
        # A record in the range is damaged, and whether its message was ready is unknown. `count`
        # may be wrong by such messages, and stays above 0 until the range has been read to its end.
        self.is_uncertain: bool = False

    def covers(self, seq: i64) -> bool:
        """Whether `seq` is in the range."""
        return self.start <= seq < self.end

    def add(self, entry: Entry) -> None:
        """Count a message that leaves memory. The caller has set the range to cover it."""
        self.count += 1
        self.body_bytes += entry.body_bytes
        self.content_bytes += entry.content_bytes
        if not entry.persistent:
            ledger = entry.ledger
            if ledger.is_durable:
                ledger.remove_transient(entry)
                self.transient_count += 1
                self.transient_bytes += entry.body_bytes

    def remove(self, entry: Entry) -> i64:
        """Subtract a loaded message; returns by how much `count` is less: 1, or 0 at its bound."""
        if not entry.persistent:
            self._remove_transient(entry)
        self.body_bytes = max(0, self.body_bytes - entry.body_bytes)
        self.content_bytes = max(0, self.content_bytes - entry.content_bytes)
        # The count of a restart is right; should it not be, nothing goes below zero.
        if self.count > 1 or (self.count == 1 and not self.is_uncertain):
            self.count -= 1
            self._bound_transient()
            return 1
        return 0

    def lose(self, count: i64) -> i64:
        """Note that the index has lost `count` messages; returns how many were counted."""
        if count <= 0:
            return 0
        self.is_uncertain = True
        lost: i64 = max(0, min(count, self.count - 1))
        self.count -= lost
        self._bound_transient()
        return lost

    def shrink(self, count: i64, start: i64, end: i64) -> i64:
        """Forget `count` messages, the others being in [start, end); returns the lost `count`."""
        left: i64 = max(0, self.count - count) if start < end else 0
        # The forgotten messages are unknown: subtract averages.
        self.body_bytes = self.body_bytes * left // self.count
        self.content_bytes = self.content_bytes * left // self.count
        self.transient_count = self.transient_count * left // self.count
        self.transient_bytes = self.transient_bytes * left // self.count
        if start > self.start:
            self.first_expiry_ms = UNKNOWN
        lost = self.count - left
        self.start = start
        self.end = end
        self.count = left
        return lost

    def clear(self) -> None:
        """Reset to an empty range."""
        self.start = 0
        self.end = 0
        self.count = 0
        self.body_bytes = 0
        self.content_bytes = 0
        self.transient_count = 0
        self.transient_bytes = 0
        self.first_expiry_ms = UNKNOWN
        self.is_uncertain = False

    def _remove_transient(self, entry: Entry) -> None:
        ledger = entry.ledger
        if ledger.is_durable:
            ledger.add_transient(entry)
            self.transient_count = max(0, self.transient_count - 1)
            self.transient_bytes = max(0, self.transient_bytes - entry.body_bytes)

    def _bound_transient(self) -> None:
        if self.transient_count > self.count:
            # An estimate was too high.
            self.transient_count = self.count
