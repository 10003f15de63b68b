"""Delta: the messages of a queue that are on disk only, as a range of seq ids with a count."""

from typing import Final

from mypy_extensions import i64

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
        # When the oldest message expires (ms since 1970); 0: never.
        self.first_expiry_ms: i64 = UNKNOWN
        # A record in the range is damaged, and whether its message was ready is unknown. `count`
        # may be wrong by such messages, and stays above 0 until the range has been read to its end.
        self.is_uncertain: bool = False

    def covers(self, seq: i64) -> bool:
        """Whether `seq` is in the range."""
        return self.start <= seq < self.end

    def clear(self) -> None:
        """Reset to an empty range."""
        self.start = 0
        self.end = 0
        self.count = 0
        self.body_bytes = 0
        self.content_bytes = 0
        self.first_expiry_ms = UNKNOWN
        self.is_uncertain = False
