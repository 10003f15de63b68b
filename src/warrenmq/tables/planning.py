"""Plans the reading of a data directory or a backup: which files and rows, cut into partitions.

Planning works like a start of the node, but changes nothing: it reads the checkpoint and replays
the journal behind it. After that the alive positions are known: the unsettled positions of the
index, and the positions that only the journal has. `reading.py` reads the files, partition by
partition.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from warrenmq.offline.data_directory import (
    DataDirectory,
    ToolError,
    VhostDirectory,
    files_of,
    level_names,
    opened,
)
from warrenmq.store.contents.file import GONE, ContentFile
from warrenmq.store.disk.files import (
    LOST_AND_FOUND,
    STORE_ID_NAME,
    journal_numbers,
    journal_path,
    known_store_id,
)
from warrenmq.store.disk.snapshot import NoStore, VhostSnapshot
from warrenmq.store.model.layout import PERSISTENT_NAME
from warrenmq.store.model.queue_index import Segment
from warrenmq.store.model.runs import Runs, subtract
from warrenmq.store.recovery import RecoveredQueue
from warrenmq.tables.contents import ContentTable
from warrenmq.tables.metadata import metadata_rows
from warrenmq.tables.parts import (
    CONTENT_FILE,
    INDEX,
    JOURNAL_FILE,
    LOG,
    FilePart,
    Partition,
    QueuePart,
    ReadOptions,
    no_runs,
)
from warrenmq.tables.schemas import COLUMNS, DAMAGE, FILES, JOURNAL, MESSAGES, METADATA, POSITIONS
from warrenmq.vocabulary.names import name_text

PARTITION_BYTES: Final = 128 * 1024 * 1024
PARTITION_BYTES_MAX: Final = 256 * 1024 * 1024


class PlanError(Exception):
    """Nothing can be read; the text says why in one line."""


def plan(directory: Path, table: str, options: ReadOptions) -> list[Partition]:
    """The partitions of one table.

    Raises PlanError for an unknown name or an unusable directory, and OSError when a file cannot be
    read.
    """
    if table not in COLUMNS:
        raise PlanError(f"unknown table '{table}'; there are: {', '.join(COLUMNS)}")
    partitions: list[Partition] = []
    try:
        with opened(directory) as data:
            _must_be_known(data, options)
            if table == METADATA:
                if data.definitions_error:
                    raise PlanError(f"{directory}: {data.definitions_error}")
                return [_rows_only(data, table, options, metadata_rows(data, options.vhost))]
            if table in (FILES, DAMAGE):
                partitions.append(_rows_only(data, table, options, _node_rows(data, table)))
            for vhost in data.vhosts:
                if options.vhost is None or vhost.name == options.vhost:
                    with files_of(vhost) as files:
                        try:
                            snapshot = VhostSnapshot(files)
                        except NoStore as error:
                            if table == DAMAGE and any(vhost.path.iterdir()):
                                rows = [_damage(vhost.name, None, str(error))]
                                partitions.append(_rows_only(data, table, options, rows))
                            continue
                        partitions += VhostPlan(data, vhost, snapshot, table, options).partitions()
    except ToolError as error:
        raise PlanError(str(error)) from None
    return partitions


def _must_be_known(data: DataDirectory, options: ReadOptions) -> None:
    if options.vhost is not None and all(vhost.name != options.vhost for vhost in data.vhosts):
        raise PlanError(f"{data.path} has no vhost '{options.vhost}'")
    if options.queues is None:
        return
    vhosts = {vhost.definition.name for vhost in data.vhosts if vhost.definition is not None}
    if options.vhost is not None:
        vhosts = {options.vhost.encode()}
    known = {name_text(queue.name) for queue in data.definitions.queues if queue.vhost in vhosts}
    for name in options.queues:
        if name not in known:
            raise PlanError(f"{data.path} has no queue '{name}'")


def _rows_only(
    data: DataDirectory, table: str, options: ReadOptions, rows: list[dict[str, Any]]
) -> Partition:
    nothing = ContentTable(data.path, b"", (), ())
    return Partition(table, options, data.path, data.path, "", b"", nothing, rows=tuple(rows))


def _node_rows(data: DataDirectory, table: str) -> list[dict[str, Any]]:
    """Rows of the directory itself, outside of the vhosts."""
    if table == DAMAGE:
        rows = [
            _damage("", name, f"{_shown(name)} is no part of a data directory")
            for name in data.strange
        ]
        for definition in data.missing:
            rows.append(
                _damage(
                    name_text(definition.name), None, f"the vhost has no directory {definition.id}"
                )
            )
        if data.definitions_error:
            rows.append(_damage("", "node.sqlite", data.definitions_error))
        return rows
    vhosts = {vhost.path for vhost in data.vhosts}
    found = []
    for path in sorted(data.path.rglob("*")):
        if path.is_file() and not vhosts & set(path.parents):
            found.append(_file(path.relative_to(data.path).as_posix(), path.stat().st_size))
    return found


def _file(path: str, size: int, vhost: str | None = None) -> dict[str, Any]:
    return {"vhost": vhost, "path": _shown(path), "kind": "other", "bytes": size}


def _damage(vhost: str, file: str | None, reason: str) -> dict[str, Any]:
    shown = None if file is None else _shown(file)
    return {"vhost": vhost or None, "file": shown, "offset": None, "length": None, "reason": reason}


def _size_of(path: Path) -> int:
    """The size of a file in bytes; -1: there is none."""
    return path.stat().st_size if path.is_file() else -1


def _shown(path: str) -> str:
    """`path` as valid text: a file name may be any bytes, and Arrow takes only valid text."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class VhostPlan:
    """The parts and partitions of one table of a vhost, whose directory `snapshot` has opened."""

    def __init__(
        self,
        data: DataDirectory,
        vhost: VhostDirectory,
        snapshot: VhostSnapshot,
        table: str,
        options: ReadOptions,
    ) -> None:
        self._data = data
        self._vhost = vhost
        self._snapshot = snapshot
        self._table = table
        self._options = options
        files = snapshot.content_files
        self._contents = ContentTable(
            vhost.path / PERSISTENT_NAME,
            snapshot.store_id,
            tuple(int(file.number) for file in files),
            tuple(int(file.first_id) for file in files),
            tuple(int(number) for number in journal_numbers(snapshot.files)[0]),
        )
        definition = vhost.definition
        names = level_names(data.definitions, definition.name) if definition is not None else {}
        self._names = {int(queue_id): name_text(name) for queue_id, name in names.items()}
        self._is_exhaustive = table in (POSITIONS, FILES, JOURNAL, DAMAGE)

    def partitions(self) -> list[Partition]:
        """The partitions of this vhost: files in order, packed until they reach PARTITION_BYTES."""
        empty = self.without_parts()
        found: list[Partition] = []
        parts: list[FilePart] = []
        gathered = 0
        for part, weight in self.weighted_parts():
            if parts and gathered + weight > PARTITION_BYTES_MAX:
                found.append(dataclasses.replace(empty, parts=tuple(parts)))
                parts, gathered = [], 0
            parts.append(part)
            gathered += weight
            if gathered >= PARTITION_BYTES:
                found.append(dataclasses.replace(empty, parts=tuple(parts)))
                parts, gathered = [], 0
        if parts:
            found.append(dataclasses.replace(empty, parts=tuple(parts)))
        rows = self._rows()
        if rows:
            found.append(dataclasses.replace(empty, rows=tuple(rows)))
        return found

    def without_parts(self) -> Partition:
        """A partition that has all but files to read."""
        return Partition(
            self._table,
            self._options,
            self._data.path,
            self._vhost.path,
            self._vhost.name,
            self._snapshot.store_id,
            self._contents,
        )

    def weighted_parts(self) -> Iterator[tuple[FilePart, int]]:
        """The files of the table, each with the bytes that reading it takes."""
        if self._table != JOURNAL:
            yield from self._segment_parts()
        if self._table != DAMAGE:
            # The table `damage` needs no journal parts: the replay has read the journal already,
            # and its report says more than the bytes (`_found_damage`).
            yield from self._journal_parts()
        if self._table == FILES:
            yield from self._log_parts()
        if self._table in (FILES, DAMAGE):
            for file in self._snapshot.content_files:
                part = self._content_part(file)
                if part is not None:
                    yield part, part.size

    # -- segments ----------------------------------------------------------------------------------

    def _segment_parts(self) -> Iterator[tuple[FilePart, int]]:
        shared = [
            segment
            for queue in self._snapshot.queues()
            for segment in self._snapshot.segments(queue)
            if segment.has_references and segment.live_persistent > 0
        ]
        stored = sum(int(file.valid_bytes) for file in self._snapshot.content_files)
        stored_per_segment = stored // len(shared) if shared and self._table == MESSAGES else 0
        for queue in self._snapshot.queues():
            if not self._is_wanted(queue):
                continue
            for segment in self._snapshot.segments(queue):
                part = self._segment_part(queue, segment)
                if part is None:
                    continue
                weight = part.size + (stored_per_segment if segment.has_references else 0)
                if self._table != FILES:
                    weight += int(segment.referred_bytes)
                # Each part reads the whole segment, but only the contents of its own seq ids.
                count = -(-weight // PARTITION_BYTES_MAX) if weight > part.size else 1
                if self._table != MESSAGES:
                    count = 1
                width = part.seq_to - part.seq_from
                for index in range(count):
                    bounds = [part.seq_from + width * step // count for step in (index, index + 1)]
                    yield (
                        dataclasses.replace(part, seq_from=bounds[0], seq_to=bounds[1]),
                        weight // count,
                    )

    def _segment_part(self, queue: RecoveredQueue, segment: Segment) -> FilePart | None:
        index = queue.ledger.index
        assert index is not None
        first = int(segment.number * index.segment_entries)
        end = int(first + index.segment_entries)
        options = self._options
        if not self._is_exhaustive and (
            segment.live_persistent == 0
            or (options.seq_to is not None and first >= options.seq_to)
            or (options.seq_from is not None and end <= options.seq_from)
        ):
            return None
        path = self._snapshot.path_of(queue, segment)
        size = _size_of(self._vhost.path / path)
        if size < 0 and (segment.live_persistent == 0 or self._table == FILES):
            return None
        is_made = self._snapshot.files.is_made(path)
        # The file may also be shorter when a rewritten one has replaced it.
        is_repaired = is_made or size < segment.size_bytes
        if not is_made:
            size = min(size, int(segment.size_bytes))
        runs = [(int(a), int(b)) for a, b in index.settled if b >= first and a < end]
        settled = np.array(runs, np.int64).reshape(-1, 2)
        number = int(index.file_number(segment.number))
        stretches = [
            (int(log.number), int(part_first), int(part_last))
            for log, part_first, part_last in index.stretches.parts_of(first, end - 1)
        ]
        return FilePart(
            INDEX,
            path,
            number,
            max(size, 0),
            (self._queue_part(queue, settled),),
            first,
            end,
            np.array(stretches, np.int64).reshape(-1, 3),
            int(segment.live_persistent),
            is_repaired,
        )

    def _queue_part(self, queue: RecoveredQueue, seqs: Any, referred: Any = None) -> QueuePart:
        log = queue.ledger
        return QueuePart(
            int(log.queue_id),
            self._names.get(int(log.queue_id)),
            int(log.delivered_upto),
            int(log.indexed_upto),
            seqs,
            np.array(log.delivered.above, np.int64).reshape(-1, 2),
            no_runs() if referred is None else referred,
        )

    def _is_wanted(self, queue: RecoveredQueue) -> bool:
        if self._options.queue_ids is not None:
            return int(queue.ledger.queue_id) in self._options.queue_ids
        name = self._names.get(int(queue.ledger.queue_id))
        if self._options.queues is not None and name not in self._options.queues:
            return False
        # A queue without a definition is not delivered to any client.
        return self._is_exhaustive or name is not None

    # -- journal -----------------------------------------------------------------------------------

    def _journal_parts(self) -> Iterator[tuple[FilePart, int]]:
        alive: dict[int, list[QueuePart]] = {}
        stored: dict[int, int] = {}
        replayed = [int(file.number) for file in self._snapshot.replay.files]
        numbers = [int(number) for number in journal_numbers(self._snapshot.files)[0]]
        for queue in self._snapshot.queues():
            if not self._is_wanted(queue):
                continue
            referred = self._referred(queue)
            by_file: dict[int, list[int]] = {}
            for seq, position in queue.positions.items():
                file = position.message.file
                assert file is not None
                by_file.setdefault(int(file.number), []).append(seq)
                if position.content_ref is not None:
                    stored[int(file.number)] = stored.get(int(file.number), 0) + int(
                        position.content_ref.stored_bytes
                    )
            for number in numbers:
                if number not in replayed and number not in referred:
                    continue
                seqs = np.sort(np.array(by_file.get(number, []), np.int64))
                if len(seqs) or self._is_exhaustive:
                    alive.setdefault(number, []).append(
                        self._queue_part(queue, seqs, referred.get(number))
                    )
        for number in numbers:
            # Journal files before the first one of the checkpoint only wait to be deleted.
            if number not in replayed and self._table not in (FILES, JOURNAL):
                continue
            queues = tuple(alive.get(number, ()))
            if not queues and not self._is_exhaustive:
                continue
            path = journal_path(number)
            size = self._snapshot.files.size(path)
            weight = size + (stored.get(number, 0) if self._table == MESSAGES else 0)
            yield FilePart(JOURNAL_FILE, path, number, size, queues), weight

    def _referred(self, queue: RecoveredQueue) -> dict[int, Any]:
        """By log, the seq ids of a queue whose contents it may have; only for the table `files`."""
        index = queue.ledger.index
        if index is None or self._table != FILES:
            return {}
        runs: dict[int, Runs] = {}
        for stretch in index.stretches.all:
            known = runs.setdefault(int(stretch.log.number), [])
            known.extend(subtract(stretch.first, stretch.last, index.settled))
        return {number: np.array(some, np.int64).reshape(-1, 2) for number, some in runs.items()}

    def _log_parts(self) -> Iterator[tuple[FilePart, int]]:
        """The logs that have left the journal's directory."""
        queues: dict[int, list[QueuePart]] = {}
        for queue in self._snapshot.queues():
            for number, runs in self._referred(queue).items():
                nothing = np.empty(0, np.int64)
                queues.setdefault(number, []).append(self._queue_part(queue, nothing, runs))
        for number in sorted(queues):
            path = f"{PERSISTENT_NAME}/{number}.wal"
            if self._snapshot.files.is_file(path):
                size = int(self._snapshot.files.size(path))
                yield FilePart(LOG, path, number, size, tuple(queues[number])), size

    # -- contents, and what is no file of records --------------------------------------------------

    def _content_part(self, file: ContentFile) -> FilePart | None:
        if not self._snapshot.files.is_file(file.path):
            return None
        live = [
            int(file.id_at(place)) for place in range(file.count) if file.released_at(place) != GONE
        ]
        size = self._snapshot.files.size(file.path)
        return FilePart(
            CONTENT_FILE,
            file.path,
            int(file.number),
            size,
            live_ids=np.array(live, np.int64),
            live_bytes=int(file.valid_bytes),
        )

    def _rows(self) -> list[dict[str, Any]]:
        if self._table == DAMAGE:
            return self._found_damage()
        if self._table != FILES:
            return []
        known = {part.path for part, _ in self.weighted_parts()}
        root = self._vhost.path
        return [
            _file(path.relative_to(root).as_posix(), path.stat().st_size, self._vhost.name)
            for path in sorted(root.rglob("*"))
            if path.is_file() and path.relative_to(root).as_posix() not in known
        ]

    def _found_damage(self) -> list[dict[str, Any]]:
        """Rows of the damage that the replay reported: whole files, stretches of the journal."""
        report = self._snapshot.report
        vhost = self._vhost.name
        rows = [_damage(vhost, path, "damaged header") for path in report.damaged_headers]
        if not known_store_id(self._snapshot.files)[1]:
            rows.append(
                _damage(vhost, STORE_ID_NAME, "lost or damaged; the other files say what it was")
            )
        rows += [_damage(vhost, text, "missing") for text in report.missing]
        for line in report.quarantined:
            rows.append(
                _damage(vhost, line.partition(" -> ")[0], "not a usable file of this vhost")
            )
        is_old = report.checkpoint not in ("", "checkpoint") and not report.is_between_checkpoints
        if report.is_rebuilt or is_old:
            rows.append(_damage(vhost, "checkpoint", "not usable"))
        for found in report.damage:
            row = _damage(vhost, journal_path(found.file_number), found.reason)
            rows.append(row | {"offset": int(found.start), "length": int(found.end - found.start)})
        for number, size in self._snapshot.replay.missing:
            rows.append(
                _damage(
                    vhost, journal_path(number), f"missing, with {size} bytes of messages and acks"
                )
            )
        if report.missing_contents:
            rows.append(
                _damage(
                    vhost, PERSISTENT_NAME, f"{report.missing_contents} messages lack their content"
                )
            )
        return [row for row in rows if not row["file"].startswith(LOST_AND_FOUND)]
