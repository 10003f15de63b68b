"""Gathers the operations of a master for the copies of its queue, one payload a turn.

`RingFeed` is that of a queue; each of its levels notifies a `LevelFeed`. In a payload the kinds of
records come in the order of `records.py`, whatever the order of operations was: a copy only
ever raises the state of a message. A delivery that reached nobody takes a state back, so of
DELIVERED and SPARED a payload has the last one only.

A message that is published and settled in the same turn goes without its content: the copy learns
that its seq id is used.

Each epoch begins at a seq id that no other one may have used (`RingFeed.begin`). So a seq id means
the same message at every copy for ever, also where a deposed master has published messages that no
other node has seen. A node that becomes master therefore begins an epoch, even if it was the master
before a restart: a crash may have lost messages that copies have, and with them their seq ids.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64

from warrenmq.queues.backing.operation_feed import OperationFeed
from warrenmq.queues.entry import Entry
from warrenmq.queues.leave_reason import PURGED
from warrenmq.queues.mirror import records
from warrenmq.queues.queue import Queue
from warrenmq.store.model.message import Message, MovedMessage, RunGatherer
from warrenmq.store.model.runs import Runs, add_run, merge_runs, remove_run, subtract

# Distance of the first seq ids of two epochs, at least. The messages that a master publishes before
# it notices that nobody takes them fit in.
EPOCH_GAP: Final = 1 << 24
# Gathered bytes that need not wait for the end of the turn.
LARGE_BYTES: Final = 65536
# Bytes of a published message beside its content, and of a run.
_PUBLISHED_BYTES: Final = 40
_RUN_BYTES: Final = 16


def epoch_start(next_seq: i64, highest_start: i64) -> i64:
    """The first seq id of the next epoch.

    `next_seq`: the highest one of all levels of the copy that begins it. `highest_start`: the first
    seq id of the latest epoch that the cluster has recorded, which this copy may not know; 0: none.
    """
    above: i64 = max(next_seq, highest_start)
    return (above + EPOCH_GAP - 1) // EPOCH_GAP * EPOCH_GAP + EPOCH_GAP


def next_start(queue: Queue, highest_start: i64) -> i64:
    """The first seq id of the epoch that the copy `queue` begins; see `epoch_start`."""
    next_seq: i64 = 1
    for backing in queue.backings():
        next_seq = max(next_seq, backing.ledger.next_seq)
    return epoch_start(next_seq, highest_start)


class _Published:
    """A message that was published in this turn. `message` None: it is settled already.

    `sink` is the key of the sink whose message it is, at `position`, or b"".
    """

    def __init__(self, entry: Entry, sink: bytes) -> None:
        self.sink: bytes = sink
        self.seq: i64 = entry.seq
        # The entry may drop its content before the turn ends.
        self.message: Message | None = entry.message
        self.position: i64 = 0
        self.persistent: bool = entry.persistent
        self.redelivered: bool = entry.redelivered
        self.expiry_ms: i64 = entry.expiry_ms
        self.size_bytes: i64 = entry.content_bytes + _PUBLISHED_BYTES


class LevelFeed(OperationFeed):
    """Gathers the operations of one level, that of priority `level`, for `feed`."""

    def __init__(self, feed: RingFeed, level: i64) -> None:
        self.level: i64 = level
        # Estimated bytes of the gathered records.
        self.gathered_bytes: i64 = 0
        self._feed: RingFeed = feed
        self._published: list[_Published] = []
        self._delivered: Runs = []
        self._spared: Runs = []
        # Settled seq ids, by reason.
        self._settled: list[RunGatherer] = []
        # (seq, returns) of messages that returned.
        self._returned: list[tuple[i64, i64]] = []

    # -- what the queue tells ----------------------------------------------------------------------

    def published(self, entry: Entry) -> None:
        published = self._published
        if len(published) > 0 and entry.seq <= published[-1].seq:
            return
        self._feed.published_count += 1
        one = _Published(entry, self._sink_of(entry.message))
        if len(one.sink) > 0 and isinstance(one.message, MovedMessage):
            one.position = one.message.origin_seq
        published.append(one)
        self._gather(one.size_bytes)

    def delivered(self, seq: i64) -> None:
        runs = self._delivered
        if len(runs) > 0 and runs[-1][1] == seq - 1:
            runs[-1] = (runs[-1][0], seq)
        else:
            add_run(runs, seq, seq)
            self._gather(_RUN_BYTES)
        if len(self._spared) > 0:
            remove_run(self._spared, seq, seq)

    def leaving(self, seq: i64) -> None:
        pass

    def returned(self, seq: i64) -> None:
        count: i64 = self._feed.queue.return_counts.get(seq, 0)
        if count > 0:
            self._returned.append((seq, count))
            self._gather(_RUN_BYTES)

    def put_back(self, seq: i64) -> None:
        remove_run(self._delivered, seq, seq)
        add_run(self._spared, seq, seq)
        self._gather(_RUN_BYTES)

    def settled(self, seq: i64, reason: i64) -> None:
        self._drop_contents(seq, seq)
        self._gatherer(reason).add(seq)
        self._gather(1)

    def settled_runs(self, runs: Runs, reason: i64) -> None:
        if len(runs) == 0:
            return
        for first, last in runs:
            self._drop_contents(first, last)
        self._gatherer(reason).runs.extend(runs)
        self._gather(_RUN_BYTES * len(runs))

    def readers_changed(self) -> None:
        self._feed.tell_readers()

    def receipts_changed(self) -> None:
        self._feed.tell_receipts()

    def level_began(self, level: i64) -> OperationFeed | None:
        return self._feed.add_level(level)

    def repeat(self, below: i64) -> None:
        """See `RingFeed.repeat`."""
        queue = self._feed.queue
        backing = queue.level_at(self.level)
        if backing is None:
            return
        ledger = backing.ledger
        upto, above = ledger.delivered.without_spared(ledger.delivered_upto)
        delivered: Runs = [(1, min(upto, below - 1))] if upto > 0 and below > 1 else []
        for first, last in above:
            if first < below:
                delivered.append((first, min(last, below - 1)))
        spared = subtract(1, below - 1, delivered)
        for first, last in delivered:
            add_run(self._delivered, first, last)
        for first, last in spared:
            add_run(self._spared, first, last)
        self._gather(_RUN_BYTES * (len(delivered) + len(spared)))
        if self.level == 0:
            self._returned.extend(queue.return_counts.items())

    # -- what the payload gets ---------------------------------------------------------------------

    def write_published(self, out: BytesWriter) -> None:
        """Append the published messages that are not settled, and forget all."""
        published = self._published
        self._published = []
        self.gathered_bytes = 0
        place: i64 = 0
        count: i64 = len(published)
        while place < count:
            # Messages with consecutive seq ids share a record, if they are of one sink or of none.
            end = place
            while (
                end < count
                and published[end].message is not None
                and published[end].seq == published[place].seq + end - place
                and published[end].sink == published[place].sink
            ):
                end += 1
            if end > place:
                first = published[place]
                if len(first.sink) == 0:
                    records.write_publish(out, self.level, first.seq, end - place)
                else:
                    records.write_received(out, self.level, first.sink, first.seq, end - place)
            while place < end:
                one = published[place]
                message = one.message
                assert message is not None
                if len(one.sink) > 0:
                    write_i64_be(out, one.position)
                records.write_published(
                    out, message, one.persistent, one.redelivered, one.expiry_ms
                )
                place += 1
            if place < count and published[place].message is None:
                place += 1

    def write_handled(self, out: BytesWriter) -> None:
        """Append DELIVERED and SPARED, without messages that are settled; forget both."""
        settled: Runs = []
        for gatherer in self._settled:
            settled.extend(gatherer.gathered())
        settled = merge_runs(settled)
        self._write_runs(out, records.DELIVERED, self._delivered, settled)
        self._write_runs(out, records.SPARED, self._spared, settled)
        self._delivered = []
        self._spared = []

    def write_settled(self, out: BytesWriter) -> None:
        """Append SETTLED for each reason, and forget what was settled."""
        for reason in range(len(self._settled)):
            runs = self._settled[reason].take()
            if len(runs) > 0:
                records.write_settled(out, self.level, reason, runs)

    def take_returned(self) -> list[tuple[i64, i64]]:
        """Forget and return how often messages were returned."""
        returned = self._returned
        self._returned = []
        return returned

    def _write_runs(self, out: BytesWriter, kind: i64, runs: Runs, settled: Runs) -> None:
        left: Runs = []
        for first, last in runs:
            left.extend(subtract(first, last, settled))
        if len(left) > 0:
            records.write_handled(out, kind, self.level, left)

    def _sink_of(self, message: Message | None) -> bytes:
        receipts = self._feed.queue.backing.host.receipts
        return b"" if receipts is None or message is None else receipts.sink_of(message)

    def _gather(self, size_bytes: i64) -> None:
        self.gathered_bytes += size_bytes
        self._feed.has_operations = True
        self._feed.note_changed()

    def _gatherer(self, reason: i64) -> RunGatherer:
        while len(self._settled) <= reason:
            self._settled.append(RunGatherer())
        return self._settled[reason]

    def _drop_contents(self, first: i64, last: i64) -> None:
        """Forget the contents of messages of [first, last] that this turn has published."""
        published = self._published
        if len(published) == 0 or last < published[0].seq:
            return
        low: i64 = 0
        high: i64 = len(published)
        while low < high:
            middle = (low + high) >> 1
            if published[middle].seq < first:
                low = middle + 1
            else:
                high = middle
        while low < len(published) and published[low].seq <= last:
            one = published[low]
            if one.message is not None:
                one.message = None
                self.gathered_bytes -= one.size_bytes
            low += 1


class RingFeed:
    """Gathers the operations of `queue`, whose master this node is.

    `changed` is called when there is something, for the first time since `take`.
    """

    def __init__(self, queue: Queue, changed: Callable[[], None]) -> None:
        self.queue: Queue = queue
        # Payloads that were taken. The first one has number 1.
        self.taken_count: i64 = 0
        # Messages that were published since `begin`.
        self.published_count: i64 = 0
        # The next payload has more than the beginning of an epoch or of a level: a copy that never
        # gets it lacks something.
        self.has_operations: bool = False
        self._changed: Callable[[], None] = changed
        self._levels: list[LevelFeed] = []
        # Levels that have begun since the last payload.
        self._new_levels: list[i64] = []
        # The contents of EPOCH in the next payload: (level, next seq).
        self._starts: list[tuple[i64, i64]] = []
        # The next payload has the parts of the reader groups.
        self._tells_readers: bool = False
        # It has the books of receipts.
        self._tells_receipts: bool = False
        self._is_changed: bool = False

    # -- begin and end -----------------------------------------------------------------------------

    def begin(self, epoch: i64, first: i64, tells_delivered: bool = False) -> None:
        """Begin `epoch` as the queue's master, and gather from now on.

        `first`: the first seq id of each level, that `next_start` has given before the cluster
        recorded it. The journal writes the epoch at once. The next payload begins it at the copies.
        There it also settles what they got of the last epoch and this copy did not: otherwise it
        would come to light when one of them becomes master, behind younger messages.
        `tells_delivered`: it also says which messages count as delivered here.
        """
        queue = self.queue
        for backing in queue.backings():
            level = queue.level_of(backing.ledger)
            end = backing.ledger.next_seq
            backing.skip_to(first)
            self._starts.append((level, first))
            feed = LevelFeed(self, level)
            self._levels.append(feed)
            backing.feed = feed
            if end < first:
                feed.settled_runs([(end, first - 1)], PURGED)
            if tells_delivered:
                feed.repeat(first)
        queue.begin_epoch(epoch)
        self._tells_readers = True
        self._tells_receipts = True
        self.has_operations = False
        self.note_changed()

    def end(self) -> None:
        """Gather nothing more, as this node is the master no longer."""
        for backing in self.queue.backings():
            backing.feed = None

    # -- called by the levels ----------------------------------------------------------------------

    def note_changed(self) -> None:
        """Note that the next payload has something."""
        if not self._is_changed:
            self._is_changed = True
            self._changed()

    def add_level(self, level: i64) -> LevelFeed:
        """Begin the feed of a level that begins."""
        feed = LevelFeed(self, level)
        self._levels.append(feed)
        self._new_levels.append(level)
        self.note_changed()
        return feed

    def tell_readers(self) -> None:
        """Tell all copies the parts of the reader groups, with the next payload."""
        self._tells_readers = True
        self.has_operations = True
        self.note_changed()

    def tell_receipts(self) -> None:
        """Tell all copies the books of receipts, with the next payload."""
        self._tells_receipts = True
        self.has_operations = True
        self.note_changed()

    def repeat(self, level: i64, below: i64) -> None:
        """Tell all copies once more what consumers have had of a level, below a seq id.

        How often messages were returned is told of all, and the parts of the reader groups and the
        books of receipts. A copy that was away has missed some of it, or has forgotten it in a
        restart. The next payload has it, so it comes in order with everything else.
        """
        self.tell_readers()
        self.tell_receipts()
        for feed in self._levels:
            if feed.level == level:
                feed.repeat(below)

    # -- payloads ----------------------------------------------------------------------------------

    @property
    def gathered_bytes(self) -> i64:
        """Estimated bytes of the next payload; 0: there is none."""
        size: i64 = records.HEAD_BYTES if self._is_changed else 0
        for feed in self._levels:
            size += feed.gathered_bytes
        return size

    def is_large(self) -> bool:
        """Whether so much has gathered that it need not wait for the end of the turn."""
        return self._is_changed and self.gathered_bytes >= LARGE_BYTES

    @property
    def carrier(self) -> i64:
        """Number of the payload behind which a copy has everything that the queue did so far."""
        return self.taken_count + 1 if self._is_changed else self.taken_count

    def take(self, epoch: i64) -> bytes:
        """The payload number `taken_count`, which this call counts, for copies in `epoch`.

        b"": nothing has gathered, and nothing is counted.
        """
        if not self._is_changed:
            return b""
        self._is_changed = False
        self.has_operations = False
        self.taken_count += 1
        out = BytesWriter()
        write_i64_be(out, epoch)
        if len(self._starts) > 0:
            records.write_epoch(out, epoch, self._starts)
            self._starts = []
        for level in self._new_levels:
            records.write_level(out, level)
        self._new_levels = []
        for feed in self._levels:
            feed.write_published(out)
        for feed in self._levels:
            feed.write_handled(out)
        for feed in self._levels:
            feed.write_settled(out)
        for feed in self._levels:
            returned = feed.take_returned()
            if len(returned) > 0:
                records.write_return_counts(out, returned)
        if self._tells_readers:
            # Now, and not when they changed: only the newest state matters.
            self._tells_readers = False
            backing = self.queue.backing
            records.write_readers(out, backing.host.reader_parts(backing.ledger))
        if self._tells_receipts:
            self._tells_receipts = False
            backing = self.queue.backing
            receipts = backing.host.receipts
            if receipts is not None:
                records.write_receipts(out, receipts.receipts_of(backing.ledger))
        return out.getvalue()
