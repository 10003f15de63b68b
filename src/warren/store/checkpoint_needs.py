"""Why the next checkpoint is taken, and which files it deletes.

A file that nothing needs any more goes one checkpoint later than it could: the checkpoint before the last one must be
good as well, since a start falls back to it.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warren.store.queue_index import QueueIndex

# A checkpoint is taken after this time for the sake of less space than `StoreSettings.dead_bytes`.
_PATIENCE_MS: Final = 2000


class CheckpointNeeds:
    """The wishes of one vhost. Sizes in bytes; the content stores keep account of their own dead files."""

    def __init__(self, dead_bytes: i64) -> None:
        # Somebody wants one, whether it is due or not.
        self.is_wanted: bool = False
        # Is there a segment that should be rewritten?
        self.has_stragglers: bool = False
        # Dead since the last checkpoint.
        self.dead_bytes: i64 = 0
        self._dead_paths: list[str] = []
        # To be deleted with the next checkpoint.
        self._deletable_paths: list[str] = []
        self._deletable_bytes: i64 = 0
        # For the sake of so much space one is taken at once.
        self._worth_bytes: i64 = dead_bytes
        self._since_ms: i64 = 0

    @property
    def waiting_bytes(self) -> i64:
        """Bytes of all files that are to be deleted."""
        return self.dead_bytes + self._deletable_bytes

    def take_dead_segments(self, index: QueueIndex) -> None:
        """Segments without a live entry are deleted with the next checkpoints, those with few are rewritten then."""
        self.has_stragglers = self.has_stragglers or index.has_stragglers
        if len(index.dead_paths) > 0:
            self._dead_paths.extend(index.dead_paths)
            self.dead_bytes += index.dead_bytes
            index.dead_paths = []
            index.dead_bytes = 0

    def delete_later(self, path: str) -> None:
        """A file that nothing needs; it goes with the next checkpoint."""
        self._deletable_paths.append(path)

    def has_dead_files(self, dead_contents_bytes: i64) -> bool:
        """Are there files for checkpoints to delete, with so many bytes of the content store's among them?"""
        return len(self._dead_paths) + len(self._deletable_paths) > 0 or dead_contents_bytes > 0

    def is_space_due(self, dead_contents_bytes: i64, now_ms: i64) -> bool:
        """Is a checkpoint due for the sake of space?"""
        if not self.has_dead_files(dead_contents_bytes) and not self.has_stragglers:
            self._since_ms = 0
            return False
        if self._since_ms == 0:
            self._since_ms = now_ms
        dead_bytes = self.dead_bytes + dead_contents_bytes
        return dead_bytes >= self._worth_bytes or now_ms - self._since_ms >= _PATIENCE_MS

    def take_deletable(
        self, dead_contents_paths: list[str], dead_contents_bytes: i64
    ) -> tuple[list[str], i64]:
        """A checkpoint is taken: what it deletes, paths and bytes. What is dead by now, in the content store as well, goes
        with the next one."""
        paths = self._deletable_paths
        size = self._deletable_bytes
        self._deletable_paths = self._dead_paths + dead_contents_paths
        self._deletable_bytes = self.dead_bytes + dead_contents_bytes
        self._dead_paths = []
        self.dead_bytes = 0
        self._since_ms = 0
        return paths, size

    def give_back(self, paths: list[str], size: i64) -> None:
        """A checkpoint did not delete these; the next one does."""
        self._deletable_paths.extend(paths)
        self._deletable_bytes += size
