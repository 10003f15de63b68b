"""Checks the entries of indexes against the journal files that hold their contents.

Each file is read once, in order, whatever the number of queues that have contents in it. Takes 24
bytes for each entry.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

from warrenmq.store.disk.log_reader import LogRows
from warrenmq.store.model.runs import Runs, contains, remove_run, subtract
from warrenmq.store.records.record import FILE_MAGIC, file_header_is_valid, file_header_number
from warrenmq.store.recovery import RecoveredQueue

# How an entry fails.
DAMAGED_RECORD: Final = "is damaged"
OTHER_RECORD: Final = "is another message's, or none"


# The place of a live position's content: journal file, offset of the record, seq id.
Referred = tuple[int, int, int]


class WrongEntry(NamedTuple):
    """An entry without its message. `reason` is one of those above."""

    queue_id: int
    seq: int
    offset: int
    reason: str


class LogFindings:
    """The findings in one journal file."""

    def __init__(self) -> None:
        self.wrong: list[WrongEntry] = []
        # Where the file has bytes that are no valid record: (start, end), offsets in bytes.
        self.damaged: list[tuple[int, int]] = []
        # End of the last record that an entry needs.
        self.needed_end = 0
        # Number of messages in the file that no readable entry names; a start finds them.
        self.found_again = 0


class _Entries:
    """The entries that refer to one file."""

    def __init__(self) -> None:
        self.offsets = array("Q")
        self.seqs = array("Q")
        self.queues = array("Q")

    def are_in(self, rows: LogRows) -> bool:
        """Whether each entry names a record of its message in `rows`."""
        found = set(zip(rows.starts, rows.queues, rows.seqs, strict=True))
        return found.issuperset(zip(self.offsets, self.queues, self.seqs, strict=True))

    def in_order(self) -> list[int]:
        """Numbers of the entries by offset, the last one first."""
        return sorted(range(len(self.offsets)), key=self.offsets.__getitem__, reverse=True)


class LogCheck:
    """Gathers what the indexes of a vhost say of journal files; compares it with the files."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entries] = {}
        # Seq ids that must have a record in some file, and have no entry, by queue id.
        self._lost: dict[int, Runs] = {}

    def add(self, queue: RecoveredQueue, referred: list[Referred]) -> int:
        """Add the entries of a segment; returns how many are in no stretch of their file."""
        index = queue.ledger.index
        assert index is not None
        stretches = index.stretches.all
        place = strays = 0
        for file, offset, seq in referred:
            while place < len(stretches) and stretches[place].last < seq:
                place += 1
            if (
                place == len(stretches)
                or seq < stretches[place].first
                or stretches[place].log.number != file
            ):
                strays += 1
            entries = self._entries.get(file)
            if entries is None:
                entries = self._entries[file] = _Entries()
            entries.offsets.append(offset)
            entries.seqs.append(seq)
            entries.queues.append(queue.ledger.queue_id)
        return strays

    def add_lost(self, queue: RecoveredQueue, number: int, found: Runs) -> None:
        """Look for live messages of a damaged segment that are not in `found`."""
        index = queue.ledger.index
        assert index is not None
        first = number * index.segment_entries
        end = min(first + index.segment_entries, queue.ledger.indexed_upto)
        lost = self._lost.setdefault(queue.ledger.queue_id, [])
        for stretch in index.stretches.all:
            for run_first, run_last in subtract(
                max(first, stretch.first), min(end - 1, stretch.last), index.settled
            ):
                lost += subtract(run_first, run_last, found)

    def files(self) -> list[int]:
        """Numbers of the files that entries refer to."""
        return sorted(self._entries)

    def entries_in(self, number: int) -> int:
        """How many entries refer to a file."""
        entries = self._entries.get(number)
        return len(entries.offsets) if entries is not None else 0

    def compare(self, number: int, rows: LogRows) -> LogFindings:
        """Compare the entries with the records of file `number`."""
        entries = self._entries.pop(number, None) or _Entries()
        if not self._lost and all(rows.valid) and entries.are_in(rows):
            findings = LogFindings()
            if entries.offsets:
                last = bisect_left(rows.starts, max(entries.offsets))
                findings.needed_end = rows.ends[last]
            return findings
        return self._compare_each(entries, rows)

    def _compare_each(self, entries: _Entries, rows: LogRows) -> LogFindings:
        findings = LogFindings()
        left = entries.in_order()

        def add_wrong(place: int, reason: str) -> None:
            findings.wrong.append(
                WrongEntry(
                    entries.queues[place], entries.seqs[place], entries.offsets[place], reason
                )
            )

        for record in _records(rows):
            if not record.is_valid:
                _add_stretch(findings.damaged, record.start, record.end)
            while left and entries.offsets[left[-1]] < record.end:
                place = left.pop()
                key = (entries.queues[place], entries.seqs[place])
                if not record.is_valid:
                    add_wrong(place, DAMAGED_RECORD)
                elif entries.offsets[place] != record.start or key not in record.positions:
                    add_wrong(place, OTHER_RECORD)
                else:
                    findings.needed_end = record.end
            if self._lost:
                findings.found_again += self._find(record.positions)
        for place in reversed(left):
            add_wrong(place, OTHER_RECORD)
        return findings

    def _find(self, positions: list[tuple[int, int]]) -> int:
        count = 0
        for queue_id, seq in positions:
            lost = self._lost.get(queue_id)
            if lost and contains(lost, seq):
                remove_run(lost, seq, seq)
                count += 1
        return count


class _Record(NamedTuple):
    start: int
    end: int
    is_valid: bool
    # (queue id, seq id) of each position.
    positions: list[tuple[int, int]]


def _records(rows: LogRows) -> Iterator[_Record]:
    place = 0
    while place < len(rows.starts):
        first = place
        while place < len(rows.starts) and rows.starts[place] == rows.starts[first]:
            place += 1
        positions = list(zip(rows.queues[first:place], rows.seqs[first:place], strict=True))
        yield _Record(
            rows.starts[first],
            rows.ends[first],
            bool(rows.valid[first]),
            positions if positions[0][0] >= 0 else [],
        )


def _add_stretch(stretches: list[tuple[int, int]], start: int, end: int) -> None:
    if stretches and stretches[-1][1] == start:
        start = stretches.pop()[0]
    stretches.append((start, end))


def header_is_ours(header: bytes, number: int, store_id: bytes) -> bool:
    """Whether the header is that of journal file `number`."""
    return (
        file_header_is_valid(header, FILE_MAGIC, store_id) and file_header_number(header) == number
    )
