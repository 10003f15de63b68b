"""A reserve of a reader group while it is under way, with its limits (`group.py`)."""

from typing import Final, final

from mypy_extensions import i64

from warrenmq.queues.entry import Entry

# Above every position and count; small enough to add to it within an i64.
EVERYTHING: Final = 1 << 62

# How a slice of a reserve ended.
ENOUGH: Final = 0  # a limit is reached, or no more messages can be reserved
MORE: Final = 1  # call again
LOADING: Final = 2  # the next messages are being read from disk; call again on the callback


@final
class Reservation:
    """A reserve under way: what was asked for, and how much has been reserved."""

    def __init__(self, start: i64, until: i64, max_messages: i64, max_bytes: i64) -> None:
        self.start: i64 = start
        # The reserve stops at this position (the target of a run that reads what is there now).
        self.until: i64 = until
        self.max_messages: i64 = max_messages
        self.max_bytes: i64 = max_bytes
        self.end: i64 = start
        self.message_count: i64 = 0
        self.bytes: i64 = 0
        # A load found nothing to reserve. No other load is made until messages were taken from
        # memory, or the caller clears this.
        self.is_dry: bool = False

    def is_full(self) -> bool:
        """Whether a limit is reached."""
        return self.message_count >= self.max_messages or self.bytes >= self.max_bytes

    def add(self, entry: Entry) -> None:
        """Count one message in."""
        self.end = entry.seq + 1
        self.message_count += 1
        self.bytes += entry.content_bytes
