"""An archive, batch by batch, has each message once: after crashes, and while merges run.

The node is in memory, and no JVM runs.
"""

import errno
import os
import subprocess
import sys
import threading
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")


from tests.pipeline.archives.inline_archive import Archive
from tests.spark.driving import fill
from tests.spark.links import MemoryLink, install
from tests.support.brokers.memory_node import MemoryDisk, MemoryNode
from warrenmq.pipeline import places
from warrenmq.pipeline.archives import batch as archive_batch
from warrenmq.pipeline.archives import merge as archive_merge
from warrenmq.pipeline.archives import source as archive_source
from warrenmq.pipeline.archives.batch import BatchWriter
from warrenmq.pipeline.archives.directory import ArchiveDirectory, StagedFile, partition_of
from warrenmq.pipeline.archives.merge import ParquetFiles, SmallFile
from warrenmq.pipeline.result import JobError


def numbered(first: int, last: int) -> list[bytes]:
    return [b"m%d" % number for number in range(first, last)]


@pytest.fixture
def node() -> MemoryNode:
    node = MemoryNode(MemoryDisk())
    node.declare(b"q")
    return node


@pytest.fixture
def link(node: MemoryNode, monkeypatch: pytest.MonkeyPatch) -> MemoryLink:
    return install(monkeypatch, node)


def test_run_after_run_archives_what_came(
    node: MemoryNode, link: MemoryLink, tmp_path: Path
) -> None:
    """Each run archives the new messages in order, and acks them, also after the last batch."""
    archive = Archive(tmp_path)
    fill(node, 25)
    assert archive.run().batches == 3
    assert archive.bodies() == numbered(0, 25)
    queue = node.vhost.queues[b"q"]
    assert (queue.unacked_count, queue.backing.ready.count) == (0, 0)
    fill(node, 5, 25)
    assert archive.run().batches == 1
    assert archive.bodies() == numbered(0, 30)
    assert archive.run().batches == 0
    # Each batch is small, so it is one task.
    assert archive.sharing.tasks == [1, 1, 1, 1]


def test_an_archive_of_nothing_starts_no_spark(
    node: MemoryNode, link: MemoryLink, tmp_path: Path
) -> None:
    """The archive job starts Spark with the first new message, and without one not at all."""
    empty = Archive(tmp_path)
    assert (empty.run().batches, empty.starts) == (0, 0)
    fill(node, 25)
    first = Archive(tmp_path)
    assert (first.run().batches, first.starts) == (3, 1)
    second = Archive(tmp_path)
    assert (second.run().batches, second.starts) == (0, 0)


