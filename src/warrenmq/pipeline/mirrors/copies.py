"""A copy of a mirrored queue in a directory: its levels, what its store knows of them, its files.

A queue with priorities has a level for each priority that a message had; other queues have the
level 0 only. Each level numbers its messages by itself, and a seq id means the same message in
every copy for ever. The directory is that of a stopped node, a backup of it, or a snapshot.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from warrenmq.broker.definitions.metadata import PutQueue
from warrenmq.cluster.membership.identity import IdentityError, read_identity
from warrenmq.offline.data_directory import DataDirectory, VhostDirectory, files_of, opened
from warrenmq.pipeline.result import JobError
from warrenmq.store.disk.snapshot import NoStore, VhostSnapshot
from warrenmq.tables.file_scan import Array
from warrenmq.tables.parts import INDEX, FilePart, Partition, ReadOptions
from warrenmq.tables.planning import VhostPlan
from warrenmq.tables.schemas import MESSAGES

# Seq ids stay below it.
SEQ_END = 1 << 62


@dataclass(frozen=True)
class LevelPart:
    """A file with messages of a level, their range of seq ids [from, to), and its bytes to read."""

    part: FilePart
    seq_from: int
    seq_to: int
    weight: int


@dataclass(frozen=True)
class LevelCopy:
    """One level of a copy.

    All its messages are below `next_seq`; those below `indexed_upto` are in the index, whose first
    segment begins at `first_indexed`, and `settled` has the inclusive runs of seq ids that were
    settled there. `epochs`: rows (epoch, first seq id). `is_journal_whole`: no part of the journal
    is lost.
    """

    next_seq: int
    indexed_upto: int
    first_indexed: int
    settled: Array
    epochs: tuple[tuple[int, int], ...]
    is_journal_whole: bool
    parts: tuple[LevelPart, ...]


@dataclass(frozen=True)
class QueueCopy:
    """The copy of a queue in the directory `path`; `name` is that of its node, or the directory.

    `levels` is by priority. `frame` is a partition without files. `birth` tells the queue from
    others of its name that were deleted before.
    """

    name: str
    path: Path
    birth: int
    levels: dict[int, LevelCopy]
    frame: Partition

    @property
    def epoch(self) -> int:
        """The highest epoch that the copy has seen."""
        return max(
            (level.epochs[-1][0] for level in self.levels.values() if level.epochs), default=0
        )

    @property
    def next_seq(self) -> int:
        """All messages of all levels are below it."""
        return max((level.next_seq for level in self.levels.values()), default=1)

    @property
    def messages(self) -> int:
        """How many messages the copy has, by the accounts of its store."""
        parts = [each.part for level in self.levels.values() for each in level.parts]
        return sum(part.live_count or len(part.queues[0].seqs) for part in parts)


def open_copy(path: Path, vhost: str, queue: str, name: str = "") -> QueueCopy:
    """The copy of a queue in the directory `path`; `name` of its node, if the caller knows it.

    JobError when the directory has no such queue, or one that is not durable. ToolError when the
    directory cannot be read.
    """
    with opened(path) as data:
        if data.definitions_error:
            raise JobError(f"{path}: {data.definitions_error}")
        found = next((each for each in data.vhosts if each.name == vhost), None)
        if found is None or found.definition is None:
            raise JobError(f"{path} has no vhost '{vhost}'")
        definition = _definition(data, found, queue)
        if definition is None:
            raise JobError(f"{path} has no queue '{queue}' in vhost '{vhost}'")
        if not definition.durable:
            raise JobError(f"queue '{queue}' is not durable: no directory has its messages")
        try:
            identity = read_identity(path)
        except IdentityError as error:
            raise JobError(str(error)) from None
        ids = {int(definition.id): 0} | {
            int(part.id): int(part.number)
            for part in data.definitions.queue_parts
            if part.vhost == definition.vhost and part.owner == definition.id
        }
        with files_of(found) as files:
            try:
                snapshot = VhostSnapshot(files)
            except NoStore as error:
                raise JobError(f"{path}: vhost '{vhost}': {error}") from None
            options = ReadOptions(vhost=vhost, queue_ids=tuple(ids))
            plan = VhostPlan(data, found, snapshot, MESSAGES, options)
            levels = _levels(snapshot, ids, list(plan.weighted_parts()))
    return QueueCopy(
        name or (identity.node if identity is not None else path.name),
        path,
        int(definition.birth),
        levels,
        plan.without_parts(),
    )


def _definition(data: DataDirectory, vhost: VhostDirectory, queue: str) -> PutQueue | None:
    assert vhost.definition is not None
    for each in data.definitions.queues:
        if each.vhost == vhost.definition.name and each.name == queue.encode():
            return each
    return None


def _levels(
    snapshot: VhostSnapshot, ids: dict[int, int], parts: list[tuple[FilePart, int]]
) -> dict[int, LevelCopy]:
    by_queue: dict[int, list[LevelPart]] = {queue_id: [] for queue_id in ids}
    for part, weight in parts:
        for queue in part.queues:
            one = dataclasses.replace(part, queues=(queue,))
            if part.kind == INDEX:
                by_queue[queue.id].append(LevelPart(one, part.seq_from, part.seq_to, weight))
            elif len(queue.seqs):
                first, last = int(queue.seqs[0]), int(queue.seqs[-1])
                by_queue[queue.id].append(LevelPart(one, first, last + 1, weight))
    report = snapshot.report
    is_whole = not (report.damage or report.missing or report.is_rebuilt or snapshot.replay.missing)
    found = {}
    for queue_id, priority in ids.items():
        recovered = snapshot.queue(queue_id)
        if recovered is None:
            continue
        ledger = recovered.ledger
        segments = snapshot.segments(recovered)
        index = ledger.index
        indexed_upto = int(ledger.indexed_upto)
        first = indexed_upto
        runs: list[Any] = []
        if index is not None:
            runs = [(int(a), int(b)) for a, b in index.settled]
            if segments:
                first = int(segments[0].number * index.segment_entries)
        found[priority] = LevelCopy(
            int(ledger.next_seq),
            indexed_upto,
            first,
            np.array(runs, np.int64).reshape(-1, 2),
            tuple((int(epoch), int(seq)) for epoch, seq in ledger.epochs),
            is_whole,
            tuple(by_queue[queue_id]),
        )
    return found
