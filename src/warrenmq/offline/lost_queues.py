"""Finds the queues in a vhost's `lost+found`, for which earlier starts had no definition.

A start that finds no definition for a queue moves its directory of segments to `lost+found/ID`, and
writes its messages in the journal to `lost+found/queue-ID.wal`. A node that cannot read a segment
moves it to `lost+found/queues-ID-NUMBER.idx`. The contents of large messages stay in the content
files; those in journal files are copied into a directory of segments that is put aside. Only the
checkpoint of that time knew which messages in segments were acked.
"""

import errno
import heapq
import re
from collections.abc import Iterator
from typing import Final

from warrenmq.store.disk.files import (
    JOURNAL_DIRECTORY,
    LOST_AND_FOUND,
    STORE_ID_NAME,
    is_directory,
    read_whole,
)
from warrenmq.store.disk.read_only_files import ReadOnlyFiles
from warrenmq.store.disk.snapshot import VhostSnapshot
from warrenmq.store.file_system import FileSystem
from warrenmq.store.model.layout import QUEUES_NAME
from warrenmq.store.model.message import Message, Position
from warrenmq.store.model.queue_index import SEGMENT_ENTRIES
from warrenmq.store.records.checkpoint import CHECKPOINT_NAME, PREVIOUS_NAME
from warrenmq.store.recovery import JournalReplay

# A name may end in a number, if lost+found already had an entry of that name.
_DIRECTORY_NAME: Final = re.compile(r"([1-9][0-9]{0,9})(?:\.[0-9]+)?")
_JOURNAL_NAME: Final = re.compile(r"queue-([1-9][0-9]{0,9})\.wal(?:\.[0-9]+)?")
_SEGMENT_NAME: Final = re.compile(
    r"queues-([1-9][0-9]{0,9})-((?:0|[1-9][0-9]{0,9})\.idx)(?:\.[0-9]+)?"
)


class LostQueue:
    """One queue in lost+found, or the part of it that was put aside at one time."""

    def __init__(
        self, queue_id: int, snapshot: VhostSnapshot | None, journaled: list[Position]
    ) -> None:
        self.queue_id = queue_id
        self._snapshot = snapshot
        self._journaled = journaled

    def positions(self) -> Iterator[tuple[Position, Message | None]]:
        """The readable positions, in order, each once; the message is None without its content."""
        last = -1
        for position in heapq.merge(
            self._indexed(), self._journaled, key=lambda position: position.seq
        ):
            if position.seq > last:
                last = position.seq
                if position.has_content or self._snapshot is None:
                    yield position, position.message
                else:
                    yield position, self._snapshot.message(position)

    def _indexed(self) -> Iterator[Position]:
        queue = self._snapshot.queue(self.queue_id) if self._snapshot is not None else None
        if self._snapshot is not None and queue is not None:
            yield from self._snapshot.logs.filled(self._snapshot.positions(queue))


def find_lost_queues(
    files: FileSystem, store_id: bytes, segment_entries: int = SEGMENT_ENTRIES
) -> list[LostQueue]:
    """The queues in the `lost+found` of the vhost's directory `files`, in order of their ids."""
    if not is_directory(files, LOST_AND_FOUND):
        return []
    # By queue id: for each time that segments were put aside, their paths by name.
    segments: dict[int, list[dict[str, str]]] = {}
    journaled: dict[int, list[list[Position]]] = {}
    for name in sorted(files.list_names(LOST_AND_FOUND)):
        path = f"{LOST_AND_FOUND}/{name}"
        if (match := _JOURNAL_NAME.fullmatch(name)) and files.is_file(path):
            queue_id = int(match.group(1))
            journaled.setdefault(queue_id, []).append(_journaled(files, path, queue_id, store_id))
        elif (match := _SEGMENT_NAME.fullmatch(name)) and files.is_file(path):
            known = segments.setdefault(int(match.group(1)), [])
            free = [paths for paths in known if match.group(2) not in paths]
            if not free:
                free.append({})
                known += free
            free[0][match.group(2)] = path
        elif (match := _DIRECTORY_NAME.fullmatch(name)) and is_directory(files, path):
            found = {segment: f"{path}/{segment}" for segment in files.list_names(path)}
            segments.setdefault(int(match.group(1)), []).append(found)
    queues: list[LostQueue] = []
    counts = [*map(len, segments.values()), *map(len, journaled.values())]
    for time in range(max(counts, default=0)):
        paths = {queue_id: times[time] for queue_id, times in segments.items() if len(times) > time}
        positions = {
            queue_id: times[time] for queue_id, times in journaled.items() if len(times) > time
        }
        snapshot = (
            VhostSnapshot(_SegmentsOnly(files, store_id, paths), segment_entries) if paths else None
        )
        for queue_id in sorted({*paths, *positions}):
            queues.append(LostQueue(queue_id, snapshot, positions.get(queue_id, [])))
    return queues


def _journaled(files: FileSystem, path: str, queue_id: int, store_id: bytes) -> list[Position]:
    replay = JournalReplay(store_id, None, SEGMENT_ENTRIES)
    replay.feed_file(0, read_whole(files, path))
    queue = replay.queues.get(queue_id)
    return queue.in_order() if queue is not None else []


class _SegmentsOnly(ReadOnlyFiles):
    """A vhost's directory without checkpoints and journal, whose queues have the segments `paths`.

    `paths` has the path of each segment, by queue id and segment name.
    """

    def __init__(
        self, files: FileSystem, store_id: bytes, paths: dict[int, dict[str, str]]
    ) -> None:
        super().__init__(files)
        self._store_id = (store_id.hex() + "\n").encode("ascii")
        self._paths = {
            f"{QUEUES_NAME}/{queue_id}/{name}": path
            for queue_id, segments in paths.items()
            for name, path in segments.items()
        }
        self._queue_ids = [str(queue_id) for queue_id in sorted(paths)]
        self._directories = {QUEUES_NAME, *(f"{QUEUES_NAME}/{queue_id}" for queue_id in paths)}

    def read(self, path: str, offset: int, size: int) -> bytes:
        """See FileSystem."""
        if path == STORE_ID_NAME:
            return self._store_id[offset : offset + size]
        return super().read(self._place_of(path), offset, size)

    def size(self, path: str) -> int:
        """See FileSystem."""
        return len(self._store_id) if path == STORE_ID_NAME else super().size(self._place_of(path))

    def exists(self, path: str) -> bool:
        """See FileSystem."""
        return path in self._directories or (
            not self._is_absent(path) and super().exists(self._paths.get(path, path))
        )

    def is_file(self, path: str) -> bool:
        """See FileSystem."""
        return path == STORE_ID_NAME or (
            not self._is_absent(path) and super().is_file(self._paths.get(path, path))
        )

    def list_names(self, path: str) -> list[str]:
        """See FileSystem."""
        if path == QUEUES_NAME:
            return self._queue_ids
        if path.startswith(f"{QUEUES_NAME}/"):
            return [name.rpartition("/")[2] for name in self._paths if name.startswith(f"{path}/")]
        if self._is_absent(path):
            return []
        return super().list_names(path)

    def _place_of(self, path: str) -> str:
        if self._is_absent(path):
            raise FileNotFoundError(errno.ENOENT, "there is none", path)
        return self._paths.get(path, path)

    def _is_absent(self, path: str) -> bool:
        if path.startswith(f"{QUEUES_NAME}/"):
            return path not in self._paths
        return (
            path in (CHECKPOINT_NAME, PREVIOUS_NAME) or path.partition("/")[0] == JOURNAL_DIRECTORY
        )
