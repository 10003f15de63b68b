"""The jobs that a vhost's store wants to have run: those that wait for no other, and the write lane's."""

from mypy_extensions import i64

from warren.store.jobs import StoreJob
from warren.store.write_lane import WriteLane


class JobQueue:
    """Jobs until the shell takes them. Times in ms."""

    def __init__(self, group_bytes: i64) -> None:
        self.lane: WriteLane = WriteLane(group_bytes)
        # When the shell last asked for jobs, or told the time otherwise.
        self.now_ms: i64 = 0
        self._jobs: list[StoreJob] = []

    def submit(self, job: StoreJob) -> None:
        """Hand out a job that waits for no other."""
        self._jobs.append(job)

    def take(self, now_ms: i64) -> list[StoreJob]:
        """The jobs that are to be run now."""
        self.now_ms = now_ms
        jobs = self._jobs
        self._jobs = []
        jobs.extend(self.lane.start(now_ms))
        return jobs
