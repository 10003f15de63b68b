"""What a backup of a running store consists of, and that all of it stays until it is taken.

A backup begins with a checkpoint of its own. Until `end` no file is deleted, no segment rewritten and no content moved, so
what that checkpoint and the journal behind it need can be linked or copied while everything goes on. `files` is then asked
for once, at a moment when all sealed batches are on their way to the disk: what was appended since the checkpoint counts,
up to that batch.

A file is sealed when nothing is ever appended to it again, nor cut off: not by a start either that has to take the
checkpoint before the backup's. Sealed files may be linked; of others so many bytes must be copied as `files` says.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from warrenmq.store.checkpoint_needs import CheckpointNeeds
from warrenmq.store.content_store import ContentStore
from warrenmq.store.journal import Journal
from warrenmq.store.queue_store import QueueStore

# All bytes of a file.
WHOLE: Final = -1


class BackupFile:
    """One file, relative to the vhost's directory, and how many bytes of it count, or WHOLE."""

    def __init__(self, path: str, size_bytes: i64, is_sealed: bool) -> None:
        self.path: str = path
        self.size_bytes: i64 = size_bytes
        self.is_sealed: bool = is_sealed


@mypyc_attr(allow_interpreted_subclasses=True)
class BackupListener:
    """Who takes the backup."""

    def on_checkpoint(self, ok: bool) -> None:
        """The backup's checkpoint is on disk; or it failed, and the backup has ended."""
        raise RuntimeError("abstract")


class BackupPins:
    """The part of a vhost's store that backups have to do with; one at a time."""

    def __init__(
        self,
        journal: Journal,
        contents: ContentStore,
        queues: dict[int, QueueStore],
        needs: CheckpointNeeds,
    ) -> None:
        self._journal: Journal = journal
        self._contents: ContentStore = contents
        # Those that are durable.
        self._queues: dict[int, QueueStore] = queues
        self._needs: CheckpointNeeds = needs
        self.is_on: bool = False
        # The backup's checkpoint, as it is on disk.
        self.checkpoint: bytes = b""
        self._listener: BackupListener | None = None
        self._is_taken: bool = False
        self._first_journal_file: i64 = 0
        self._segments: list[BackupFile] = []
        # Journal and content files, which grow.
        self._growing: dict[str, BackupFile] = {}
        # What would have been deleted.
        self._pinned_paths: list[str] = []

    def begin(self, listener: BackupListener) -> None:
        """Start a backup; `owner` is told when its checkpoint is on disk."""
        assert not self.is_on
        self.is_on = True
        self._listener = listener
        self._is_taken = False
        self._journal.is_wanted = True
        self._needs.is_wanted = True

    def end(self) -> None:
        """The files are taken, or the backup is given up; what was held goes with the next checkpoint."""
        self.is_on = False
        if len(self._pinned_paths) > 0:
            self._needs.is_wanted = True
        self._listener = None
        self.checkpoint = b""
        self._segments = []
        self._growing = {}

    def delete_paths(self, paths: list[str]) -> list[str]:
        """What of `paths` a checkpoint may delete."""
        if self.is_on:
            self._pinned_paths.extend(paths)
            return []
        held = self._pinned_paths
        self._pinned_paths = []
        return held + paths

    def on_taken(self, first_journal_file: i64) -> None:
        """A checkpoint is about to be written; the first one of a backup is the backup's."""
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
                # A start that falls back to the checkpoint before this one appends from there on.
                end = (segment.number + 1) * index.segment_entries
                is_sealed = end <= index.checkpointed_upto
                self._segments.append(
                    BackupFile(index.path_of(segment), segment.size_bytes, is_sealed)
                )
        self._add_growing()

    def on_checkpoint(self, content: bytes | None) -> None:
        """A checkpoint with this content is on disk; None: it has failed."""
        listener = self._listener
        if listener is None or not self._is_taken:
            return
        self._listener = None
        if content is None:
            self.end()
        else:
            self.checkpoint = content
        listener.on_checkpoint(content is not None)

    def files(self) -> list[BackupFile]:
        """All files of the backup but the checkpoint. Sizes are those of all batches that are sealed."""
        # Those that have left the store's tables meanwhile are closed, and only held.
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
