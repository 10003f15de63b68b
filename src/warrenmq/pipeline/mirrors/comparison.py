"""Compares given copies of a queue: lets an engine do the tasks, and gathers what they find.

The files of the tasks are in a directory that the workers see. Each phase is a run of tasks:
`compare` finds rows of differences, and `describe` makes a table of those that count.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq

from warrenmq.pipeline.mirrors.comparing import (
    DIFFERS,
    MISSING,
    ROW_FIELDS,
    SETTLED,
    CompareTask,
    SideFigures,
    TaskFigures,
    compare,
)
from warrenmq.pipeline.mirrors.copies import SEQ_END, QueueCopy
from warrenmq.pipeline.mirrors.describing import DIFFERENCES, DescribeTask, describe
from warrenmq.pipeline.mirrors.stretches import Windows, tasks_of
from warrenmq.pipeline.tasks import TaskRunner, numbered
from warrenmq.store.disk.files import make_directories
from warrenmq.tables.file_scan import Array

_SEQ: Final = ROW_FIELDS.index("seq")
_KIND: Final = ROW_FIELDS.index("kind")
_COPY: Final = ROW_FIELDS.index("copy")
NO_ROWS: Final = np.empty((0, len(ROW_FIELDS)), np.int64)


@dataclass(frozen=True)
class Compared:
    """Copies, the reference first; `complete` says of each other one whether it should have all."""

    reference: QueueCopy
    others: Sequence[QueueCopy]
    complete: Sequence[bool]
    is_live: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the copies."""
        return (self.reference.name, *(each.name for each in self.others))


class Comparison:
    """One comparison of `copies`, whose tasks `runner` runs and keeps below `work`."""

    def __init__(
        self, copies: Compared, runner: TaskRunner, work: Path, windows: Windows | None = None
    ) -> None:
        self.copies = copies
        self._runner = runner
        self._work = work
        make_directories(work)
        self._tasks = numbered(
            CompareTask(stretches, work / "rows" / f"{number:06d}.npy")
            for number, stretches in enumerate(
                tasks_of(copies.reference, copies.others, copies.complete, copies.is_live, windows)
            )
        )
        # By task with differences, its rows.
        self._rows: dict[str, Array] = {}
        # What is known of each copy.
        self.figures: list[SideFigures] = []

    def run(self, step: str) -> None:
        """Compare, and set the figures of each copy."""
        done = self._runner.run(self._work / "compared", self._tasks, compare, TaskFigures, step)
        self._rows = {
            name: np.load(self._tasks[name].rows) for name, found in done.items() if found.rows
        }
        sums = [SideFigures() for _ in self.copies.names]
        for found in done.values():
            for known, more in zip(sums, found.sides, strict=True):
                known.add(more)
        self.figures = sums

    @property
    def rows(self) -> Array:
        """The rows of differences, with ROW_FIELDS."""
        return np.concatenate([NO_ROWS, *self._rows.values()])

    def doubtful(self) -> Windows:
        """By priority, the range of seq ids of the messages that not all copies have."""
        rows = self.rows
        rows = rows[rows[:, _KIND] != DIFFERS]
        windows = {}
        for priority in np.unique(rows[:, 0]).tolist():
            seqs = rows[rows[:, 0] == priority, _SEQ]
            windows[priority] = (int(seqs.min()), int(seqs.max()) + 1)
        return windows

    def forget_before_first(self) -> None:
        """Forget what copies lack before their first messages, and count it in `lacks`.

        A directory does not tell whether a copy has settled them, or was not synchronised yet.
        """
        for name, rows in self._rows.items():
            is_kept = np.ones(len(rows), bool)
            for place, figures in enumerate(self.figures[1:], 1):
                is_absent = (rows[:, _COPY] == place) & (rows[:, _KIND] != DIFFERS)
                for priority in np.unique(rows[is_absent, 0]).tolist():
                    first = figures.firsts.get(priority, SEQ_END)
                    is_before = is_absent & (rows[:, 0] == priority) & (rows[:, _SEQ] < first)
                    figures.lacks += int(np.sum(is_before))
                    is_kept &= ~is_before
            self._rows[name] = rows[is_kept]
        self._rows = {name: rows for name, rows in self._rows.items() if len(rows)}

    def keep(self, confirmed: Array) -> dict[int, int]:
        """Keep only those messages missing in a copy that `confirmed` has as well.

        Returns how many were forgotten, by kind.
        """
        forgotten = dict.fromkeys((MISSING, SETTLED), 0)
        known = _keys(confirmed)
        for name, rows in self._rows.items():
            is_kept = (rows[:, _KIND] == DIFFERS) | np.isin(_keys(rows), known)
            for kind in forgotten:
                forgotten[kind] += int(np.sum(rows[~is_kept, _KIND] == kind))
            self._rows[name] = rows[is_kept]
        self._rows = {name: rows for name, rows in self._rows.items() if len(rows)}
        return forgotten

    def describe(self, vhost: str, queue: str, target: Path) -> int:
        """Write the table of differences to the Parquet file `target`; returns its rows."""
        tasks: dict[str, DescribeTask] = {}
        make_directories(self._work / "tables")
        for name, rows in self._rows.items():
            compared = self._tasks[name]
            np.save(compared.rows, rows)
            tasks[name] = DescribeTask(
                compared.stretches,
                compared.rows,
                self._work / "tables" / f"{name}.parquet",
                vhost,
                queue,
                self.copies.names,
            )
        if tasks:
            self._runner.run(self._work / "described", tasks, describe, int, "describing")
        count = 0
        with pq.ParquetWriter(target, DIFFERENCES, compression="zstd") as writer:
            for task in tasks.values():
                table = pq.read_table(task.table)
                writer.write_table(table)
                count += len(table)
        return count


def _keys(rows: Array) -> Any:
    """Each row without its kind as one value: which message, and between which copies."""
    columns = np.ascontiguousarray(np.delete(rows, _KIND, axis=1))
    return columns.view([("", np.int64)] * columns.shape[1]).reshape(-1)
