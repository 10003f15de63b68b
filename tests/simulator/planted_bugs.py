"""Bugs planted where the simulated node allows it (`simulator/simulated/node_parts.py`)."""

from collections.abc import Callable
from typing import Any

from crc32c import crc32c

from simulator.models.damage import STORE_ID
from simulator.simulated.file_system import SimulatedFileHandle, SimulatedFileSystem
from simulator.simulated.node_parts import NodeParts
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import PutBinding, PutGroupMember, PutReaderGroup, PutSink
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.routing.exchange import Binding
from warrenmq.store.disk.flusher import BatchFlusher, FlushJob
from warrenmq.store.disk.job_runner import JobRunner
from warrenmq.store.disk.space_reserve import SpaceReserve
from warrenmq.store.file_system import FileSystem
from warrenmq.store.jobs.job import (
    AppendFile,
    ReadRanges,
    RewriteSegment,
    StoreJob,
    WriteCheckpoint,
)
from warrenmq.store.records.checkpoint import CHECKPOINT_QUEUE
from warrenmq.store.records.log_places import ENTRY_BYTES, PLACES, PLACES_HEAD_BYTES
from warrenmq.store.records.record import (
    FILE_HEADER_BYTES,
    MOVE,
    MOVE_REF,
    RECORD_HEADER_BYTES,
    RELEASE,
)

# Sizes of parts of a queue's record in a checkpoint.
SEGMENT_BYTES = 29
RUN_BYTES = 16
STRETCH_BYTES = 20


def rewritten(data: bytes, start: int, seed: int, change: Callable[[int, bytes], bytes]) -> bytes:
    """`data` with record bodies from `start` on replaced by `change(type, body)`, with new CRCs."""
    changed = data[:start]
    at = start
    while at < len(data):
        end = at + RECORD_HEADER_BYTES + int.from_bytes(data[at + 4 : at + 8], "big")
        body = change(data[at + 2], data[at + RECORD_HEADER_BYTES : end])
        head = data[at : at + 4] + len(body).to_bytes(4, "big")
        head_crc = crc32c(head, seed)
        changed += (
            head + head_crc.to_bytes(4, "big") + crc32c(body, head_crc).to_bytes(4, "big") + body
        )
        at = end
    return changed


def seed_of(file_number: int) -> int:
    """The CRC seed of a file."""
    return crc32c(file_number.to_bytes(8, "big"), crc32c(STORE_ID))


# -- a skipped sync --------------------------------------------------------------------------------


class _LazyHandle(SimulatedFileHandle):
    """A file whose sync does nothing."""

    def sync(self) -> None:
        self._system.step("sync", self._path)


class _LazyFileSystem(SimulatedFileSystem):
    """A view of the disk on which journal files are never synced."""

    def __init__(self, files: SimulatedFileSystem) -> None:
        self.__dict__ = files.__dict__

    def create(self, path: str) -> SimulatedFileHandle:
        handle = super().create(path)
        if not path.endswith(".wal"):
            return handle
        handle.close()
        return _LazyHandle(self, path, handle.file)


class SkippedSync(NodeParts):
    """A batch is written and not synced."""

    def files(self, files: FileSystem) -> FileSystem:
        assert isinstance(files, SimulatedFileSystem)
        return _LazyFileSystem(files)


# -- an early confirm ------------------------------------------------------------------------------


class EarlyConfirm(NodeParts):
    """Publishers get confirms before the batch is on disk."""

    confirms_early = True


# -- a forgotten checkpoint entry ------------------------------------------------------------------


class ForgottenEntry(NodeParts):
    """A checkpoint leaves out the last segment of a queue."""

    def runner(self, files: FileSystem, store_id: bytes, reserve: SpaceReserve) -> JobRunner:
        return _ForgetfulRunner(files, store_id, reserve=reserve)


class _ForgetfulRunner(JobRunner):
    def _put_checkpoint(self, parts: list[bytes]) -> None:
        content = b"".join(parts)
        number = int.from_bytes(content[28:36], "big")
        super()._put_checkpoint(
            [rewritten(content, FILE_HEADER_BYTES, seed_of(number), _without_a_segment)]
        )


