"""What a queue reads back from disk: the next messages of delta, contents, and ranges for reader groups.

When a load comes back the queue may have changed, so each looks again: what was purged meanwhile is not taken, and what
is unacked or was settled while the load was under way is left out (the index has it until it hears of the ack).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64, mypyc_attr

from warrenmq.queues.contents import QueueContents
from warrenmq.queues.entry import ALPHA, Entry
from warrenmq.queues.loader import Load
from warrenmq.queues.variable_queue import VariableQueue
from warrenmq.store.message import Message, Position
from warrenmq.store.runs import contains

# Messages of a load that reads ahead for consumers; see `QueueHost.ahead_bytes`.
AHEAD_MESSAGES: Final = 512


@mypyc_attr(allow_interpreted_subclasses=True)
class ContentsLoad(Load):
    """A load for `contents`, which look again at what comes."""

    def __init__(self, contents: QueueContents) -> None:
        super().__init__()
        self.contents: QueueContents = contents

    def arrive(self, entries: list[Entry], first: i64, next_seq: i64, damaged: i64) -> None:
        """The ready messages of [first, next_seq) are here."""
        raise RuntimeError("abstract")

    def arrive_contents(self, entries: list[Entry], lost: list[Entry]) -> None:
        """The contents of `entries` are here, but for those of `lost`, which the store has settled."""
        raise RuntimeError("abstract")

    def on_loaded(self, positions: list[Position], next_seq: i64, damaged: i64) -> None:
        loader = self.contents.loader
        first = loader.first_seq
        entries = self._taken(positions, first, next_seq)
        loader.end(self)
        self.arrive(entries, first, next_seq, damaged)
        self.finish()

    def on_contents(self, positions: list[Position], lost: list[Position]) -> None:
        contents = self.contents
        contents.loader.end(self)
        if not contents.is_deleted:
            # What a deleted one had is given up as a whole.
            for position in lost:
                contents.store.lose(position)
        self.arrive_contents(_as_entries(positions), _as_entries(lost))
        self.finish()

    def finish(self) -> None:
        """It has arrived: others have their turn."""
        self.contents.loader.start_next()
        self.contents.serve_demand()

    def _taken(self, positions: list[Position], first: i64, next_seq: i64) -> list[Entry]:
        contents = self.contents
        gone = self.settled
        if contents.out.count > 0 and first <= contents.out.highest_seq:
            for out in contents.find_out(first, next_seq):
                gone.add(out.seq)
        dropped = contents.loader.dropped
        redelivered_upto = contents.out_upto()
        entries: list[Entry] = []
        for entry in _as_entries(positions):
            if len(gone) > 0 and entry.seq in gone:
                continue
            if len(dropped) > 0 and contains(dropped, entry.seq):
                continue
            if not entry.has_content:
                # Lost, if it is the queue's: what is unacked has its content with whoever has it, or asks for it again.
                if not self.is_stale:
                    contents.store.lose(entry)
                    contents.ready.take_loaded([entry], entry.seq, 0)
                    contents.tell_lost(entry)
                continue
            # Whatever is ready and not younger than something that went out was out itself.
            if entry.seq <= redelivered_upto:
                entry.redelivered = True
            message = entry.message
            entry.body_bytes = len(message.body)
            entry.content_bytes = entry.body_bytes + len(message.address) + len(message.properties)
            entries.append(entry)
        return entries


class ReadAhead(ContentsLoad):
    """The next messages of delta for q3 (S72)."""

    def begin(self) -> bool:
        contents = self.contents
        delta = contents.ready.delta
        if delta.count == 0:
            return False
        contents.loader.is_reading_ahead = True
        count: i64 = min(contents.host.page_batch, i64(AHEAD_MESSAGES))
        contents.loader.ask_range(self, delta.start, delta.end, count, _ahead_bytes(contents))
        return True

    def arrive(self, entries: list[Entry], first: i64, next_seq: i64, damaged: i64) -> None:
        contents = self.contents
        contents.loader.is_reading_ahead = False
        if not self.is_stale:
            for entry in entries:
                if entry.expiry_ms != 0:
                    contents.expect_expiry()
            end = contents.ready.delta.end
            contents.ready.accept(entries, next_seq, damaged)
            contents.tell_shrunk(first, end, entries)
        contents.on_arrival()


class HeadContents(ContentsLoad):
    """Contents of the next entries whose positions are in memory."""

    def __init__(self, contents: QueueContents) -> None:
        super().__init__(contents)
        self._entries: list[Entry] = []

    def leave_out(self, purged: VariableQueue) -> None:
        _leave_out(self._entries, purged)

    def begin(self) -> bool:
        contents = self.contents
        paged = contents.ready.paged_near_head(contents.host.page_batch, _ahead_bytes(contents))
        self._entries = paged[:AHEAD_MESSAGES]
        return _load_contents(self, self._entries)

    def arrive_contents(self, entries: list[Entry], lost: list[Entry]) -> None:
        # Also when it is stale: a reader group may have taken some of them before the purge.
        contents = self.contents
        take_contents(contents, entries, lost)
        contents.on_arrival()


class EntryContents(ContentsLoad):
    """Contents of given entries; `done` is called with those that could not be had.

    Only of those that `is_wanted` when its turn comes. By then a client may have one, unacked and out of memory again, and
    no client learns that a content is lost: it would ack once more what is settled, or give back what is empty.
    """

    def __init__(
        self,
        contents: QueueContents,
        entries: list[Entry],
        is_wanted: Callable[[Entry], bool],
        done: Callable[[list[Entry]], None],
    ) -> None:
        super().__init__(contents)
        self._entries: list[Entry] = entries
        self._is_wanted: Callable[[Entry], bool] = is_wanted
        # What is in memory when it begins stays there: else it might be dropped until the rest comes, and so in turns.
        self._kept: list[tuple[Entry, Message]] = []
        self._done: Callable[[list[Entry]], None] = done

    def leave_out(self, purged: VariableQueue) -> None:
        _leave_out(self._entries, purged)

    def begin(self) -> bool:
        wanted: list[Entry] = []
        for entry in self._entries:
            if entry.form != ALPHA:
                if self._is_wanted(entry):
                    wanted.append(entry)
            elif entry.has_content:
                self._kept.append((entry, entry.message))
        if not _load_contents(self, wanted):
            self._done([])
            return False
        return True

    def arrive_contents(self, entries: list[Entry], lost: list[Entry]) -> None:
        for entry, message in self._kept:
            if entry.form != ALPHA:
                entry.message = message
                entry.has_content = True
                entries.append(entry)
        take_contents(self.contents, entries, lost)
        self._done(lost)


class RangeLoad(ContentsLoad):
    """Messages of delta from a seq id on, for somebody who asked.

    `take`: they leave the queue for the caller, who has them unacked from then on; else they are copies to look at.
    `done` gets them; none when the load has come too late, or found nothing. When they are taken, a message of the range
    that somebody else has unacked ends them: it may come back.
    """

    def __init__(
        self,
        contents: QueueContents,
        first: i64,
        end: i64,
        max_messages: i64,
        max_bytes: i64,
        take: bool,
        done: Callable[[list[Entry]], None],
    ) -> None:
        super().__init__(contents)
        self._first: i64 = first
        # Where the next load begins: before it is nothing ready.
        self._from: i64 = first
        self._end: i64 = end
        self._max_messages: i64 = max_messages
        self._max_bytes: i64 = max_bytes
        self._take: bool = take
        self._done: Callable[[list[Entry]], None] = done

    def begin(self) -> bool:
        contents = self.contents
        delta = contents.ready.delta
        first: i64 = max(self._from, delta.start)
        end: i64 = min(self._end, delta.end)
        if self.is_stale or first >= end or not contents.ready.is_on_disk(self._first):
            self._done([])
            return False
        contents.loader.ask_range(self, first, end, self._max_messages, self._max_bytes)
        return True

    def arrive(self, entries: list[Entry], first: i64, next_seq: i64, damaged: i64) -> None:
        contents = self.contents
        if self.is_stale or not contents.ready.is_on_disk(self._first):
            self._done([])
            return
        if len(entries) == 0:
            # Everything up to there is unacked, settled or damaged.
            if next_seq < min(self._end, contents.ready.delta.end):
                self._from = next_seq
                contents.loader.submit(self)
                return
            if next_seq >= contents.ready.delta.end:
                self._shrink([], first, damaged, True)
        elif self._take:
            entries = self._before_unacked(entries)
            self._shrink(entries, first, damaged, False)
            contents.take_reserved(entries)
        self._done(entries)

    def _shrink(self, taken: list[Entry], first: i64, damaged: i64, is_end: bool) -> None:
        ready = self.contents.ready
        start, end = ready.delta.start, ready.delta.end
        if is_end:
            ready.trim_delta(first, damaged)
        else:
            ready.take_loaded(taken, first, damaged)
        self.contents.tell_shrunk(start, end, taken)

    def _before_unacked(self, entries: list[Entry]) -> list[Entry]:
        contents = self.contents
        barrier: i64 = entries[-1].seq + 1
        for out in contents.find_out(self._first, barrier):
            barrier = min(barrier, out.seq)
        count: i64 = 0
        while count < len(entries) and entries[count].seq < barrier:
            count += 1
        return entries[:count]


class IndexCopies(ContentsLoad):
    """Messages of [first, end) as the index has them, for somebody who has them unacked: copies, which change nothing.

    `done` gets some from the beginning, in order, perhaps others among them that are nobody's concern.
    """

    def __init__(
        self,
        contents: QueueContents,
        first: i64,
        end: i64,
        max_bytes: i64,
        done: Callable[[list[Entry]], None],
    ) -> None:
        super().__init__(contents)
        self._first: i64 = first
        self._end: i64 = end
        self._max_bytes: i64 = max_bytes
        self._done: Callable[[list[Entry]], None] = done

    def begin(self) -> bool:
        self.contents.loader.ask_range(
            self, self._first, self._end, self._end - self._first, self._max_bytes
        )
        return True

    def on_loaded(self, positions: list[Position], next_seq: i64, damaged: i64) -> None:
        self.contents.loader.end(self)
        self._done(_as_entries(positions))
        self.finish()


def peek_anywhere(
    contents: QueueContents,
    first: i64,
    end: i64,
    max_messages: i64,
    max_bytes: i64,
    done: Callable[[list[Entry]], None],
) -> None:
    """Ready messages from `first` on with their contents, wherever they are; `done` gets them, at once or later.

    At least one when there is one, and not beyond the end of the part of memory or disk that the first one is in; from
    disk none from `end` on.
    """
    if contents.ready.is_on_disk(first):

        def on_loaded(entries: list[Entry]) -> None:
            if len(entries) > 0 or contents.ready.is_on_disk(first):
                done(entries)
            else:
                # Nothing ready is in delta from there on: what is behind it is in memory.
                peek_anywhere(contents, first, end, max_messages, max_bytes, done)

        contents.loader.submit(
            RangeLoad(contents, first, end, max_messages, max_bytes, False, on_loaded)
        )
        return
    entries = contents.peek(first, max_messages, max_bytes)
    absent: list[Entry] = []
    for entry in entries:
        if entry.form != ALPHA:
            absent.append(entry)
    if len(absent) == 0:
        done(entries)
        return

    def on_contents(lost: list[Entry]) -> None:
        present: list[Entry] = []
        for entry in entries:
            if entry.has_content:
                present.append(entry)
        if len(present) > 0:
            done(present)
        else:
            # All of them are lost, or gone: what is behind them is the answer.
            peek_anywhere(contents, entries[-1].seq + 1, end, max_messages, max_bytes, done)

    contents.loader.submit(EntryContents(contents, absent, contents.ready.contains, on_contents))


def take_contents(contents: QueueContents, entries: list[Entry], lost: list[Entry]) -> None:
    """The contents of `entries` were loaded, but for those of `lost`, which the store has settled."""
    ready = contents.ready
    account = contents.out
    contents.memory.touch()
    lost_out: list[Entry] = []
    for entry in lost:
        if not ready.remove(entry):
            if entry.form != ALPHA:
                # Somebody has it unacked.
                lost_out.append(entry)
                account.remove(entry)
            elif ready.delta.covers(entry.seq):
                # It may have moved to delta while it was looked for, and is counted there.
                ready.delta.is_uncertain = True
        entry.form = ALPHA
        contents.tell_lost(entry)
    if len(lost_out) > 0:
        # Who has it need not be the one who asked for its content.
        contents.host.on_out_lost(contents.ledger, lost_out)
    for entry in entries:
        if entry.form != ALPHA:
            if ready.contains(entry):
                ready.take_content(entry)
            else:
                account.take_content(entry)


def _ahead_bytes(contents: QueueContents) -> i64:
    # A load brings one message at least, and no more than half of the queue's room: paging would undo the rest.
    return min(contents.host.memory.ahead_room() // 2, contents.host.ahead_bytes)


def _leave_out(entries: list[Entry], purged: VariableQueue) -> None:
    # What is purged is not to be taken for unacked when its content comes.
    for entry in entries:
        if entry.form != ALPHA and purged.contains(entry):
            entry.form = ALPHA


def _load_contents(load: ContentsLoad, entries: list[Entry]) -> bool:
    if len(entries) == 0:
        return False
    positions: list[Position] = []
    positions.extend(entries)
    load.contents.store.load_contents(positions, load)
    return True


def _as_entries(positions: list[Position]) -> list[Entry]:
    entries: list[Entry] = []
    for position in positions:
        # A queue that was deleted before the load began has positions that are no entries: nobody wants them.
        if isinstance(position, Entry):
            entries.append(position)
    return entries