def test_a_large_batch_is_shared_out(
    node: MemoryNode, link: MemoryLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large batch is shared evenly by the tasks that run at once; files keep message order."""
    monkeypatch.setattr(archive_source, "TASK_MESSAGES_MIN", 10)
    monkeypatch.setattr(archive_source, "ARCHIVE_SLICE_MESSAGES", 8)
    archive = Archive(tmp_path)
    fill(node, 100)
    archive.run(1000)
    assert archive.sharing.tasks == [2]
    assert archive.bodies() == numbered(0, 100)
    committed = archive.books.committed()
    assert committed is not None
    assert all(40 <= file.rows <= 60 for file in committed.files)


class _CrashError(Exception):
    """Stands for a kill of the program at this step."""


_STEPS: dict[str, tuple[Any, str]] = {
    "read": (archive_source.ArchiveReader, "latestOffset"),
    "commit": (ArchiveDirectory, "commit"),
    "move": (ArchiveDirectory, "move"),
    "ack": (archive_batch, "put_in_place"),
}


@pytest.mark.parametrize("step", list(_STEPS))
@pytest.mark.parametrize("batch", [0, 1])
def test_a_crash_between_any_two_steps(
    step: str,
    batch: int,
    node: MemoryNode,
    link: MemoryLink,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a crash at any step the next run has each message once, with other batch sizes too."""
    archive = Archive(tmp_path)
    fill(node, 25)
    owner, name = _STEPS[step]
    done = getattr(owner, name)
    left = batch
    with monkeypatch.context() as patch:

        def crash(*arguments: Any) -> Any:
            nonlocal left
            left -= 1
            # The crash at `ack` comes after the step, which only misses the ack to the broker; the
            # other crashes come before their step.
            if left < 0 and step != "ack":
                raise _CrashError
            found = done(*arguments)
            if left < 0:
                raise _CrashError
            return found

        patch.setattr(owner, name, crash)
        with pytest.raises(_CrashError):
            archive.run()
    archive.run(7)
    assert archive.bodies() == numbered(0, 25)
    assert node.vhost.queues[b"q"].unacked_count == 0


def test_an_error_of_the_source_is_a_line(
    node: MemoryNode, link: MemoryLink, tmp_path: Path
) -> None:
    """An error of the source, here a queue deleted with its messages, is one line."""
    archive = Archive(tmp_path)
    fill(node, 5)
    archive.run()
    fill(node, 5)
    node.delete(b"q")
    node.declare(b"q")
    with pytest.raises(JobError, match=r"^data loss: "):
        archive.run()


def test_lost_data_may_be_accepted(node: MemoryNode, link: MemoryLink, tmp_path: Path) -> None:
    """Data loss is refused unless accepted; the error names the option.

    A queue that was deleted and declared again continues as a new one.
    """
    archive = Archive(tmp_path)
    fill(node, 5)
    archive.run()
    fill(node, 5, 5)
    node.delete(b"q")
    node.declare(b"q")
    fill(node, 5, 10)
    with pytest.raises(JobError, match=r"set fail_on_data_loss=False \(--ignore-data-loss\)$"):
        archive.run()
    archive.run(fails_on_data_loss=False)
    assert archive.bodies() == numbered(0, 5) + numbered(10, 15)
    assert archive.run().batches == 0


def test_names_of_all_kinds_are_names_of_directories(
    node: MemoryNode, link: MemoryLink, tmp_path: Path
) -> None:
    """Queue names of all kinds survive as directory names; one that is too long gives an error."""
    names = [
        b".",
        b"..",
        b"/",
        b"a=b",
        b"%2F",
        b" x ",
        b"*?[]{}:\\\"'^#",
        "ü☃".encode(),
        b"\x01",
        b"x" * 249,
    ]
    names.append(b"__HIVE_DEFAULT_PARTITION__")
    for name in names:
        node.declare(name)
        fill(node, 1, queue=name)
    archive = Archive(tmp_path)
    archive.run(pattern=".*")
    paths = [
        path.relative_to(archive.books.target) for path in archive.books.target.rglob("*.parquet")
    ]
    found = {partition_of(path.as_posix())["queue"] for path in paths}
    assert found == {name.decode() for name in names}
    assert all(len(path.parts) == 3 and "__HIVE" not in str(path) for path in paths)
    node.declare(b"/" * 84)
    fill(node, 1, queue=b"/" * 84)
    with pytest.raises(
        JobError, match=r"^the name of queue '/{84}' is too long for a directory name"
    ):
        archive.run(pattern=".*")


def test_what_fails_in_a_task_is_a_line(
    node: MemoryNode, link: MemoryLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in a task is one line, without the worker's traceback; the next run succeeds."""
    fill(node, 5)
    archive = Archive(tmp_path)
    with monkeypatch.context() as patch:

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(places, "sync_file", full)
        with pytest.raises(JobError, match="No space left on device"):
            archive.run()
    assert archive.run().batches == 1
    assert archive.bodies() == numbered(0, 5)


# Runs twenty batches, each with many syncs.
@pytest.mark.timeout(300)
def test_a_merge_is_done_beside_the_stream(
    node: MemoryNode, link: MemoryLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches continue while a merge writes; no file is lost; later merges take the new files."""
    archive = Archive(tmp_path)
    fill(node, 200)
    is_merging, goes_on = threading.Event(), threading.Event()
    write_merged = archive_merge.write_merged
    added = 0
    add = BatchWriter.add

    def slow(sources: list[Path], goal: Path) -> None:
        is_merging.set()
        assert goes_on.wait(30)
        write_merged(sources, goal)

    def counted(writer: BatchWriter, staged: list[StagedFile], offset: Any) -> None:
        nonlocal added
        if writer._merge is not None and not is_merging.is_set():
            # A batch begins a merge only when the thread has finished with the batch before.
            wait([writer._merge], 30)
        add(writer, staged, offset)
        added += 1
        if added == 8:
            assert is_merging.wait(30)
        if added == 12:
            goes_on.set()

    monkeypatch.setattr(archive_merge, "write_merged", slow)
    monkeypatch.setattr(BatchWriter, "add", counted)
    writer = archive.run(merge_bytes=1 << 20)
    assert (writer.batches, added) == (20, 20)
    assert writer.merged_files >= 14
    assert sorted(archive.bodies()) == sorted(numbered(0, 200))


def test_what_fails_in_a_merge_is_raised(tmp_path: Path) -> None:
    """An error in a merge is raised at the end of the run at the latest."""

    class Files(ParquetFiles):
        def replace(self, partition: str, chosen: list[SmallFile], name: str) -> int:
            raise JobError("no")

        def files(self) -> list[SmallFile]:
            return [
                SmallFile(f"q/d/part-0badc0de-{number:08d}-0000.parquet", 10) for number in range(9)
            ]

    books = ArchiveDirectory(tmp_path / "target", tmp_path / "target.checkpoint")
    with books.locked(), pytest.raises(JobError, match="no"):
        BatchWriter(books, Files(books), 1 << 20).close()


def test_workers_are_forked_with_everything_loaded() -> None:
    """Workers are forked with all modules loaded, from a process with one thread and no pandas."""
    program = (
        "import os, sys; from warrenmq.pipeline import task_daemon; task_daemon.load(); import pyarrow, numpy;"
        "pyarrow.array(numpy.array([1])); "
        "assert 'pandas' not in sys.modules and 'warrenmq.pipeline.archives.files' in sys.modules;"
        "assert len(os.listdir('/proc/self/task')) == 1"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_body_that_is_too_large_for_spark_is_archived(
    node: MemoryNode, link: MemoryLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bodies go from a worker into a file; no JVM sees them."""
    monkeypatch.setattr("warrenmq.spark.large_bodies.BODY_BYTES_MAX", 1000)
    bodies = [b"first", bytes(2000), b"last"]
    for body in bodies:
        node.publish(b"q", body)
    archive = Archive(tmp_path)
    archive.run()
    assert archive.bodies() == bodies
