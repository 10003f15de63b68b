"""A vhost's directory with a job runner, faults on command, and files of each kind."""

from pathlib import Path

from tests.support.stores.failing_files import DONE, IN_PART, NOT_DONE, FailingFiles
from tests.support.stores.journal_driver import STORE_ID
from warren.store.content_records import write_content
from warren.store.disk.files import read_whole
from warren.store.disk.job_runner import JobRunner
from warren.store.disk.local_file_system import LocalFileSystem
from warren.store.file_system import FileSystem
from warren.store.jobs import (
    StoreJob,
    WriteCheckpoint,
)
from warren.store.message import Message, Position, QueueLog
from warren.store.record import CONTENT_MAGIC, INDEX_MAGIC, RecordWriter

SEGMENT = "queues/7/3.idx"
SEGMENT_NUMBER = 7 << 32 | 3
HOWS = (NOT_DONE, IN_PART, DONE)


def message(body: bytes) -> Message:
    return Message(b"\x00\x01q", b"\x00\x00", body, True, 1000)


def segment_records(seqs: range, number: int = SEGMENT_NUMBER, with_header: bool = True) -> list[bytes]:
    """The header of a segment, if wanted, and a record for each seq id."""
    writer = RecordWriter(STORE_ID)
    writer.start_file(INDEX_MAGIC, number)
    parts = [b"".join(writer.take())]
    log = QueueLog(number >> 32)
    for seq in seqs:
        writer.publish(message(b"body %d" % seq * 9), [Position(message(b""), log, seq, 0)], 0, 1)
        parts.append(b"".join(writer.take()))
    return parts if with_header else parts[1:]


def content_file(number: int, ids: range, size: int = 200) -> bytes:
    """A content file with these ids."""
    writer = RecordWriter(STORE_ID)
    writer.start_file(CONTENT_MAGIC, number)
    log = QueueLog(1)
    for content_id in ids:
        content = message(b"%d" % content_id * size)
        write_content(writer, content_id, content, [Position(content, log, content_id, 0)], 0, 1)
    return b"".join(writer.take())


def put(files: FileSystem, path: str, data: bytes) -> None:
    files.make_directories(path.rpartition("/")[0])
    handle = files.create(path)
    handle.write(0, [data])
    handle.sync()
    handle.close()
    files.sync_directory(path.rpartition("/")[0])


class DiskStore:
    """A runner over real files, with faults."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.local = LocalFileSystem(path)
        self.faults = FailingFiles(self.local)
        self.pauses: list[float] = []
        self.runner = JobRunner(self.faults, STORE_ID, self.pauses.append)

    def run(self, job: StoreJob) -> Exception | None:
        self.runner.run(job)
        return job.error

    def must(self, job: StoreJob) -> None:
        assert self.run(job) is None

    def read(self, path: str) -> bytes:
        return read_whole(self.local, path)

    def checkpoint(
        self, content: bytes, *sync_paths: str, delete: list[str] | None = None
    ) -> WriteCheckpoint:
        return WriteCheckpoint(content, list(sync_paths), list(sync_paths), delete or [])

    def close(self) -> None:
        """Nothing is left open."""
        self.faults.heal()
        self.runner.close()
        assert self.faults.open_handles == set()
        self.local.release()
