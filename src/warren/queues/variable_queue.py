"""The variable queue: the ready messages of one queue, in five parts (S48-S73).

    publish -> q1 -> q2 -> delta -> q3 -> q4 -> deliver

alpha (content and position in RAM) lives in q1 and q4, beta and gamma (content on disk) in q2 and q3, delta is a range
of seq ids known only on disk. A message enters at q4 while nothing is behind it in q2, delta or q3, else at q1; it is
taken from q4, then q3. At present every ready message is an alpha, so q2, delta and q3 stay empty; the rules of
entering and leaving are the ones that hold when they are not.

Invariants (reference 3.6), asserted by `check`: q1 not empty => q3 not empty; q2 not empty => delta not empty;
delta not empty => q3 not empty; every part ascends by seq id.
"""

from mypy_extensions import i64

from warren.queues.entry import Entry
from warren.queues.entry_ring import EntryRing


class Delta:
    """A range of seq ids that are on disk only: `count` live ones in [start, end)."""

    def __init__(self) -> None:
        self.start: i64 = 0
        self.end: i64 = 0
        self.count: i64 = 0


class VariableQueue:
    """Ready entries, oldest first. `count` messages with `body_bytes` bytes of body."""

    def __init__(self) -> None:
        self.q1: EntryRing = EntryRing()
        self.q2: EntryRing = EntryRing()
        self.delta: Delta = Delta()
        self.q3: EntryRing = EntryRing()
        self.q4: EntryRing = EntryRing()
        self.count: i64 = 0
        self.body_bytes: i64 = 0

    def publish(self, entry: Entry) -> None:
        """Add the youngest entry (S61)."""
        if self.q3.count == 0:
            self.q4.append(entry)
        else:
            self.q1.append(entry)
        self.count += 1
        self.body_bytes += len(entry.message.body)

    def fetch(self) -> Entry:
        """Take the oldest entry (S70); the queue must not be empty."""
        if self.q4.count > 0:
            entry = self.q4.pop_left()
        else:
            entry = self.q3.pop_left()
            if self.q3.count == 0 and self.delta.count == 0:
                # S71: nothing is left in between, so the young end becomes the old end.
                self.q4, self.q1 = self.q1, self.q4
        self.count -= 1
        self.body_bytes -= len(entry.message.body)
        return entry

    def head(self) -> Entry:
        """The oldest entry; the queue must not be empty."""
        return self.q4.at(0) if self.q4.count > 0 else self.q3.at(0)

    def requeue(self, entries: list[Entry]) -> None:
        """Return entries (ascending seq ids) to their places."""
        self.q4.put_back(entries)
        self.count += len(entries)
        for entry in entries:
            self.body_bytes += len(entry.message.body)

    def take_range(self, index: i64, count: i64) -> list[Entry]:
        """Take `count` entries starting `index` places behind the oldest."""
        entries = self.q4.take_range(index, count)
        self.count -= count
        for entry in entries:
            self.body_bytes -= len(entry.message.body)
        return entries

    def index_of_seq(self, seq: i64) -> i64:
        """Number of ready entries older than `seq`."""
        return self.q4.index_of_seq(seq)

    def at(self, index: i64) -> Entry:
        """The ready entry `index` places behind the oldest."""
        return self.q4.at(index)

    def check(self) -> None:
        """Assert the invariants; for tests."""
        assert self.q1.count == 0 or self.q3.count > 0
        assert self.q2.count == 0 or self.delta.count > 0
        assert self.delta.count == 0 or self.q3.count > 0
        assert self.count == self.q1.count + self.q2.count + self.delta.count + self.q3.count + self.q4.count
        seqs: list[int] = []
        for ring in (self.q4, self.q3, self.q2, self.q1):
            for index in range(ring.count):
                seqs.append(ring.at(index).seq)
        assert seqs == sorted(seqs)
