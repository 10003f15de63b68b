"""A book of receipts: which messages of a sink are in a queue, by position."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from warrenmq.store.model.message import JournalFile, MovedMessage
from warrenmq.store.model.runs import Runs, add_run, contains, merge_runs, remove_run


@final
class ReceiptBook:
    """The receipts of one mirrored queue, or of all plain queues of the node, for one sink.

    The row of the definitions has the floor and some positions. The others have MOVEs with the
    book's `id` in journal files, which are pinned until a newer row is durable.
    """

    def __init__(self, id: i64, sink: bytes, queue_id: i64, floor: i64, runs: Runs) -> None:
        self.id: i64 = id
        self.sink: bytes = sink
        # 0: the book of the plain queues.
        self.queue_id: i64 = queue_id
        self.floor: i64 = floor
        # The book ended with its sink or its queue.
        self.is_dropped: bool = False
        # Positions that no MOVE of this book tells: they are in the row.
        self.listed: Runs = runs
        # Positions with a durable MOVE, and the file that has it, oldest first.
        self.moved: dict[int, JournalFile] = {}
        # Pending positions whose MOVEs have the book of the plain queues as their origin.
        self.shared: Runs = []
        # Positions that are not durable yet. None: the message is in the MOVE of another book.
        self.pending: dict[int, MovedMessage | None] = {}
        # Files with MOVEs that nobody will look for once the row has the present floor.
        self._passed: list[JournalFile] = []

    def has(self, position: i64) -> bool:
        """Whether the message at `position` is here, or is not to be taken any more."""
        return (
            position < self.floor
            or position in self.moved
            or position in self.pending
            or contains(self.listed, position)
        )

    def durable_runs(self) -> Runs:
        """The positions from the floor on that are durable."""
        found: Runs = list(self.listed)
        for position in self.moved:
            found.append((position, position))
        return merge_runs(found)

    def runs(self) -> Runs:
        """All positions from the floor on."""
        found = self.durable_runs()
        for position in self.pending:
            if position >= self.floor:
                found.append((position, position))
        return merge_runs(found)

    def raise_floor(self, floor: i64) -> None:
        """Forget positions below `floor`, unless it is lower than before."""
        if floor <= self.floor:
            return
        self.floor = floor
        remove_run(self.listed, 0, floor - 1)
        if len(self.moved) == 0:
            return
        for position in [position for position in self.moved if position < floor]:
            self._passed.append(self.moved.pop(position))

    def on_durable(self, position: i64) -> JournalFile | None:
        """Note that a pending message is durable; returns a file that is to be unpinned."""
        if position not in self.pending:
            return None
        moved = self.pending.pop(position)
        if moved is None:
            if position >= self.floor:
                add_run(self.listed, position, position)
            return None
        file = moved.pinned
        assert file is not None
        if self.is_dropped:
            return file
        if position < self.floor:
            self._passed.append(file)
        else:
            self.moved[position] = file
        return None

    def list_moved(self) -> list[JournalFile]:
        """List the positions of all durable MOVEs, for a new row.

        Returns the files that are to be unpinned when it is stored.
        """
        files = self._passed
        self._passed = []
        files.extend(self.moved.values())
        self.listed = self.durable_runs()
        self.moved = {}
        return files

    @property
    def pinned_count(self) -> i64:
        """Durable MOVEs whose files are pinned."""
        return i64(len(self._passed)) + i64(len(self.moved))

    def oldest_file(self) -> JournalFile | None:
        """A file with one of the oldest of these MOVEs; None: there is none."""
        if len(self._passed) > 0:
            return self._passed[0]
        for file in self.moved.values():
            return file
        return None
