"""Counters of a queue's messages since the start of the node."""

from mypy_extensions import i64


class QueueCounters:
    """Numbers of messages; each counter only grows."""

    def __init__(self) -> None:
        self.published: i64 = 0
        # Each delivery counts, so a redelivered message counts again.
        self.delivered: i64 = 0
        self.settled: i64 = 0
        self.requeued: i64 = 0
        self.expired: i64 = 0
        # Messages whose content was read from disk.
        self.read: i64 = 0
