"""Loads of a queue from disk: the next messages of delta, contents, and ranges for reader groups.

A queue may change while a load is under way, so each load checks its result on arrival. It leaves
out messages that were purged meanwhile, that are unacked, or that were settled while the load was
under way (the index has a settled message until the ack reaches it).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64, mypyc_attr

from warrenmq.queues.backing.contents import QueueContents
from warrenmq.queues.backing.loader import Load
from warrenmq.queues.backing.variable_queue import VariableQueue
from warrenmq.queues.entry import ALPHA, Entry
from warrenmq.store.model.message import Message, Position
from warrenmq.store.model.runs import contains

# The most messages that one load reads ahead for consumers; see `QueueHost.ahead_bytes`.
AHEAD_MESSAGES: Final = 512


@mypyc_attr(allow_interpreted_subclasses=True)
class ContentsLoad(Load):
    """A load for `contents`, which checks on arrival what is still ready."""

    def __init__(self, contents: QueueContents) -> None:
        super().__init__()
        self.contents: QueueContents = contents

    def arrive(self, entries: list[Entry], first: i64, next_seq: i64) -> None:
        """Take the ready messages of [first, next_seq), which were loaded."""
        raise RuntimeError("abstract")

    def arrive_contents(self, entries: list[Entry], lost: list[Entry]) -> None:
        """Take the loaded contents of `entries`.

        The contents of `lost` could not be read; the store has settled these entries.
        """
        raise RuntimeError("abstract")

    def on_loaded(self, positions: list[Position], next_seq: i64) -> None:
        loader = self.contents.loader
        self.contents.count_read(len(positions))
        first = loader.first_seq
        entries = self._taken(positions, first, next_seq)
        loader.end(self)
        self.contents.ready.lose_in_delta(self.contents.store.take_lost())
        self.arrive(entries, first, next_seq)
        self.finish()

    def on_contents(self, positions: list[Position], lost: list[Position]) -> None:
        contents = self.contents
        contents.count_read(len(positions))
        contents.loader.end(self)
        if not contents.is_deleted:
            # The references of a deleted queue are released all together, so none is settled here.
            for position in lost:
                contents.store.lose(position)
        self.arrive_contents(_as_entries(positions), _as_entries(lost))
        self.finish()

    def finish(self) -> None:
        """Start the next load and serve the demand, after this load has arrived."""
        self.contents.loader.start_next()
        self.contents.serve_demand()

    def _taken(self, positions: list[Position], first: i64, next_seq: i64) -> list[Entry]:
        contents = self.contents
        gone = self.settled
        if contents.unacked.count > 0 and first <= contents.unacked.highest_seq:
            for out in contents.find_unacked(first, next_seq):
                gone.add(out.seq)
        dropped = contents.loader.dropped
        delivered = contents.ledger.delivered
        delivered_upto = contents.ledger.delivered_upto
        entries: list[Entry] = []
        for entry in _as_entries(positions):
            if len(gone) > 0 and entry.seq in gone:
                continue
            if len(dropped) > 0 and contains(dropped, entry.seq):
                continue
            if not entry.has_content:
                # A ready message is lost. An unacked one is not: its holder has the content or
                # loads it again.
                if not self.is_stale:
                    contents.store.lose(entry)
                    contents.ready.take_loaded([entry], entry.seq)
                    contents.uncount_transient(entry)
                    contents.notify_lost(entry)
                continue
            if delivered.contains(entry.seq, delivered_upto):
                # The message was delivered after its record was written.
                entry.redelivered = True
            elif delivered.is_spared(entry.seq):
                # The only delivery was taken back after the record was written.
                entry.redelivered = False
            message = entry.message
            entry.body_bytes = len(message.body)
            entry.content_bytes = entry.body_bytes + len(message.address) + len(message.properties)
            entries.append(entry)
        return entries


class ReadAhead(ContentsLoad):
    """Loads the next messages of delta into q3 (S72); calls `then` after their arrival."""

    def __init__(self, contents: QueueContents, then: Callable[[QueueContents], None]) -> None:
        super().__init__(contents)
        self._then: Callable[[QueueContents], None] = then

    def begin(self) -> bool:
        contents = self.contents
        delta = contents.ready.delta
        if delta.count == 0:
            return False
        contents.loader.is_reading_ahead = True
        count: i64 = min(contents.host.page_batch, i64(AHEAD_MESSAGES))
        contents.loader.ask_range(self, delta.start, delta.end, count, _ahead_bytes(contents))
        return True

    def arrive(self, entries: list[Entry], first: i64, next_seq: i64) -> None:
        contents = self.contents
        contents.loader.is_reading_ahead = False
        if not self.is_stale:
            for entry in entries:
                if entry.expiry_ms != 0:
                    contents.expect_expiry()
            end = contents.ready.delta.end
            contents.ready.accept(entries, next_seq)
            contents.notify_shrunk(first, end, entries)
        contents.on_arrival()
        self._then(contents)


class HeadContents(ContentsLoad):
    """Loads contents of the oldest entries whose positions are in memory; then calls `then`."""

    def __init__(self, contents: QueueContents, then: Callable[[QueueContents], None]) -> None:
        super().__init__(contents)
        self._then: Callable[[QueueContents], None] = then
        self._entries: list[Entry] = []

    def leave_out(self, purged: VariableQueue) -> None:
        _leave_out(self._entries, purged)

    def begin(self) -> bool:
        contents = self.contents
        paged = contents.ready.paged_near_head(contents.host.page_batch, _ahead_bytes(contents))
        self._entries = paged[:AHEAD_MESSAGES]
        return _load_contents(self, self._entries)

    def arrive_contents(self, entries: list[Entry], lost: list[Entry]) -> None:
        # Take the contents of a stale load too: a reader group may have reserved some of the
        # entries before the purge.
        contents = self.contents
        take_contents(contents, entries, lost)
        contents.on_arrival()
        self._then(contents)


class EntryContents(ContentsLoad):
    """Loads the contents of given entries; calls `done` with those whose content is lost.

    Loads only entries that `is_wanted` when the load's turn comes. By that time a client may have
    an entry unacked and paged out again, and no client learns that a content is lost: the client
    would ack an entry that is settled already, or requeue an empty one.
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
        # Contents in memory when the load begins. They stay, or paging would drop them before the
        # others arrive, and so in turns for ever.
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
    """Loads messages of delta from a seq id on, for a reader.

    `take`: the messages leave the queue for the caller, unacked; else the caller gets copies to
    look at. `done` gets the messages, none when the load came too late or found nothing. With
    `take`, the messages end before the first one of the range that is unacked elsewhere, since that
    one may return to the queue.
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
        # The seq id at which the next load begins; nothing below it is ready.
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

    def arrive(self, entries: list[Entry], first: i64, next_seq: i64) -> None:
        contents = self.contents
        if self.is_stale or not contents.ready.is_on_disk(self._first):
            self._done([])
            return
        if len(entries) == 0:
            # Every message below `next_seq` is unacked, settled or damaged.
            if next_seq < min(self._end, contents.ready.delta.end):
                self._from = next_seq
                contents.loader.submit(self)
                return
            if next_seq >= contents.ready.delta.end:
                self._shrink([], first, True)
        elif self._take:
            entries = self._before_unacked(entries)
            self._shrink(entries, first, False)
            contents.take_reserved(entries)
        self._done(entries)

    def _shrink(self, taken: list[Entry], first: i64, is_end: bool) -> None:
        ready = self.contents.ready
        start, end = ready.delta.start, ready.delta.end
        if is_end:
            ready.trim_delta(first)
        else:
            ready.take_loaded(taken, first)
        self.contents.notify_shrunk(start, end, taken)

    def _before_unacked(self, entries: list[Entry]) -> list[Entry]:
        contents = self.contents
        barrier: i64 = entries[-1].seq + 1
        for out in contents.find_unacked(self._first, barrier):
            barrier = min(barrier, out.seq)
        count: i64 = 0
        while count < len(entries) and entries[count].seq < barrier:
            count += 1
        return entries[:count]


class IndexCopies(ContentsLoad):
    """Reads messages of [first, end) from the index as copies, for a reader that has them unacked.

    Changes nothing. `done` gets messages from the beginning of the range, in order; there may be
    others among them that the reader does not have.
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

    def on_loaded(self, positions: list[Position], next_seq: i64) -> None:
        self.contents.count_read(len(positions))
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
    """Pass ready messages from `first` on, from memory or disk, to `done`; at once or later.

    `done` gets at least one message when there is one, and none beyond the end of the part, in
    memory or in delta, that the first one is in. Messages from disk lie below `end`.
    """
    if contents.ready.is_on_disk(first):

        def on_loaded(entries: list[Entry]) -> None:
            if len(entries) > 0 or contents.ready.is_on_disk(first):
                done(entries)
            else:
                # Delta has nothing ready from `first` on: the next message is in memory behind it.
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
            # All contents are lost or their entries left: answer with the messages behind them.
            peek_anywhere(contents, entries[-1].seq + 1, end, max_messages, max_bytes, done)

    contents.loader.submit(EntryContents(contents, absent, contents.ready.contains, on_contents))