def _without_a_segment(kind: int, body: bytes) -> bytes:
    if kind != CHECKPOINT_QUEUE:
        return body
    at = _behind(body, 29, RUN_BYTES)
    count = int.from_bytes(body[at : at + 4], "big")
    if count == 0:
        return body
    end = _behind(body, at, SEGMENT_BYTES)
    left = body[at + 4 : end - SEGMENT_BYTES]
    return body[:at] + (count - 1).to_bytes(4, "big") + left + body[end:]


def _behind(body: bytes, at: int, size: int) -> int:
    """The offset behind the list of parts of `size` bytes whose count is at `at`."""
    return at + 4 + size * int.from_bytes(body[at : at + 4], "big")


# -- files of contents -----------------------------------------------------------------------------


class ForgottenStretch(NodeParts):
    """A checkpoint does not say which journal files a queue's index needs."""

    def runner(self, files: FileSystem, store_id: bytes, reserve: SpaceReserve) -> JobRunner:
        return _UnneedingRunner(files, store_id, reserve=reserve)


class _UnneedingRunner(JobRunner):
    def _put_checkpoint(self, parts: list[bytes]) -> None:
        content = b"".join(parts)
        number = int.from_bytes(content[28:36], "big")
        super()._put_checkpoint(
            [rewritten(content, FILE_HEADER_BYTES, seed_of(number), _without_stretches)]
        )


def _without_stretches(kind: int, body: bytes) -> bytes:
    if kind != CHECKPOINT_QUEUE:
        return body
    # Runs of settled seq ids, segments, runs of delivered seq ids, epochs; then the stretches.
    at = _behind(body, _behind(body, 29, RUN_BYTES), SEGMENT_BYTES)
    at = _behind(body, _behind(body, at, RUN_BYTES), RUN_BYTES)
    return body[:at] + bytes(4)


class EarlyDeletion(NodeParts):
    """A journal file whose contents are needed is deleted when it leaves the journal."""

    def runner(self, files: FileSystem, store_id: bytes, reserve: SpaceReserve) -> JobRunner:
        return _DeletingRunner(files, store_id, reserve=reserve)


class _DeletingRunner(JobRunner):
    def _move_logs(self, job: WriteCheckpoint) -> None:
        for log in job.leaving:
            log.is_needed = False
        super()._move_logs(job)


class MisplacedEntry(NodeParts):
    """Entries of a segment name the byte behind the place of their content."""

    def runner(self, files: FileSystem, store_id: bytes, reserve: SpaceReserve) -> JobRunner:
        return _MisplacingRunner(files, store_id, reserve=reserve)


class _MisplacingRunner(JobRunner):
    def run(self, job: StoreJob) -> None:
        if isinstance(job, AppendFile) and job.path.endswith(".idx"):
            start = 0 if job.offset else FILE_HEADER_BYTES
            _, queue, name = job.path.split("/")
            number = int(queue) << 32 | int(name.removesuffix(".idx"))
            data = b"".join(job.parts)
            job.parts = [rewritten(data, start, seed_of(number), _one_behind)]
        super().run(job)


def _one_behind(kind: int, body: bytes) -> bytes:
    if kind != PLACES:
        return body
    changed = bytearray(body)
    for at in range(PLACES_HEAD_BYTES + 4, len(body), ENTRY_BYTES):
        changed[at : at + 4] = (int.from_bytes(body[at : at + 4], "big") + 1).to_bytes(4, "big")
    return bytes(changed)


class ForgottenCopy(NodeParts):
    """Contents of a file that is emptied are not copied into the segment."""

    def runner(self, files: FileSystem, store_id: bytes, reserve: SpaceReserve) -> JobRunner:
        return _NotCopyingRunner(files, store_id, reserve=reserve)


class _NotCopyingRunner(JobRunner):
    def run(self, job: StoreJob) -> None:
        if isinstance(job, RewriteSegment):
            job.emptied = []
        super().run(job)


class UnsyncedEntry(NodeParts):
    """An index refers to contents that the journal has not made durable."""

    def end_turn(self, broker: Broker) -> None:
        for vhost in broker.vhosts.values():
            for file in vhost.journal.files:
                file.synced_bytes = 1 << 40


