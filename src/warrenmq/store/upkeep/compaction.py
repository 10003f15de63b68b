"""Decides when the content stores of a vhost are compacted (S34), by themselves or on demand."""

from typing import Final

from mypy_extensions import i64

from warrenmq.store.contents.stored_contents import StoredContents
from warrenmq.store.index.checkpoint_needs import CheckpointNeeds
from warrenmq.store.index.losses import Losses
from warrenmq.store.jobs.job_queue import JobQueue
from warrenmq.store.upkeep.backup_pins import BackupPins
from warrenmq.store.upkeep.debt import Debt

# Pause after a failed compaction.
_RETRY_MS: Final = 5000


class Compaction:
    """Compacts both content stores, one job at a time each; faster while the store is in debt."""

    def __init__(
        self,
        contents: StoredContents,
        jobs: JobQueue,
        losses: Losses,
        backup: BackupPins,
        debt: Debt,
        needs: CheckpointNeeds,
    ) -> None:
        self._contents: StoredContents = contents
        self._jobs: JobQueue = jobs
        self._losses: Losses = losses
        self._backup: BackupPins = backup
        self._debt: Debt = debt
        self._needs: CheckpointNeeds = needs
        self._failed: i64 = 0
        self._retry_at_ms: i64 = 0

    def submit_jobs(self, now_ms: i64) -> None:
        """Start the due compactions, and report the contents that earlier ones found damaged."""
        stores = (self._contents.persistent, self._contents.transient)
        failed: i64 = 0
        for contents in stores:
            for content_id in contents.take_damaged():
                self._losses.add_content(contents.directory_name, content_id)
            if contents.failed_compactions > self._failed:
                self._retry_at_ms = now_ms + _RETRY_MS
            failed = max(failed, contents.failed_compactions)
        self._failed = failed
        # A start on the backup finds a content where the checkpoint or the journal after it says:
        # while a backup is taken, no content may move.
        if now_ms < self._retry_at_ms or self._backup.is_on:
            return
        for contents in stores:
            was_wanted = contents.is_wanted
            job = contents.pick_compaction()
            if job is not None:
                job.is_urgent = self._debt.payable_bytes > 0
                self._jobs.submit(job)
            elif was_wanted and not contents.is_wanted:
                # Only a checkpoint deletes the files that were copied.
                self._needs.is_wanted = True