def take_contents(contents: QueueContents, entries: list[Entry], lost: list[Entry]) -> None:
    """Take the loaded contents of `entries`.

    The contents of `lost` could not be read; the store has settled these entries.
    """
    ready = contents.ready
    account = contents.unacked
    contents.memory.touch()
    lost_out: list[Entry] = []
    for entry in lost:
        if ready.remove(entry):
            contents.uncount_transient(entry)
        elif entry.form != ALPHA:
            # The entry is unacked.
            lost_out.append(entry)
            account.remove(entry)
            contents.uncount_transient(entry)
        elif ready.delta.covers(entry.seq):
            # The entry may have moved to delta during the load, and be counted there.
            ready.delta.is_uncertain = True
        entry.form = ALPHA
        contents.notify_lost(entry)
    if len(lost_out) > 0:
        # The holder of a lost entry may be another than the reader that asked for the content.
        contents.host.on_unacked_lost(contents.ledger, lost_out)
    for entry in entries:
        if entry.form != ALPHA:
            if ready.contains(entry):
                ready.take_content(entry)
            else:
                account.take_content(entry)


def _ahead_bytes(contents: QueueContents) -> i64:
    # A load brings at least one message, and at most half of the queue's room in bytes: paging
    # would undo the rest.
    return min(contents.host.memory.ahead_room() // 2, contents.host.ahead_bytes)


def _leave_out(entries: list[Entry], purged: VariableQueue) -> None:
    # Mark purged entries ALPHA, so that `take_contents` does not take them for unacked on arrival.
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
        # A load of a deleted queue brings plain positions instead of entries: no one wants them.
        if isinstance(position, Entry):
            entries.append(position)
    return entries
