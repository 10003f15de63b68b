"""The spool of a query on another broker: messages on the driver's disk until Spark commits them.

A spool is a directory with the files of tables/spool.py, and

    spool.json      the queue, and the id that seeds the checksums of the files
    committed       Spark has committed all messages below this seq; a hint that may be too low
    lock            locked by the process that fills the spool

One thread fills the spool (`store`), another reads and trims it. Messages are durable when `store`
returns. Opening the spool truncates a last file to its whole records: a crash may leave an
unfinished end, of which nothing was acked to the broker.
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
from warrenmq.store.model.message import Message, Position, QueueLedger
from warrenmq.store.records.record import (
    FILE_HEADER_BYTES,
    FILE_MAGIC,
    STORE_ID_BYTES,
    RecordWriter,
)
from warrenmq.tables.spool import QUEUE_ID, SpoolError, SpoolFile, SpoolSlice, read_spool_file
from warrenmq.wire.properties import DELIVERY_MODE_PERSISTENT, delivery_mode

# Ranges are cut at multiples of this many seq ids, and between files: the same range has the same
# partitions after any restart.
SPOOL_SLICE_MESSAGES: Final = 32_768
FILE_BYTES: Final = 64 * 1024 * 1024
# Fewest files of a full spool. Only whole files are deleted, so with fewer files a full spool would
# stay full for long.
FILES_MIN: Final = 8
LOCK_TIMEOUT_S: Final = 10.0
_IDENTITY: Final = "spool.json"
_COMMITTED: Final = "committed"
_FILE_NAME: Final = re.compile(r"(0|[1-9][0-9]{0,17})\.wal")

_log = logging.getLogger("warren.spark")


class Identity(msgspec.Struct):
    """The queue that a spool belongs to, and the id of the spool."""

    version: int
    id: str
    vhost: str
    queue: str


class Spool:
    """An open spool; the constructor opens or creates it, or raises SourceError in one line."""

    def __init__(self, directory: Path, vhost: str, queue: str, bytes_max: int) -> None:
        self._directory = directory
        self._vhost = vhost
        self._queue = queue
        self._bytes_max = bytes_max
        self._file_bytes = min(FILE_BYTES, bytes_max // FILES_MIN)
        # Guards the list of files, `tail` and `committed`, which both threads use. Notified when
        # messages arrive.
        self.changed = threading.Condition()
        self._files: list[SpoolFile] = []
        # Seq id of the next message.
        self.tail = 0
        # Spark has committed all messages below this seq id.
        self.committed = 0
        # Bytes of all files. Read without the lock, since reading a number is one step.
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

    # -- called by the thread that fills the spool -------------------------------------------------

    def store(self, deliveries: Sequence[Delivery]) -> None:
        """Append the messages durably, in order; OSError when the disk does not take them."""
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
        """True while the spool has reached its limit and has uncommitted messages.

        A spool with only committed messages is not full: the next commit makes room.
        """
        return self._used_bytes >= self._bytes_max and self.tail > self.committed

    # -- called by the thread that reads -----------------------------------------------------------

    def slices(self, start: int, end: int) -> list[SpoolSlice]:
        """The slices of files that hold [start, end); SourceError when a message is missing."""
        found = self._slices(start, end)
        if sum(part.end - part.start for part in found) != end - start:
            raise SourceError(
                f"data loss: messages from {start} to {end} are not all in {self._directory}"
            )
        return found

    def end_of_batch(self, start: int, messages_max: int, bytes_max: int) -> int:
        """End (exclusive) of a batch from `start` on, at most `tail`, within both limits.

        The limit in bytes is exact only to the distance of marks in a file, and a batch has at
        least one mark's distance.
        """
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
                # A batch has at least one step between marks.
                after = _mark_before(file, start) + 1
                fits = file.mark_seqs[after] if after < len(file.mark_seqs) else file.next_seq
            return min(end, fits)
        return end

    def commit(self, seq: int, keep: int) -> None:
        """Record that Spark has committed all messages below `seq`, and delete files below it.

        The last `keep` messages are never deleted.
        """
        is_news = seq > self.committed
        with self.changed:
            self.committed = max(seq, self.committed)
            below = min(seq, self.tail - keep)
            count = 0
            # Keep the last file, which is being filled.
            while count < len(self._files) - 1 and self._files[count].next_seq <= below:
                count += 1
            gone, self._files = self._files[:count], self._files[count:]
            self._used_bytes -= sum(file.size for file in gone)
        # Delete the files first: on a full disk the write below needs the room.
        for file in gone:
            file.path.unlink(missing_ok=True)
        if is_news:
            self._note_committed(seq)

    @property
    def first(self) -> int:
        """Seq id of the first message in the spool; `tail` when the spool is empty."""
        with self.changed:
            return self._files[0].first_seq if self._files else self.tail

    @property
    def start(self) -> int:
        """Seq id of the first message that is not known to be committed."""
        with self.changed:
            return max(self.committed, self._files[0].first_seq if self._files else self.tail)

    def last_slices(self, count: int) -> list[SpoolSlice]:
        """The slices of files that hold the last `count` messages, or all if there are fewer."""
        return self._slices(self.tail - count, self.tail)

    def close(self) -> None:
        """Close the files and release the lock, so that another process may open the spool."""
        if self._handle is not None:
            self._handle.close()
            self._handle = None
        if self._file_system is not None:
            self._file_system.release()
            self._file_system = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # -- parts -------------------------------------------------------------------------------------

    def _take_lock(self) -> None:
        descriptor = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        # The process of a query that was just stopped may still hold the lock.
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
                # A file without messages: a crash came right after it was created.
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
                # Sync the cut: the next start accepts an unfinished end only in the last file, and
                # a new file will follow this one.
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
        # Never reuse committed seq ids, whatever happened to the files.
        self.tail = max(self.tail, self.committed)

    def _file_for(self, seq: int) -> SpoolFile:
        """The file for the message `seq`: the open one, or a new one if that is full."""
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
        """The slices of files that hold [start, end), without missing messages."""
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
        # The filling thread adds marks of messages that are not written yet: limit the end to the
        # file's size.
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
            # Only log: the file is a hint, and the next write may find room on the disk.
            _log.warning("%s: %s", path, error)


def _mark_before(file: SpoolFile, seq: int) -> int:
    """The index of the last mark at `seq` or before it."""
    return bisect.bisect_right(file.mark_seqs, seq) - 1
