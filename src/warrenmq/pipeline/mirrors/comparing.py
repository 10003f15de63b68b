"""Compares the copies of a queue on some stretches: the work of one task.

A message is compared by a checksum over its address, properties and body (CRC-32C), its size and
its times. Only for messages that differ a second look tells in which fields (describing.py).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from warrenmq.pipeline.mirrors.stretches import Side, Stretch
from warrenmq.store.disk.files import make_directories
from warrenmq.tables.file_scan import Array
from warrenmq.tables.reading import read
from warrenmq.tables.rows import is_in_runs
from warrenmq.tables.schemas import COLUMNS, MESSAGES

# Kinds of differences: the copy lacks a message and has not settled it; it has settled one that the
# other copy still has; both have it, and not alike.
MISSING: Final = 0
SETTLED: Final = 1
DIFFERS: Final = 2
KIND_NAMES: Final = ("missing", "settled", "differs")

# Numbers of a row of differences. `copy` and `other` are places in `Stretch.sides`; one of them is
# the reference, 0.
ROW_FIELDS: Final = ("priority", "seq", "kind", "copy", "other")

_COMPARED: Final = ("checksum", "size", "enqueued_at", "expires_at")
_READ: Final = ("seq", *_COMPARED, "redelivered")


class SideFigures(msgspec.Struct):
    """What a task has found of one copy.

    `messages` and `bytes` of bodies are all that the copy has, and `compared` those that the
    reference has, too. `behind` are messages of the reference behind the end of what this copy can
    have, `ahead` those of the copy behind the end of the reference; `lacks` are messages that a
    copy lacks which need not have all. `marks`: messages that only one of the two marks as
    delivered before.
    """

    messages: int = 0
    bytes: int = 0
    compared: int = 0
    behind: int = 0
    ahead: int = 0
    lacks: int = 0
    marks: int = 0
    # The lowest seq id of the messages, by priority.
    firsts: dict[int, int] = {}

    def add(self, more: "SideFigures") -> None:
        """Add the figures of other stretches."""
        for name in self.__struct_fields__:
            if name != "firsts":
                setattr(self, name, getattr(self, name) + getattr(more, name))
        for priority, first in more.firsts.items():
            self.firsts[priority] = min(first, self.firsts.get(priority, first))


class TaskFigures(msgspec.Struct):
    """What a task has found: figures of each copy, and the number of rows of differences."""

    sides: list[SideFigures]
    rows: int


@dataclass(frozen=True)
class CompareTask:
    """Stretches to compare; the rows of differences go to the numpy file `rows`, if there are."""

    stretches: tuple[Stretch, ...]
    rows: Path


def compare(task: CompareTask) -> TaskFigures:
    """In a worker: compare the copies. Raises ReadError and OSError."""
    figures = [SideFigures() for _ in task.stretches[0].sides]
    found: list[Array] = []
    for stretch in task.stretches:
        reference = _messages(stretch.sides[0])
        _count(figures[0], stretch.priority, reference)
        for place, side in enumerate(stretch.sides[1:], 1):
            messages = _messages(side)
            _count(figures[place], stretch.priority, messages)
            for kind, copy, other, seqs in _differences(
                stretch.sides[0], reference, side, messages, place, figures[place]
            ):
                row = np.array([stretch.priority, 0, kind, copy, other], np.int64)
                rows = np.tile(row, (len(seqs), 1))
                rows[:, ROW_FIELDS.index("seq")] = seqs
                found.append(rows)
    count = sum(map(len, found))
    if count:
        make_directories(task.rows.parent)
        np.save(task.rows, np.concatenate(found))
    return TaskFigures(figures, count)


def _count(figures: SideFigures, priority: int, messages: dict[str, Array]) -> None:
    seqs = messages["seq"]
    found = SideFigures(len(seqs), int(messages["size"].sum()))
    if len(seqs):
        found.firsts[priority] = int(seqs[0])
    figures.add(found)


def _messages(side: Side) -> dict[str, Array]:
    """The compared columns of a side, in order of seq ids."""
    columns: dict[str, list[Array]] = {name: [np.empty(0, np.int64)] for name in _READ}
    if side.partition is not None:
        schema = pa.schema([(name, COLUMNS[MESSAGES][name]) for name in _READ])
        for batch in read(side.partition, schema):
            for name in _READ:
                columns[name].append(_numbers(batch.column(name)))
    found = {name: np.concatenate(parts) for name, parts in columns.items()}
    order = np.argsort(found["seq"], kind="stable")
    return {name: values[order] for name, values in found.items()}


def _numbers(column: Any) -> Array:
    """A column as integers; null, of a message that never expires, is 0."""
    found: Array = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return found


def _differences(
    first: Side,
    reference: dict[str, Array],
    side: Side,
    messages: dict[str, Array],
    place: int,
    figures: SideFigures,
) -> list[tuple[int, int, int, Array]]:
    """(kind, copy, other, seq ids) of the differences between the reference and the copy `place`.

    Adds to `figures`.
    """
    _, mine, its = np.intersect1d(
        reference["seq"], messages["seq"], assume_unique=True, return_indices=True
    )
    figures.compared += len(mine)
    is_other = np.zeros(len(mine), bool)
    for name in _COMPARED:
        is_other |= reference[name][mine] != messages[name][its]
    figures.marks += int(np.sum(reference["redelivered"][mine] != messages["redelivered"][its]))
    found = [(DIFFERS, place, 0, reference["seq"][mine[is_other]])]
    absent = np.delete(reference["seq"], mine)
    extra = np.delete(messages["seq"], its)
    if not side.is_complete:
        figures.lacks += len(absent)
    else:
        figures.behind += int(np.sum(absent >= side.until))
        figures.ahead += int(np.sum(extra >= side.until))
        for lacking, seqs, copy, other in (
            (side, absent[absent < side.until], place, 0),
            (first, extra[extra < side.until], 0, place),
        ):
            is_settled = _is_settled(lacking, seqs)
            found.append((SETTLED, copy, other, seqs[is_settled]))
            found.append((MISSING, copy, other, seqs[~is_settled]))
    return [row for row in found if len(row[3])]


def _is_settled(side: Side, seqs: Array) -> Array:
    """Whether a copy has settled each of `seqs`, none of which it has.

    A message that is neither in the index nor in the journal was settled there, unless a part of
    the journal is lost.
    """
    found = is_in_runs(side.settled, seqs) | (seqs < side.first_indexed)
    if side.is_journal_whole:
        found |= seqs >= side.indexed_upto
    return found
