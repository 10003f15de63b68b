"""Reads the messages of a queue for a mirror, oldest first, and leaves them in the queue.

Ready and unacked messages come alike, from memory or from disk, so nothing is taken, returned or
delivered for it. Loads wait for their turn among those of the queue, and each is as small as one
that reads ahead for consumers. Messages that leave while they are read are skipped, as are those
that are damaged: the queue finds and settles them itself.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from warrenmq.queues.backing.loading import AHEAD_MESSAGES, ContentsLoad, EntryContents
from warrenmq.queues.backing.paged_queue import PagedQueue
from warrenmq.queues.entry import ALPHA, Entry
from warrenmq.store.model.message import Message, Position


class FoundMessage:
    """A message as it was when it was read. `expiry_ms` is 0 for never."""

    def __init__(self, entry: Entry, expiry_ms: i64, is_redelivered: bool) -> None:
        self.seq: i64 = entry.seq
        self.message: Message = entry.message
        self.is_persistent: bool = entry.persistent
        self.expiry_ms: i64 = expiry_ms
        self.is_redelivered: bool = is_redelivered
        self.content_bytes: i64 = entry.content_bytes


class SyncReader:
    """Reads the live messages of `backing` with seq ids in [`first`, `end`).

    `max_messages`: the most messages that one `read` brings.
    """

    def __init__(self, backing: PagedQueue, first: i64, end: i64, max_messages: i64) -> None:
        self.backing: PagedQueue = backing
        # Everything below was read.
        self.next_seq: i64 = first
        self.end: i64 = end
        # A load is under way.
        self.is_loading: bool = False
        # The caller wants nothing more: a load that is under way brings nothing.
        self.is_stopped: bool = False
        self._max_messages: i64 = max_messages
        self._done: Callable[[list[FoundMessage]], None] | None = None

    def is_over(self) -> bool:
        """Whether nothing is left to read."""
        return self.next_seq >= self.end or self.backing.is_deleted

    def read(self, done: Callable[[list[FoundMessage]], None]) -> None:
        """Pass the next messages to `done`, at once or later; none does not mean that it is over.

        One call at a time.
        """
        found: list[FoundMessage] = []
        while len(found) == 0 and not self.is_over():
            before = self.next_seq
            found = self._from_memory()
            if len(found) == 0 and self.next_seq == before:
                self.is_loading = True
                self._done = done
                self._load()
                return
        done(found)

    # -- memory ------------------------------------------------------------------------------------

    def _from_memory(self) -> list[FoundMessage]:
        """The next messages that are in memory with their contents, up to the first that is not."""
        backing = self.backing
        ready = backing.ready
        delta = ready.delta
        # The messages in memory end before this seq id.
        stop = self.end
        if delta.count > 0 and self.next_seq < delta.end:
            stop = min(stop, max(self.next_seq, delta.start))
        entries: list[Entry] = []
        size: i64 = 0
        place = ready.index_of_seq(self.next_seq)
        while place < ready.entry_count:
            entry = ready.at(place)
            if entry.seq >= stop:
                break
            if (
                entry.form != ALPHA
                or i64(len(entries)) == self._max_messages
                or size >= backing.host.ahead_bytes
            ):
                stop = entry.seq
                break
            entries.append(entry)
            size += entry.content_bytes
            place += 1
        unacked = self._unacked(self.next_seq, stop)
        for entry in unacked:
            if entry.form != ALPHA:
                stop = min(stop, entry.seq)
            else:
                entries.append(entry)
        entries.sort()
        if i64(len(entries)) > self._max_messages:
            stop = min(stop, entries[self._max_messages].seq)
        found = [
            FoundMessage(entry, entry.expiry_ms, self._is_redelivered(entry, entry.redelivered))
            for entry in entries
            if entry.seq < stop
        ]
        self.next_seq = stop
        return found

    def _unacked(self, first: i64, end: i64) -> list[Entry]:
        account = self.backing.unacked
        if account.count == 0 or first > account.highest_seq or first >= end:
            return []
        return self.backing.find_unacked(first, end)

    def _is_redelivered(self, entry: Entry, is_marked: bool) -> bool:
        ledger = self.backing.ledger
        if ledger.delivered.is_spared(entry.seq):
            return False
        return is_marked or ledger.was_delivered(entry.seq)

    # -- disk --------------------------------------------------------------------------------------

    def _load(self) -> None:
        """Load the message at `next_seq`, and what follows."""
        backing = self.backing
        first = self.next_seq
        if first < backing.ledger.indexed_upto:
            # The index has all live messages below its mark, the unacked ones too.
            end: i64 = min(self.end, backing.ledger.indexed_upto)
            backing.loader.submit(_RangeCopies(self, first, end, self._max_messages))
            return
        absent: list[Entry] = []
        for entry in self._in_order(first):
            if entry.form == ALPHA or i64(len(absent)) == min(self._max_messages, AHEAD_MESSAGES):
                break
            absent.append(entry)
        backing.loader.submit(
            EntryContents(backing, absent, self._has_entry, self._on_contents_loaded)
        )

    def _in_order(self, first: i64) -> list[Entry]:
        """Entries in memory from `first` on, ready and unacked, as many as one read brings."""
        ready = self.backing.ready
        place = ready.index_of_seq(first)
        entries: list[Entry] = []
        while place < ready.entry_count and i64(len(entries)) < self._max_messages:
            entries.append(ready.at(place))
            place += 1
        end = entries[-1].seq if len(entries) > 0 else self.end
        entries.extend(self._unacked(first, end))
        entries.sort()
        return entries

    def _has_entry(self, entry: Entry) -> bool:
        """Whether this very entry is in the queue, ready or unacked."""
        if self.backing.ready.contains(entry):
            return True
        return any(other is entry for other in self._unacked(entry.seq, entry.seq + 1))

    def _on_contents_loaded(self, lost: list[Entry]) -> None:
        # The contents are in memory now, or their entries have left.
        self._finish([])

    def on_range_loaded(self, entries: list[Entry], next_seq: i64) -> None:
        """Take copies of the messages below `next_seq` that a load has read from the index."""
        backing = self.backing
        first = self.next_seq
        unacked = {entry.seq: entry for entry in self._unacked(first, next_seq)}
        ready = backing.ready
        place = ready.index_of_seq(first)
        found: list[FoundMessage] = []
        for copy in entries:
            seq = copy.seq
            while place < ready.entry_count and ready.at(place).seq < seq:
                place += 1
            is_marked = copy.redelivered
            if place < ready.entry_count and ready.at(place).seq == seq:
                is_marked = ready.at(place).redelivered
            elif seq in unacked:
                is_marked = unacked[seq].redelivered
            elif not ready.delta.covers(seq):
                # The message has left the queue.
                continue
            found.append(FoundMessage(copy, copy.expiry_ms, self._is_redelivered(copy, is_marked)))
        self.next_seq = next_seq
        self._finish(found)

    def on_range_stale(self) -> None:
        """The queue was purged during the load: read from the same place again."""
        self._finish([])

    def _finish(self, found: list[FoundMessage]) -> None:
        self.is_loading = False
        done = self._done
        self._done = None
        if done is not None and not self.is_stopped:
            done(found)


class _RangeCopies(ContentsLoad):
    """Reads messages of [first, end) from the index as copies; changes nothing."""

    def __init__(self, reader: SyncReader, first: i64, end: i64, max_messages: i64) -> None:
        super().__init__(reader.backing)
        self._reader: SyncReader = reader
        self._first: i64 = first
        self._end: i64 = end
        self._max_messages: i64 = min(max_messages, i64(AHEAD_MESSAGES))

    def begin(self) -> bool:
        contents = self.contents
        if self._reader.is_stopped or contents.is_deleted:
            self._reader.on_range_stale()
            return False
        contents.loader.ask_range(
            self, self._first, self._end, self._max_messages, contents.host.ahead_bytes
        )
        return True

    def on_loaded(self, positions: list[Position], next_seq: i64) -> None:
        contents = self.contents
        contents.count_read(len(positions))
        contents.loader.end(self)
        if self.is_stale:
            self._reader.on_range_stale()
        else:
            entries: list[Entry] = []
            for position in positions:
                if (
                    isinstance(position, Entry)
                    and position.has_content
                    and position.seq not in self.settled
                ):
                    position.body_bytes = len(position.message.body)
                    position.content_bytes = position.message.content_bytes
                    entries.append(position)
            self._reader.on_range_loaded(entries, next_seq)
        self.finish()
