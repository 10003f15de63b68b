"""What has happened to the messages of a queue since the node was started."""

from mypy_extensions import i64


class QueueCounters:
    """Messages, each counter only grows."""

    def __init__(self) -> None:
        self.published: i64 = 0
        # Each delivery counts, also of one message.
        self.delivered: i64 = 0
        self.settled: i64 = 0
        self.requeued: i64 = 0
        self.expired: i64 = 0
