"""A message's content, and its position in one queue, as the store sees them.

Content is kept in the form in which it travels: `address` is the two short strings `exchange, routing key` exactly
as a publish carries them and a deliver repeats them, `properties` is the raw property block from the flag word on.
Nothing is decoded to be stored or delivered. A message routed to several queues is one `Message` with several
positions, and its content is written once (S37).
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

# Life of a position in the journal.
NOT_JOURNALED: Final = 0  # transient, or its batch failed: lives in memory only
PENDING: Final = 1  # in the batch that gathers; settled now, it never costs a write
WRITTEN: Final = 2  # in a sealed batch; settling it takes an ack record
SETTLED: Final = 3  # settled while still pending


@mypyc_attr(acyclic=True)
class JournalFile:
    """One `<number>.wal`: how large it is and how much of it is still wanted (bytes)."""

    def __init__(self, number: i64) -> None:
        self.number: i64 = number
        self.size_bytes: i64 = 0
        self.live_bytes: i64 = 0


@mypyc_attr(acyclic=True)
class Message:
    """Content, shared by every queue the message was routed to."""

    def __init__(
        self, address: bytes, properties: bytes, body: bytes, persistent: bool, timestamp_ms: i64
    ) -> None:
        self.address: bytes = address
        self.properties: bytes = properties
        self.body: bytes = body
        self.persistent: bool = persistent
        self.timestamp_ms: i64 = timestamp_ms
        # Where its record is (None: nowhere), the record's size, and how many positions still need it.
        self.file: JournalFile | None = None
        self.stored_bytes: i64 = 0
        self.journal_refs: i64 = 0

    def exchange(self) -> bytes:
        """Name of the exchange it was published to."""
        return self.address[1 : 1 + self.address[0]]

    def routing_key(self) -> bytes:
        """Routing key it was published with."""
        return self.address[2 + self.address[0] :]


class QueueLog:
    """The journal's side of one durable queue: its numbering and the acks the next batch will carry.

    Acks gather as inclusive runs of seq ids, so a queue that is consumed in order costs one pair of integers a batch.
    """

    def __init__(self, queue_id: i64) -> None:
        self.queue_id: i64 = queue_id
        self.next_seq: i64 = 1
        # Highest seq id ever handed to a consumer; written at a clean stop (redelivered flag after a restart, W29).
        self.delivered_upto: i64 = 0
        self.run_first: i64 = 0
        self.run_last: i64 = -1
        self.runs: list[tuple[i64, i64]] = []
        self.is_dirty: bool = False

    def add_ack(self, seq: i64) -> None:
        """Take note that `seq` is settled."""
        if seq == self.run_last + 1 and self.run_last >= 0:
            self.run_last = seq
            return
        if self.run_last >= 0:
            self.runs.append((self.run_first, self.run_last))
        self.run_first = seq
        self.run_last = seq

    def take_runs(self) -> list[tuple[i64, i64]]:
        """The gathered runs, merged and in order; the log starts over."""
        if self.run_last >= 0:
            self.runs.append((self.run_first, self.run_last))
        self.run_last = -1
        runs = self.runs
        self.runs = []
        self.is_dirty = False
        return merge_runs(runs)


def merge_runs(runs: list[tuple[i64, i64]]) -> list[tuple[i64, i64]]:
    """Sort inclusive runs and join those that touch."""
    if len(runs) < 2:
        return runs
    runs.sort()
    merged: list[tuple[i64, i64]] = []
    first, last = runs[0]
    for next_first, next_last in runs[1:]:
        if next_first <= last + 1:
            if next_last > last:
                last = next_last
        else:
            merged.append((first, last))
            first = next_first
            last = next_last
    merged.append((first, last))
    return merged


@mypyc_attr(acyclic=True)
class Position:
    """One message's place in one queue."""

    def __init__(self, message: Message, log: QueueLog, seq: i64, expiry_ms: i64) -> None:
        self.message: Message = message
        self.log: QueueLog = log
        self.seq: i64 = seq
        # Absolute milliseconds since 1970; 0 = never.
        self.expiry_ms: i64 = expiry_ms
        self.redelivered: bool = False
        self.journal_state: i64 = NOT_JOURNALED
