"""Reads that need no disk run on the loop, as a thread would cost more than they do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.node_thread import NodeThread
from tests.support.cached_reads import need_cached_reads
from warrenmq.server import node_vhosts
from warrenmq.store.disk import local_file_system
from warrenmq.store.jobs.job import ReadRanges, StoreJob


class Read(ReadRanges):
    """A read of the first bytes of a checkpoint."""

    def __init__(self, path: str, size: int) -> None:
        super().__init__([(path, 0, size)], 0)
        self.is_finished = False

    def finished(self) -> None:
        self.is_finished = True


class Reads:
    """Submits reads to a node, and notes which of them the workers got."""

    def __init__(self, thread: NodeThread, patched: pytest.MonkeyPatch) -> None:
        self.thread = thread
        node: Any = thread.node
        (self.driver,) = node._drivers()
        self.vhosts = node._vhosts
        self.threaded: list[StoreJob] = []
        submit = self.vhosts._workers.submit

        def watched(run: Any, job: StoreJob) -> None:
            self.threaded.append(job)
            submit(run, job)

        patched.setattr(self.vhosts._workers, "submit", watched)

    def submit(self, *jobs: Read) -> list[bool]:
        """Submit the jobs in one turn and await them; for each whether a thread has run it."""

        def submit_all() -> None:
            for job in jobs:
                self.vhosts.submit_job(self.driver, job)
                assert not job.is_finished

        self.thread.call(submit_all)
        eventually(lambda: all(job.is_finished for job in jobs), "the reads are done")
        return [job in self.threaded for job in jobs]


@pytest.fixture
def thread(tmp_path: Path) -> Iterator[NodeThread]:
    thread = NodeThread(tmp_path)
    yield thread
    thread.stop()


@pytest.fixture
def reads(thread: NodeThread, monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(thread, monkeypatch)


def test_a_read_from_the_page_cache_needs_no_thread(reads: Reads, tmp_path: Path) -> None:
    need_cached_reads(tmp_path)
    job = Read("checkpoint", 20)
    assert reads.submit(job) == [False]
    (checkpoint,) = (tmp_path / "data").rglob("checkpoint")
    assert job.results == [checkpoint.read_bytes()[:20]]
    assert job.error is None and not job.is_missing


def test_a_thread_reads_what_cannot_be_read_at_once(
    reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing, short = Read("no-such-file", 20), Read("checkpoint", 1 << 20)
    assert reads.submit(missing, short) == [True, True]
    assert missing.results == [None] and missing.is_missing
    assert short.results[0] is not None and 0 < len(short.results[0]) < 1 << 20
    monkeypatch.setattr(local_file_system, "_READ_CACHED", 0)
    assert reads.submit(Read("checkpoint", 20)) == [True]


def test_a_turn_reads_a_bounded_number_of_bytes(
    reads: Reads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the loop would copy as long as there are queues with consumers."""
    need_cached_reads(tmp_path)
    monkeypatch.setattr(node_vhosts, "_CACHED_BYTES", 50)
    jobs = [Read("checkpoint", 20) for _ in range(4)]
    assert reads.submit(*jobs) == [False, False, True, True]
    assert reads.submit(Read("checkpoint", 20)) == [False]
    assert all(job.results == jobs[0].results for job in jobs)
