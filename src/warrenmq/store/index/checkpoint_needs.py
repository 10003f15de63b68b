"""Reasons to take the next checkpoint, and the files that it deletes.

A dead file is deleted one checkpoint later than it could be: a start may fall back to the
checkpoint before the last one, which still needs it.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.store.model.content_log import ContentLog, ContentLogs
from warrenmq.store.model.queue_index import QueueIndex

# Dead space below `StoreSettings.dead_bytes` waits this long before a checkpoint is taken for it.
_PATIENCE_MS: Final = 2000


class CheckpointNeeds:
    """The reasons of one vhost. Sizes in bytes; content stores count their own dead files."""

    def __init__(self, dead_bytes: i64, logs: ContentLogs) -> None:
        # A checkpoint was asked for, whether it is due or not.
        self.is_wanted: bool = False
        # A segment with few live entries waits to be rewritten.
        self.has_stragglers: bool = False
        # Bytes of the segments that died since the last checkpoint.
        self.dead_bytes: i64 = 0
        # Paths of the segments that died since the last checkpoint.
        self._dead_paths: list[str] = []
        self._logs: ContentLogs = logs
        # Files that the next checkpoint deletes, and their bytes.
        self._deletable_paths: list[str] = []
        self._deletable_bytes: i64 = 0
        # Bytes of dead space that are worth a checkpoint at once.
        self._worth_bytes: i64 = dead_bytes
        # Since when dead space or a straggler waits; 0: nothing does.
        self._since_ms: i64 = 0

    @property
    def waiting_bytes(self) -> i64:
        """Bytes of all files that wait for a checkpoint to delete them."""
        return self.dead_bytes + self._deletable_bytes

    def take_dead_segments(self, index: QueueIndex) -> None:
        """Take over the dead segments of `index`, and note whether it has stragglers."""
        self.has_stragglers = self.has_stragglers or index.has_stragglers
        if len(index.dead_paths) > 0:
            self._dead_paths.extend(index.dead_paths)
            self.dead_bytes += index.dead_bytes
            index.dead_paths = []
            index.dead_bytes = 0
        stretches = index.stretches
        if len(stretches.dead_logs) > 0:
            for log in stretches.dead_logs:
                if log.is_retained:
                    self.take_dead_log(log)
            stretches.dead_logs = []

    def take_dead_log(self, log: ContentLog) -> None:
        """Take over a log that has left the journal, if no index needs it."""
        if log.stretches > 0 or log.number not in self._logs.retained:
            return
        self._logs.forget(log)
        # A checkpoint may be about to move the file.
        self._dead_paths.append(log.journal_path)
        self._dead_paths.append(log.moved_path)
        self.dead_bytes += log.size_bytes

    def delete_later(self, path: str) -> None:
        """Have the next checkpoint delete a file that nothing needs."""
        self._deletable_paths.append(path)

    def has_dead_files(self, dead_contents_bytes: i64) -> bool:
        """Whether this checkpoint or the next one would delete a file.

        `dead_contents_bytes` is the size of the content store's dead files.
        """
        return len(self._dead_paths) + len(self._deletable_paths) > 0 or dead_contents_bytes > 0

    def is_space_due(self, dead_contents_bytes: i64, now_ms: i64) -> bool:
        """Whether there is enough dead space for a checkpoint, or some has waited long enough.

        The first call that finds dead space starts the wait.
        """
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
        """Paths and bytes of the files that the checkpoint taken now deletes.

        Files that died since the last checkpoint, the content store's among them, follow with the
        next.
        """
        paths = self._deletable_paths
        size = self._deletable_bytes
        self._deletable_paths = self._dead_paths + dead_contents_paths
        self._deletable_bytes = self.dead_bytes + dead_contents_bytes
        self._dead_paths = []
        self.dead_bytes = 0
        self._since_ms = 0
        return paths, size

    def give_back(self, paths: list[str], size: i64) -> None:
        """Hand files that a failed checkpoint could not delete to the next checkpoint."""
        self._deletable_paths.extend(paths)
        self._deletable_bytes += size
