"""The last compactions of a vhost's store: when, of which files, why, and what they gave back.

The engine has no clock, so the shell, which also measures how long each job ran, tells the times.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.store.contents.store import Compaction

# Compactions that are remembered; of a busy store those of some hours.
RUNS_MAX: Final = 512


class CompactionRun:
    """A compaction that has ended. Times in ms since 1970, sizes in bytes."""

    def __init__(self, job: Compaction, began_ms: i64, ended_ms: i64) -> None:
        self.is_transient: bool = job.store.is_transient
        # The numbers of the files that were copied, and of the copy.
        self.files: list[int] = [file.number for file in job.sources]
        self.target: i64 = job.target_number
        self.began_ms: i64 = began_ms
        self.ended_ms: i64 = ended_ms
        # Somebody has asked for it, though garbage was below the mark.
        self.is_asked: bool = job.is_asked
        # Nothing has changed then.
        self.is_failed: bool = job.error is not None
        self.size_bytes: i64 = 0
        for file in job.sources:
            self.size_bytes += file.size_bytes
        # What the next checkpoint frees.
        self.freed_bytes: i64 = 0
        if not self.is_failed:
            self.freed_bytes = self.size_bytes
            if job.target.valid_bytes > 0:
                self.freed_bytes -= job.target.size_bytes


class CompactionLog:
    """The last RUNS_MAX compactions of both content stores, in the order of their ends."""

    def __init__(self) -> None:
        self.runs: list[CompactionRun] = []

    def add(self, job: Compaction, ended_ms: i64) -> None:
        """Remember `job`, whose end the store has taken over."""
        if len(self.runs) == RUNS_MAX:
            self.runs.pop(0)
        self.runs.append(CompactionRun(job, ended_ms - job.run_ns // 1_000_000, ended_ms))