# -- a dropped reference count ---------------------------------------------------------------------


class ForgottenRelease(NodeParts):
    """Released references never reach the disk."""

    def flusher(self, files: FileSystem, reserve: SpaceReserve) -> BatchFlusher:
        return _KeepingFlusher(files, reserve)


class _KeepingFlusher(BatchFlusher):
    def flush(self, job: FlushJob) -> None:
        batch = job.batch
        start = FILE_HEADER_BYTES if batch.starts_file else 0
        if batch.parts:
            batch.parts = [
                rewritten(b"".join(batch.parts), start, seed_of(batch.file_number), _of_nobody)
            ]
        super().flush(job)


def _of_nobody(kind: int, body: bytes) -> bytes:
    if kind != RELEASE:
        return body
    # The body has a serial and a count, then 14 bytes each; replace each id by one that no content
    # has.
    entries = body[12:]
    changed = b"".join(
        (1 << 40).to_bytes(8, "big") + entries[at + 8 : at + 14]
        for at in range(0, len(entries), 14)
    )
    return body[:12] + changed


# -- off by one at the end of a segment ------------------------------------------------------------


class ShortRead(NodeParts):
    """A read that should reach the end of a segment ends one byte earlier."""

    def runner(self, files: FileSystem, store_id: bytes, reserve: SpaceReserve) -> JobRunner:
        return _ShortSightedRunner(files, store_id, reserve=reserve)


class _ShortSightedRunner(JobRunner):
    def run(self, job: StoreJob) -> None:
        super().run(job)
        if isinstance(job, ReadRanges) and job.error is None:
            for place, (path, offset, _) in enumerate(job.ranges):
                data = job.results[place]
                if data and path.endswith(".idx") and offset + len(data) == self._files.size(path):
                    job.results[place] = data[:-1]


# -- definitions that are not stored ---------------------------------------------------------------


class _ChangeFlusher(BatchFlusher):
    """Drops changes of definitions for which `is_lost` is true."""

    def __init__(
        self, files: FileSystem, reserve: SpaceReserve, is_lost: Callable[[object], bool]
    ) -> None:
        super().__init__(files, reserve)
        self._is_lost = is_lost

    def flush(self, job: FlushJob) -> None:
        for change_set in job.batch.change_sets:
            change_set.changes = [
                change for change in change_set.changes if not self._is_lost(change)
            ]
        super().flush(job)


class UnrecordedCommit(NodeParts):
    """The commit of a sink is answered and never stored."""

    def flusher(self, files: FileSystem, reserve: SpaceReserve) -> BatchFlusher:
        return _ChangeFlusher(files, reserve, lambda change: isinstance(change, PutSink))


class ForgottenMember(NodeParts):
    """A reader group's member in queue 1 is stored, and its members in other queues are not."""

    def flusher(self, files: FileSystem, reserve: SpaceReserve) -> BatchFlusher:
        return _ChangeFlusher(
            files,
            reserve,
            lambda change: isinstance(change, PutGroupMember) and change.queue_id > 1,
        )


class ForgottenEpoch(NodeParts):
    """Only the first opening of a reader group is stored."""

    def flusher(self, files: FileSystem, reserve: SpaceReserve) -> BatchFlusher:
        return _ChangeFlusher(
            files, reserve, lambda change: isinstance(change, PutReaderGroup) and change.epoch > 1
        )


# -- a move of something else ----------------------------------------------------------------------


class MisplacedMove(NodeParts):
    """The record of a published staged message names a place where no message was staged."""

    def flusher(self, files: FileSystem, reserve: SpaceReserve) -> BatchFlusher:
        return _MisplacingFlusher(files, reserve)


class _MisplacingFlusher(BatchFlusher):
    def flush(self, job: FlushJob) -> None:
        batch = job.batch
        start = FILE_HEADER_BYTES if batch.starts_file else 0
        if batch.parts:
            batch.parts = [
                rewritten(b"".join(batch.parts), start, seed_of(batch.file_number), _from_nowhere)
            ]
        super().flush(job)


