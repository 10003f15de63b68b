"""The files of a backup of a running store, pinned until the backup has taken them.

A backup begins with a checkpoint of its own. Until `end` no file is deleted, no segment is
rewritten and no content is moved, so the files that this checkpoint and the journal after it need
can be linked or copied while the store works on. The backup then calls `files` once, at a moment
when all sealed batches are on their way to the disk: bytes appended since the checkpoint belong to
the backup, up to the last of these batches.

A file is sealed when nothing is ever appended to it or cut off again, not even by a start that
falls back to the checkpoint before the backup's. Sealed files may be linked; other files must be
copied, as many bytes as `files` says.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from warrenmq.store.contents.store import ContentStore
from warrenmq.store.index.checkpoint_needs import CheckpointNeeds
from warrenmq.store.index.queue_store import QueueStore
from warrenmq.store.journal.journal import Journal
from warrenmq.store.model.content_log import ContentLogs

# Instead of a size in bytes: the whole file.
WHOLE: Final = -1


class BackupFile:
    """One file of a backup; `path` is relative to the vhost, `size_bytes` may be WHOLE."""

    def __init__(self, path: str, size_bytes: i64, is_sealed: bool) -> None:
        self.path: str = path
        self.size_bytes: i64 = size_bytes
        self.is_sealed: bool = is_sealed


@mypyc_attr(allow_interpreted_subclasses=True)
class BackupListener:
    """Takes the backup; learns when its checkpoint is on disk."""

    def on_checkpoint(self, ok: bool) -> None:
        """Called when the backup's checkpoint is on disk; not `ok`: it failed, the backup ended."""
        raise RuntimeError("abstract")


class BackupPins:
    """Pins the files of a vhost's store for a backup, one backup at a time."""

    def __init__(
        self,
        journal: Journal,
        contents: ContentStore,
        queues: dict[int, QueueStore],
        needs: CheckpointNeeds,
        logs: ContentLogs,
    ) -> None:
        self._journal: Journal = journal
        self._contents: ContentStore = contents
        # The durable queues.
        self._queues: dict[int, QueueStore] = queues
        self._needs: CheckpointNeeds = needs
        self._logs: ContentLogs = logs
        # A backup is under way.
        self.is_on: bool = False
        # The content of the backup's checkpoint file; empty until it is on disk.
        self.checkpoint: bytes = b""
        self._listener: BackupListener | None = None
        # The backup's checkpoint was taken; it may not be on disk yet.
        self._is_taken: bool = False
        self._first_journal_file: i64 = 0
        self._segments: list[BackupFile] = []
        # Journal and content files, by path; they grow during the backup.
        self._growing: dict[str, BackupFile] = {}
        # Files that wait for the end of the backup to be deleted.
        self._pinned_paths: list[str] = []

    def begin(self, listener: BackupListener) -> None:
        """Start a backup; `listener` is called when its checkpoint is on disk or has failed."""
        assert not self.is_on
        self.is_on = True
        self._listener = listener
        self._is_taken = False
        self._journal.is_wanted = True
        self._needs.is_wanted = True

    def end(self) -> None:
        """End the backup, complete or not; the next checkpoint deletes the pinned files."""
        self.is_on = False
        if len(self._pinned_paths) > 0:
            self._needs.is_wanted = True
        self._listener = None
        self.checkpoint = b""
        self._segments = []
        self._growing = {}

    def delete_paths(self, paths: list[str]) -> list[str]:
        """The files that a checkpoint may delete; during a backup none: `paths` are pinned."""
        if self.is_on:
            self._pinned_paths.extend(paths)
            return []
        pinned = self._pinned_paths
        self._pinned_paths = []
        return pinned + paths

    def needed_paths(self) -> set[str]:
        """The files that the backup takes, as far as it is known; none while there is no backup."""
        paths = {file.path for file in self._segments}
        paths.update(self._growing)
        return paths

    @property
    def pinned_files(self) -> i64:
        """Files behind the journal that only wait for the end of the backup to be deleted."""
        return len(self._pinned_paths)

    def on_taken(self, first_journal_file: i64) -> None:
        """Note the files of a checkpoint about to be written, if it is the first of this backup."""
        if not self.is_on or self._is_taken:
            return
        self._is_taken = True
        self._first_journal_file = first_journal_file
        self._segments = []
        self._growing = {}
        for queue in self._queues.values():
            index = queue.ledger.index
            if index is None:
                continue
            for segment in index.segments:
                # A start that falls back to the checkpoint before this one appends from its end on.
                end = (segment.number + 1) * index.segment_entries
                is_sealed = end <= index.checkpointed_upto
                self._segments.append(
                    BackupFile(index.path_of(segment), segment.size_bytes, is_sealed)
                )
        for file in self._journal.files:
            # The checkpoint names contents in files that a start would not replay any more.
            if file.number < first_journal_file and file.log.stretches > 0:
                self._segments.append(BackupFile(file.log.path, file.size_bytes, True))
        for log in self._logs.retained.values():
            if log.stretches > 0:
                self._segments.append(BackupFile(log.path, WHOLE, True))
        self._add_growing()

    def on_checkpoint(self, parts: list[bytes] | None) -> None:
        """Notify the listener: a checkpoint of these parts is on disk; None: it failed."""
        listener = self._listener
        if listener is None or not self._is_taken:
            return
        self._listener = None
        if parts is None:
            self.end()
        else:
            self.checkpoint = b"".join(parts)
        listener.on_checkpoint(parts is not None)

    def files(self) -> list[BackupFile]:
        """All files of the backup but the checkpoint. Their sizes include all sealed batches."""
        # A file that has left the store's tables during the backup is closed; only the pin keeps
        # it.
        for file in self._growing.values():
            file.size_bytes = WHOLE
            file.is_sealed = True
        self._add_growing()
        return self._segments + list(self._growing.values())

    def _add_growing(self) -> None:
        journal = self._journal
        for file in journal.files:
            if file.number >= self._first_journal_file:
                path = f"journal/{file.number}.wal"
                is_closed = file is not journal.files[-1]
                self._growing[path] = BackupFile(path, file.size_bytes, is_closed)
        for content_file in self._contents.files:
            path = content_file.path
            is_closed = self._contents.is_closed(content_file)
            self._growing[path] = BackupFile(path, content_file.size_bytes, is_closed)
