"""Delta: the part of a queue that is on disk only, as a range of seq ids with a count."""

from typing import Final

from mypy_extensions import i64

# `Delta.first_expiry_ms`: not known without reading.
UNKNOWN: Final = -1


class Delta:
    """A range of seq ids that are on disk only: `count` ready ones in [start, end).

    Others in that range may be unacked; who loads from it asks.
    """

    def __init__(self) -> None:
        self.start: i64 = 0
        self.end: i64 = 0
        self.count: i64 = 0
        # Bytes of bodies, and of addresses, properties and bodies. After a restart they are estimates.
        self.body_bytes: i64 = 0
        self.content_bytes: i64 = 0
        # When the oldest one expires; 0 = never.
        self.first_expiry_ms: i64 = UNKNOWN
        # Something in it was damaged. Whether that was ready nobody knows, so `count` may be wrong by it, and does not
        # become 0 before the range was read to its end.
        self.is_uncertain: bool = False

    def covers(self, seq: i64) -> bool:
        """Is `seq` in the range?"""
        return self.start <= seq < self.end

    def clear(self) -> None:
        """Nothing is left in it."""
        self.start = 0
        self.end = 0
        self.count = 0
        self.body_bytes = 0
        self.content_bytes = 0
        self.first_expiry_ms = UNKNOWN
        self.is_uncertain = False
