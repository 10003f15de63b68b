"""The write lane: the order of a vhost's writes other than those of its journal.

Jobs go out in groups: several appends, or one other job. The next group starts when every job of
the last has succeeded. When an append fails, its whole group runs again after a pause: each append
writes at its own offset, and an earlier one cuts off the bytes of a later one. So no write ever
overtakes a failed write.

Each group wakes a thread up, and the loop again at its end. So appends gather up to `hold_bytes`,
or for HOLD_MS, before they go out as a group. They hurry when anything else waits behind them, or
when a load wants what they write. Meanwhile the journal has all that a restart needs.
"""

from typing import Final

from mypy_extensions import i64

from warrenmq.store.jobs.job import AppendFile, StoreJob
from warrenmq.store.model.layout import TRANSIENT_NAME

_GROUP_JOBS: Final = 512
# Longest time for which appends gather.
HOLD_MS: Final = 25
# Pause before a failed group runs again.
RETRY_MS: Final = 250


class WriteLane:
    """The waiting jobs, and the group under way: `group_bytes` of appends or a little more.

    Fewer bytes than `hold_bytes` wait for more. Times in ms.
    """

    def __init__(self, group_bytes: i64, hold_bytes: i64) -> None:
        self._group_bytes: i64 = group_bytes
        self._hold_bytes: i64 = hold_bytes
        # Time at which the waiting appends began to gather; -1: none gather.
        self._held_ms: i64 = -1
        # The next group goes out at once.
        self._is_hurried: bool = False
        # Bytes of appends that are not written yet, waiting or under way.
        self.waiting_bytes: i64 = 0
        # Failed appends since the start.
        self.failed_count: i64 = 0
        # Bytes since the start that appends have carried to the disk, repeated ones each time.
        self.appended_bytes: i64 = 0
        # Bytes since the start that appends have carried to files that no restart reads.
        self.transient_bytes: i64 = 0
        # Bytes since the start of segments that were written again; the jobs' owners count them.
        self.rewritten_bytes: i64 = 0
        # Bytes since the start of checkpoints; their owner counts them.
        self.checkpoint_bytes: i64 = 0
        self._waiting: list[StoreJob] = []
        self._group: list[StoreJob] = []
        # Jobs of the group that are still running.
        self._open: i64 = 0
        # An append of the group has failed: the group runs again.
        self._has_failed: bool = False
        self._retry_at_ms: i64 = 0

    def push(self, job: StoreJob) -> None:
        """Add a job behind all others; an append joins the last one to the same file, if it can."""
        if isinstance(job, AppendFile):
            self.waiting_bytes += job.size_bytes
            last = self._waiting[-1] if len(self._waiting) > 0 else None
            if (
                isinstance(last, AppendFile)
                and last.size_bytes < self._group_bytes
                and last.join(job)
            ):
                return
        else:
            self.hurry()
        self._waiting.append(job)

    def hurry(self) -> None:
        """Let the next group go out without gathering more: somebody waits for its bytes."""
        self._is_hurried = True

    def is_holding(self) -> bool:
        """True while appends gather, which go out HOLD_MS later at a call of `start`."""
        return self._held_ms >= 0

    def appends_of(self, path: str) -> list[AppendFile]:
        """The appends to file `path` that wait or are under way, in order."""
        found: list[AppendFile] = []
        for jobs in (self._group, self._waiting):
            for job in jobs:
                if isinstance(job, AppendFile) and job.path == path:
                    found.append(job)
        return found

    def is_idle(self) -> bool:
        """True while no job waits or is under way."""
        return len(self._waiting) == 0 and len(self._group) == 0

    def is_retrying(self) -> bool:
        """True while a failed group waits for its next run."""
        return self._has_failed

    def is_at_rest(self) -> bool:
        """True while a failed group waits for its next run and none of its jobs is running."""
        return self._has_failed and self._open == 0

    def start(self, now_ms: i64) -> list[StoreJob]:
        """The jobs to run now: the next group, or the failed one again once its pause is over."""
        none: list[StoreJob] = []
        if len(self._group) > 0:
            if not self._has_failed or self._open > 0 or now_ms < self._retry_at_ms:
                return none
            self._has_failed = False
        elif self._may_gather(now_ms):
            return none
        else:
            self._group = self._take_group()
        self._open = len(self._group)
        for job in self._group:
            job.error = None
            if isinstance(job, AppendFile):
                if job.path.startswith(TRANSIENT_NAME):
                    self.transient_bytes += job.size_bytes
                else:
                    self.appended_bytes += job.size_bytes
        return list(self._group)

    def on_append(self, job: AppendFile, now_ms: i64) -> list[StoreJob]:
        """Account for an append; returns its group once all of it has succeeded, else nothing."""
        none: list[StoreJob] = []
        self._open -= 1
        if job.error is not None:
            self._has_failed = True
            self.failed_count += 1
            self._retry_at_ms = now_ms + RETRY_MS
        if self._open > 0 or self._has_failed:
            return none
        group = self._group
        self._group = []
        for done in group:
            if isinstance(done, AppendFile):
                self.waiting_bytes -= done.size_bytes
        return group

    def on_other(self) -> None:
        """End the group of a job that ran alone; it is done, or has failed and is not retried."""
        self._group = []
        self._open = 0

    def _may_gather(self, now_ms: i64) -> bool:
        """Whether the waiting jobs may wait for more of them."""
        if (
            len(self._waiting) > 0
            and not self._is_hurried
            and self.waiting_bytes < self._hold_bytes
        ):
            if self._held_ms < 0:
                self._held_ms = now_ms
            if now_ms - self._held_ms < HOLD_MS:
                return True
        self._held_ms = -1
        return False

    def _take_group(self) -> list[StoreJob]:
        waiting = self._waiting
        size: i64 = 0
        count: i64 = 0
        while count < len(waiting) and count < _GROUP_JOBS and size < self._group_bytes:
            job = waiting[count]
            if not isinstance(job, AppendFile):
                break
            size += job.size_bytes
            count += 1
        if count == 0 and len(waiting) > 0:
            count = 1
        group = waiting[:count]
        del waiting[:count]
        if count > 0 and len(waiting) == 0:
            self._is_hurried = False
        return group
