"""The disk jobs of a vhost, until the shell's threads take them: independent ones and a lane."""

from mypy_extensions import i64

from warrenmq.store.jobs.job import StoreJob
from warrenmq.store.jobs.write_lane import WriteLane


class JobQueue:
    """Collects jobs until the shell takes them. Times in ms."""

    def __init__(self, group_bytes: i64, hold_bytes: i64) -> None:
        self.lane: WriteLane = WriteLane(group_bytes, hold_bytes)
        # Time of this turn; each call of the shell sets it.
        self.now_ms: i64 = 0
        self._jobs: list[StoreJob] = []

    def submit(self, job: StoreJob) -> None:
        """Queue an independent job: it waits for no other job."""
        self._jobs.append(job)

    def take(self, now_ms: i64) -> list[StoreJob]:
        """Hand over all queued jobs and those that the write lane may start now."""
        self.now_ms = now_ms
        jobs = self._jobs
        self._jobs = []
        jobs.extend(self.lane.start(now_ms))
        return jobs
