"""Counters of a queue's messages since the start of the node."""

from mypy_extensions import i64


class QueueCounters:
    """Numbers of messages; each counter only grows.

    What a mirror takes from its master counts in `published` and `settled` only.
    """

    def __init__(self) -> None:
        # Messages that arrived, from clients or in another way.
        self.published: i64 = 0
        # Publishes of clients that were routed to the queue, those that it refused included.
        self.routed: i64 = 0
        # Deliveries to consumers and answers to basic.get, to be acked or settled at once (no-ack).
        # A redelivered message counts again.
        self.handed_unacked: i64 = 0
        self.handed_settled: i64 = 0
        # Answers to basic.get, which are among these, and empty answers.
        self.got_unacked: i64 = 0
        self.got_settled: i64 = 0
        self.got_empty: i64 = 0
        # Deliveries and answers with the redelivered flag.
        self.redelivered: i64 = 0
        # Messages acked by clients or reader groups; rejected ones do not count.
        self.acked: i64 = 0
        self.settled: i64 = 0
        self.requeued: i64 = 0
        self.expired: i64 = 0
        # Messages whose content was read from disk.
        self.read: i64 = 0

    @property
    def delivered(self) -> i64:
        """Deliveries to consumers and answers to basic.get."""
        return self.handed_unacked + self.handed_settled
