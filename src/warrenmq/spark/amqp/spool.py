"""The spool of a query that reads from another broker: messages on a disk of the driver until Spark has committed them.

A directory with the files of tables/spool.py, and

    spool.json      which queue, and the id that the checksums of the files start from
    committed       everything below this seq is committed by Spark; a hint that may be too low
    lock            held by the process that fills the spool

Filled by one thread (`store`), read and trimmed by another. What `store` has returned from is on the disk; a file's
unfinished end from before a crash is cut off when the spool is opened, because nothing of it was acked to the broker.
"""

import bisect
import contextlib
import fcntl
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from warrenmq.spark.amqp.connection import Delivery
from warrenmq.spark.retry import SourceError
from warrenmq.store.disk.files import make_directories, put_whole, sync_directory
from warrenmq.store.disk.local_file_system import LocalFileHandle, LocalFileSystem
from warrenmq.store.message import Message, Position, QueueLedger
from warrenmq.store.record import FILE_HEADER_BYTES, FILE_MAGIC, STORE_ID_BYTES, RecordWriter
from warrenmq.tables.spool import QUEUE_ID, SpoolError, SpoolFile, SpoolSlice, read_spool_file
from warrenmq.wire.properties import DELIVERY_MODE_PERSISTENT, delivery_mode

# A range is cut at multiples of this, and between files: the same range has the same partitions after any restart.
SPOOL_SLICE_MESSAGES: Final = 32_768
FILE_BYTES: Final = 64 * 1024 * 1024
# So many files at least: whole files are deleted, and with fewer of them a full spool would stay full for long.
FILES_MIN: Final = 8
LOCK_TIMEOUT_S: Final = 10.0
_IDENTITY: Final = "spool.json"
_COMMITTED: Final = "committed"
_FILE_NAME: Final = re.compile(r"(0|[1-9][0-9]{0,17})\.wal")

_log = logging.getLogger(__name__)


class Identity(msgspec.Struct):
    """Whose spool it is."""

    version: int
    id: str
    vhost: str
    queue: str


