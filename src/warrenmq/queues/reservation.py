"""A reserve of a reader group on its way, with its limits (`reader_group.py`)."""

from typing import final

from mypy_extensions import i64

from warrenmq.queues.entry import Entry


@final
class Reservation:
    """A reserve on its way: what was asked, and how far it got."""

    def __init__(self, start: i64, until: i64, max_messages: i64, max_bytes: i64) -> None:
        self.start: i64 = start
        # Never past this position (the target of a run that reads what is there now).
        self.until: i64 = until
        self.max_messages: i64 = max_messages
        self.max_bytes: i64 = max_bytes
        self.end: i64 = start
        self.message_count: i64 = 0
        self.bytes: i64 = 0
        # A load found nothing that may be taken: not asked again before something has happened.
        self.is_dry: bool = False

    def is_full(self) -> bool:
        """Has a limit been reached?"""
        return self.message_count >= self.max_messages or self.bytes >= self.max_bytes

    def add(self, entry: Entry) -> None:
        """Count one message in."""
        self.end = entry.seq + 1
        self.message_count += 1
        self.bytes += entry.content_bytes