def _from_nowhere(kind: int, body: bytes) -> bytes:
    # A move has the id of the stage, then the seq id; replace the seq id.
    return body[:4] + (1 << 40).to_bytes(8, "big") + body[12:] if kind in (MOVE, MOVE_REF) else body


# -- a fan-out that is none ------------------------------------------------------------------------


class _FirstOnly(dict[tuple[bool, bytes, bytes, bytes], Binding]):
    """The bindings of an exchange; `values` gives only the first one."""

    def values(self) -> Any:
        return list(super().values())[:1]


class ShortFanout(NodeParts):
    """A fan-out reaches only its first queue."""

    def change_vhost(self, vhost: Vhost) -> None:
        exchange = vhost.router.exchanges[b"amq.fanout"]
        exchange.outgoing = _FirstOnly(exchange.outgoing)


class UnwrittenBinding(NodeParts):
    """Bindings are never stored."""

    def flusher(self, files: FileSystem, reserve: SpaceReserve) -> BatchFlusher:
        return _ChangeFlusher(files, reserve, lambda change: isinstance(change, PutBinding))


# -- a nack for nothing ----------------------------------------------------------------------------


class NeedlessNack(NodeParts):
    """Every batch with a durable message is on disk and reported as failed."""

    def flusher(self, files: FileSystem, reserve: SpaceReserve) -> BatchFlusher:
        return _DoubtfulFlusher(files, reserve)


class _DoubtfulFlusher(BatchFlusher):
    def flush(self, job: FlushJob) -> None:
        super().flush(job)
        if job.error is None and job.batch.positions:
            job.error = OSError("nothing is wrong")


# -- a backup that nothing is held for -------------------------------------------------------------


class ForgottenPin(NodeParts):
    """Files are deleted, and contents moved, while a backup needs them."""

    def __init__(self) -> None:
        self._vhost: Vhost | None = None

    def change_vhost(self, vhost: Vhost) -> None:
        self._vhost = vhost

    def runner(self, files: FileSystem, store_id: bytes, reserve: SpaceReserve) -> JobRunner:
        runner = _ReleasingRunner(files, store_id, reserve=reserve)
        runner.vhost = self._vhost
        return runner


class _ReleasingRunner(JobRunner):
    vhost: Vhost | None = None

    def run(self, job: StoreJob) -> None:
        super().run(job)
        if self.vhost is not None and self.vhost.store.backup.checkpoint:
            self.vhost.store.backup.is_on = False


# -- alarms ----------------------------------------------------------------------------------------


class ForgottenPublish(NodeParts):
    """Publishes that an alarm deferred are dropped at its end."""

    def end_turn(self, broker: Broker) -> None:
        if not broker.alarms.is_on:
            for connection in broker.connections:
                connection.throttle.end()


class IgnoredAlarm(NodeParts):
    """Publishers continue during an alarm."""

    def end_turn(self, broker: Broker) -> None:
        for connection in broker.connections:
            connection.throttle.end_alarm(connection)


PLANTED: dict[str, type[NodeParts]] = {
    "a skipped sync": SkippedSync,
    "an early confirm": EarlyConfirm,
    "a forgotten checkpoint entry": ForgottenEntry,
    "a checkpoint without the files that an index needs": ForgottenStretch,
    "a file that stays and is deleted too early": EarlyDeletion,
    "an entry that names another place": MisplacedEntry,
    "an emptied file whose contents are not copied": ForgottenCopy,
    "an entry of contents that are not synced": UnsyncedEntry,
    "a dropped reference count": ForgottenRelease,
    "a read that ends one byte before its segment": ShortRead,
    "a commit of a sink that is not recorded": UnrecordedCommit,
    "a move that names another place": MisplacedMove,
    "a member of a group that is forgotten": ForgottenMember,
    "an epoch that is forgotten": ForgottenEpoch,
    "a fan-out that reaches only its first queue": ShortFanout,
    "bindings that are never written": UnwrittenBinding,
    "a nack of what is on disk": NeedlessNack,
    "a backup that holds no files": ForgottenPin,
    "a held publish that is forgotten": ForgottenPublish,
    "an alarm that is ignored": IgnoredAlarm,
}
