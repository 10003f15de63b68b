"""The rows that a program reads through a reader group while its queue changes masters.

The program may read a batch again, as Spark does after a failure. The offsets of a batch name its
rows: reading them again gives the same rows in the same order at whichever node has the master of
the queue by then. No message becomes two rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from simulator.models.messages import Violation


class Row(NamedTuple):
    """A message as the program gets it: its name, and the CRC-32 of its body."""

    message: str
    crc: int


class Rows:
    """The rows of one session of `reader`.

    `may_double`: which messages may come as two rows; `may_miss`: which a crash may have taken from
    a batch that was read.
    """

    def __init__(
        self,
        reader: str,
        first: int,
        may_double: Callable[[str], bool],
        may_miss: Callable[[str], bool],
    ) -> None:
        self._reader = reader
        self._may_double = may_double
        self._may_miss = may_miss
        self._rows: dict[int, Row] = {}
        self._seqs: dict[str, int] = {}
        # What lies below has been read to its end: nothing new may appear there.
        self._known_upto = first
        # Ranges that were read to their ends, in order.
        self.batches: list[tuple[int, int]] = []

    def take(self, seq: int, row: Row) -> bool:
        """Take a row of a range that is being read; True if the program gets it first now."""
        known = self._rows.get(seq)
        if known is None and seq >= self._known_upto:
            self._take_new(seq, row)
            return True
        if known != row:
            raise self._violation(f"{row} stands at {seq}, where it had read {known}")
        return False

    def _take_new(self, seq: int, row: Row) -> None:
        other = self._seqs.setdefault(row.message, seq)
        if other != seq and not self._may_double(row.message):
            raise self._violation(f"{row.message} comes at {seq}, and came at {other}")
        self._rows[seq] = row

    def end(self, first: int, end: int, seqs: list[int]) -> None:
        """The range [first, end) was read to its end, and had its rows at `seqs`."""
        expected = sorted(seq for seq in self._rows if first <= seq < end)
        found = set(seqs)
        if seqs != [seq for seq in expected if seq in found or not self._is_gone(seq)]:
            raise self._violation(f"[{first}, {end}) has rows at {seqs}, and had {expected}")
        if end > self._known_upto:
            self._known_upto = end
            self.batches.append((first, end))

    def _is_gone(self, seq: int) -> bool:
        return self._may_miss(self._rows[seq].message)

    def forget(self, upto: int) -> None:
        """The program has committed the batches that end at `upto` or before."""
        self.batches = [batch for batch in self.batches if batch[1] > upto]

    def _violation(self, text: str) -> Violation:
        return Violation("rows", f"{self._reader}: {text}")