class Spool:
    """An open spool. The constructor opens or makes it; SourceError, in one line, when that cannot be."""

    def __init__(self, directory: Path, vhost: str, queue: str, bytes_max: int) -> None:
        self._directory = directory
        self._vhost = vhost
        self._queue = queue
        self._bytes_max = bytes_max
        self._file_bytes = min(FILE_BYTES, bytes_max // FILES_MIN)
        # Guards what both threads use: the list of files, `tail` and `committed`. Notified when messages come.
        self.changed = threading.Condition()
        self._files: list[SpoolFile] = []
        self.tail = 0
        self.committed = 0
        # Sizes of all files; a number is read and written in one step.
        self._used_bytes = 0
        self._file_system: LocalFileSystem | None = None
        self._handle: LocalFileHandle | None = None
        self._log = QueueLedger(QUEUE_ID)
        self._lock = -1
        try:
            make_directories(directory)
            self._take_lock()
            self._file_system = LocalFileSystem(directory)
            self.id = self._identify(self._file_system)
            self._store_id = bytes.fromhex(self.id)
            self._writer = RecordWriter(self._store_id)
            self._recover(self._file_system)
        except (OSError, SpoolError) as error:
            self.close()
            raise SourceError(f"the spool {directory} cannot be opened: {error}") from None
        except SourceError:
            self.close()
            raise

    # -- the thread that fills it ------------------------------------------------------------------------------

    def store(self, deliveries: Sequence[Delivery]) -> None:
        """Append the messages in their order, durably. OSError when the disk does not take them."""
        now_ms = time.time_ns() // 1_000_000
        seq = self.tail
        writer = self._writer
        file: SpoolFile | None = None
        for delivery in deliveries:
            if file is None or file.size + writer.size_bytes >= self._file_bytes:
                if file is not None:
                    self._write(file, seq)
                file = self._file_for(seq)
            file.add(seq, file.size + writer.size_bytes)
            method = delivery.method
            address = b"%c%b%c%b" % (
                len(method.exchange),
                method.exchange,
                len(method.routing_key),
                method.routing_key,
            )
            is_persistent = delivery_mode(delivery.properties) == DELIVERY_MODE_PERSISTENT
            message = Message(address, delivery.properties, delivery.body, is_persistent, now_ms)
            position = Position(message, self._log, seq, 0)
            position.redelivered = method.redelivered
            writer.add_publish(message, [position], 0, 1)
            seq += 1
        if file is not None:
            self._write(file, seq)

    @property
    def is_full(self) -> bool:
        """Has it reached its limit? Not with only committed messages: then the next commit makes room."""
        return self._used_bytes >= self._bytes_max and self.tail > self.committed

    # -- the thread that reads ------------------------------------------------------------------------------------

    def slices(self, start: int, end: int) -> list[SpoolSlice]:
        """Where [start, end) is. SourceError when some of it is not there."""
        found = self._slices(start, end)
        if sum(part.end - part.start for part in found) != end - start:
            raise SourceError(
                f"data loss: messages from {start} to {end} are not all in {self._directory}"
            )
        return found

    def end_of_batch(self, start: int, messages_max: int, bytes_max: int) -> int:
        """Where a batch from `start` on ends: at `tail` or before, within both limits as far as one mark allows."""
        with self.changed:
            files, tail = list(self._files), self.tail
        end = min(tail, start + messages_max)
        left = bytes_max
        for file in files:
            if file.next_seq <= start:
                continue
            if file.first_seq >= end:
                break
            begin = file.mark_offsets[_mark_before(file, max(start, file.first_seq))]
            if file.size - begin <= left:
                left -= file.size - begin
                continue
            fits = file.mark_seqs[bisect.bisect_right(file.mark_offsets, begin + left) - 1]
            if fits <= start:
                # One step in any case.
                after = _mark_before(file, start) + 1
                fits = file.mark_seqs[after] if after < len(file.mark_seqs) else file.next_seq
            return min(end, fits)
        return end

    def commit(self, seq: int, keep: int) -> None:
        """Everything below `seq` is committed; files of which nothing is wanted are deleted, but not the last `keep` messages."""
        is_news = seq > self.committed
        with self.changed:
            self.committed = max(seq, self.committed)
            below = min(seq, self.tail - keep)
            count = 0
            # The last one is being filled.
            while count < len(self._files) - 1 and self._files[count].next_seq <= below:
                count += 1
            gone, self._files = self._files[:count], self._files[count:]
            self._used_bytes -= sum(file.size for file in gone)
        # First of all the room: on a full disk the note needs some.
        for file in gone:
            file.path.unlink(missing_ok=True)
        if is_news:
            self._note_committed(seq)

    @property
    def first(self) -> int:
        """The first seq that is there; `tail` when none is."""
        with self.changed:
            return self._files[0].first_seq if self._files else self.tail

    @property
    def start(self) -> int:
        """The first seq that is not committed, as far as is known."""
        with self.changed:
            return max(self.committed, self._files[0].first_seq if self._files else self.tail)

    def wait_beyond(self, seq: int, timeout_s: float) -> None:
        """Until there is a message beyond `seq`, or somebody has news for those who wait."""
        with self.changed:
            if self.tail <= seq:
                self.changed.wait(timeout_s)

    def last_slices(self, count: int) -> list[SpoolSlice]:
        """Where the last `count` messages are, fewer if there are fewer."""
        return self._slices(self.tail - count, self.tail)

    def close(self) -> None:
        """Let go of it; another process may open it."""
        if self._handle is not None:
            self._handle.close()
            self._handle = None
        if self._file_system is not None:
            self._file_system.release()
            self._file_system = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # -- parts ------------------------------------------------------------------------------------------------------

    def _take_lock(self) -> None:
        descriptor = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        # The process of a query that was stopped a moment ago may be there still.
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(descriptor)
                    raise SourceError(
                        f"the spool {self._directory} is in use by another query: each needs one of its own"
                    ) from None
            time.sleep(0.1)
        self._lock = descriptor

    def _identify(self, files: LocalFileSystem) -> str:
        path = self._directory / _IDENTITY
        if not path.exists():
            if any(_FILE_NAME.fullmatch(name) for name in os.listdir(self._directory)):
                raise SourceError(
                    f"{path} is lost, but the messages are there: put it back, or move them away"
                )
            identity = Identity(1, secrets.token_hex(STORE_ID_BYTES), self._vhost, self._queue)
            put_whole(files, _IDENTITY, msgspec.json.encode(identity))
            return identity.id
        try:
            identity = msgspec.json.decode(path.read_bytes(), type=Identity)
            is_valid = identity.version == 1 and len(bytes.fromhex(identity.id)) == STORE_ID_BYTES
        except (msgspec.DecodeError, ValueError):
            is_valid = False
        if not is_valid:
            raise SourceError(f"{path} is damaged, or of another version of warren")
        if (identity.vhost, identity.queue) != (self._vhost, self._queue):
            raise SourceError(
                f"the spool {self._directory} is of queue '{identity.queue}' in vhost '{identity.vhost}', "
                f"not of '{self._queue}' in '{self._vhost}'"
            )
        return identity.id

    def _recover(self, files: LocalFileSystem) -> None:
        numbers = [
            int(name[:-4]) for name in os.listdir(self._directory) if _FILE_NAME.fullmatch(name)
        ]
        for number in sorted(numbers):
            path = self._directory / f"{number}.wal"
            is_last = number == max(numbers)
            if is_last and path.stat().st_size <= FILE_HEADER_BYTES:
                # Made in the moment of a crash, for the next message.
                path.unlink()
                self.tail = max(self.tail, number)
                break
            file, has_rest = read_spool_file(path, self._store_id)
            if has_rest:
                if not is_last:
                    raise SpoolError(f"{path} is damaged behind message {file.next_seq}")
                _log.warning(
                    "%s: cutting off %d unfinished bytes", path, path.stat().st_size - file.size
                )
                cut = files.open(path.name)
                cut.truncate(file.size)
                # It will not be the last one any more.
                cut.sync()
                cut.close()
            if self._files and file.first_seq < self.tail:
                raise SpoolError(f"{path} begins before the end of the file before it")
            if file.next_seq == file.first_seq and is_last:
                path.unlink()
                self.tail = number
                break
            self._files.append(file)
            self.tail = file.next_seq
            self._used_bytes += file.size
        with contextlib.suppress(FileNotFoundError, ValueError):
            self.committed = int((self._directory / _COMMITTED).read_bytes())
        # What was committed is not numbered again, whatever became of the files.
        self.tail = max(self.tail, self.committed)

    def _file_for(self, seq: int) -> SpoolFile:
        """The file that takes the message `seq`; a new one when the last is large enough or does not end there."""
        if self._handle is not None and self._files[-1].size < self._file_bytes:
            return self._files[-1]
        if self._handle is not None:
            self._handle.close()
            self._handle = None
        assert self._file_system is not None
        file = SpoolFile(self._directory / f"{seq}.wal", seq, seq)
        self._handle = self._file_system.create(file.path.name)
        self._writer.start_file(FILE_MAGIC, seq)
        header = self._writer.take()
        self._handle.write(0, header)
        self._handle.sync()
        sync_directory(self._directory)
        with self.changed:
            self._files.append(file)
            self._used_bytes += file.size
        return file

    def _write(self, file: SpoolFile, tail: int) -> None:
        assert self._handle is not None
        size = int(self._writer.size_bytes)
        self._handle.write(file.size, self._writer.take())
        self._handle.sync()
        with self.changed:
            file.size += size
            self._used_bytes += size
            self.tail = tail
            self.changed.notify_all()

    def _slices(self, start: int, end: int) -> list[SpoolSlice]:
        """What is there of [start, end)."""
        with self.changed:
            files, tail = list(self._files), self.tail
        found: list[SpoolSlice] = []
        for file in files:
            at = max(start, file.first_seq)
            stop = min(end, file.next_seq, tail)
            while at < stop:
                cut = min(stop, (at // SPOOL_SLICE_MESSAGES + 1) * SPOOL_SLICE_MESSAGES)
                found.append(self._slice(file, at, cut))
                at = cut
        return found

    def _slice(self, file: SpoolFile, start: int, end: int) -> SpoolSlice:
        after = bisect.bisect_left(file.mark_seqs, end)
        # There may be marks of messages that are being written.
        end_byte = file.mark_offsets[after] if after < len(file.mark_offsets) else file.size
        return SpoolSlice(
            path=str(file.path),
            first_seq=file.first_seq,
            store_id=self._store_id,
            vhost=self._vhost,
            queue=self._queue,
            start=start,
            end=end,
            start_byte=file.mark_offsets[_mark_before(file, start)],
            end_byte=min(end_byte, file.size),
        )

    def _note_committed(self, seq: int) -> None:
        path = self._directory / (_COMMITTED + ".new")
        try:
            path.write_bytes(b"%d" % seq)
            path.rename(self._directory / _COMMITTED)
        except OSError as error:
            # It is a hint, and the next one may find room.
            _log.warning("%s: %s", path, error)


def _mark_before(file: SpoolFile, seq: int) -> int:
    """The place of the last mark at `seq` or before."""
    return bisect.bisect_right(file.mark_seqs, seq) - 1
