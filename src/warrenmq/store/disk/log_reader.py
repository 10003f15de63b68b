"""Reads contents in journal files without a node, wherever these files are.

A file that has left the journal is in the content store's directory (`store/model/content_log.py`).
Each record in it names its queues and seq ids, so messages are found without any index.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from warrenmq.store.disk.files import is_directory, journal_path, read_whole
from warrenmq.store.file_system import FileSystem
from warrenmq.store.index.content_load import LOG_GAP_BYTES, LOG_READ_BYTES
from warrenmq.store.model.layout import PERSISTENT_NAME
from warrenmq.store.model.message import ABSENT, INDEXED, Message, Position, QueueLedger
from warrenmq.store.model.runs import Runs, add_run
from warrenmq.store.records import log_places, record
from warrenmq.store.records.log_scan import LogScan, rows_of_log
from warrenmq.store.records.publish_body import decode_message, message_bounds
from warrenmq.store.records.run_check import RunCheck

LOG_NAME: Final = re.compile(r"(0|[1-9][0-9]{0,17})\.wal")
# Contents are read for so many positions, or so many bytes, at a time.
_BATCH_POSITIONS: Final = 1024
_BATCH_BYTES: Final = 4194304

# Says of (queue id, seq id) whether a message is looked for.
IsWanted = Callable[[int, int], bool]


class LogRows(NamedTuple):
    """What is in a journal file, in order: the columns of `rows_of_log`, each of the same length.

    Columns need a tenth of the memory and time of objects for the records.
    """

    starts: list[int]
    ends: list[int]
    # 1 for a record, 0 for a stretch that is none.
    valid: list[int]
    # -1 for a record or stretch without a message.
    queues: list[int]
    seqs: list[int]


class LogReader:
    """The journal files in `files`, a vhost's directory."""

    def __init__(self, files: FileSystem, store_id: bytes) -> None:
        self._files = files
        self._store_id = store_id

    def path_of(self, number: int) -> str | None:
        """Path of a file, behind the journal or in it; None when there is none."""
        for path in (f"{PERSISTENT_NAME}/{number}.wal", journal_path(number)):
            if self._files.is_file(path):
                return path
        return None

    def retained(self) -> list[int]:
        """Numbers of the files that have left the journal, ascending."""
        if not is_directory(self._files, PERSISTENT_NAME):
            return []
        return sorted(
            int(match.group(1))
            for match in map(LOG_NAME.fullmatch, self._files.list_names(PERSISTENT_NAME))
            if match and self._files.is_file(f"{PERSISTENT_NAME}/{match.group()}")
        )

    # -- contents of known places ------------------------------------------------------------------

    def fill(self, positions: list[Position]) -> None:
        """Give each position whose content is in a journal file its message.

        One whose content cannot be read stays without it.
        """
        gathered: list[Position] = []
        number = start = end = -1
        for position in positions:
            if not is_referred(position):
                continue
            place = position.place
            first = log_places.offset_of(place)
            last = first + log_places.read_bytes_of(place, position.content_bytes)
            if gathered and (
                log_places.file_of(place) != number
                or not start <= first <= end + LOG_GAP_BYTES
                or last - start > LOG_READ_BYTES
            ):
                self._read(gathered, number, start, end)
                gathered = []
            if not gathered:
                number, start, end = log_places.file_of(place), first, last
            gathered.append(position)
            end = max(end, last)
        if gathered:
            self._read(gathered, number, start, end)

    def filled(self, positions: Iterable[Position]) -> Iterator[Position]:
        """Yield `positions` in their order, each after its content was read (`fill`)."""
        waiting: list[Position] = []
        size = 0
        for position in positions:
            if not waiting and not is_referred(position):
                yield position
                continue
            waiting.append(position)
            size += position.content_bytes
            if len(waiting) >= _BATCH_POSITIONS or size >= _BATCH_BYTES:
                self.fill(waiting)
                yield from waiting
                waiting = []
                size = 0
        self.fill(waiting)
        yield from waiting

    def message(self, position: Position) -> Message | None:
        """The message at `position`, read from its journal file; None: it cannot be read."""
        number = log_places.file_of(position.place)
        offset = log_places.offset_of(position.place)
        path = self.path_of(number)
        if path is None:
            return None
        try:
            data = self._files.read(
                path, offset, log_places.read_bytes_of(position.place, position.content_bytes)
            )
        except OSError:
            return None
        check = self._check_of(data, number)
        return log_places.message_at(check, 0, position.ledger.queue_id, position.seq)

    def _read(self, positions: list[Position], number: int, start: int, end: int) -> None:
        path = self.path_of(number)
        if path is None:
            return
        try:
            data = self._files.read(path, start, end - start)
        except OSError:
            return
        check = self._check_of(data, number)
        for position in positions:
            at = log_places.offset_of(position.place) - start
            message = log_places.message_at(check, at, position.ledger.queue_id, position.seq)
            if message is not None:
                position.message = message
                position.has_content = True

    def _check_of(self, data: bytes, number: int) -> RunCheck:
        return RunCheck(data, record.crc_seed(self._store_id, number))

    # -- all records -------------------------------------------------------------------------------

    def packed_rows(self, path: str, number: int) -> bytes:
        """What is in file `number`, which is at `path`, as `rows_of_log` makes it."""
        return rows_of_log(read_whole(self._files, path), record.crc_seed(self._store_id, number))

    def rows(self, path: str, number: int) -> LogRows:
        """What is in file `number`, which is at `path`."""
        fields = memoryview(self.packed_rows(path, number)).cast("q")
        count = len(LogRows._fields)
        return LogRows(*(fields[column::count].tolist() for column in range(count)))

    def search(self, numbers: Iterable[int], is_wanted: IsWanted) -> Iterator[Position]:
        """Positions of these files that are wanted; `fill` reads their contents."""
        for number in numbers:
            path = self.path_of(number)
            if path is None:
                continue
            data = read_whole(self._files, path)
            scan = LogScan(data, record.crc_seed(self._store_id, number))
            while scan.advance():
                at = scan.first_position
                for _ in range(scan.position_count):
                    if is_wanted(record.read_u32(data, at), record.read_u64(data, at + 4)):
                        position = _position_at(data, at, number, scan.start, scan.body, scan.end)
                        if position is not None:
                            yield position
                    at += record.POSITION_BYTES

    def acks(self, number: int) -> Iterator[tuple[int, Runs]]:
        """The acks in a file: queue id and seq ids of each."""
        path = self.path_of(number)
        if path is None:
            return
        data = read_whole(self._files, path)
        scan = LogScan(data, record.crc_seed(self._store_id, number))
        while scan.advance():
            body = scan.start + record.RECORD_HEADER_BYTES
            is_ack = scan.is_valid and data[scan.start + 2] == record.ACK
            if not is_ack or scan.end - body < 8:
                continue
            count = record.read_u32(data, body + 4)
            if scan.end - body == 8 + count * record.RUN_BYTES:
                yield record.read_u32(data, body), record.read_runs(data, body + 8, count)


def is_referred(position: Position) -> bool:
    """Whether the content of a position must be read from a journal file."""
    return not position.has_content and position.content_ref is None and position.place < -1


def _position_at(
    data: bytes, at: int, number: int, start: int, body: int, end: int
) -> Position | None:
    """The position at `at` of the record data[start:end], without its content if it has a place."""
    timestamp_at, _, _, body_start = message_bounds(data, body, end)
    # Beside the content: timestamp and flags, and the lengths of properties and body.
    content_bytes = end - timestamp_at - 17
    has_place = log_places.may_encode(number, start, end - start, content_bytes)
    message = ABSENT if has_place else decode_message(data, body, end)
    if message is None:
        return None
    ledger = QueueLedger(record.read_u32(data, at))
    position = Position(
        message, ledger, record.read_u64(data, at + 4), record.read_u64(data, at + 12)
    )
    position.persistent = True
    position.redelivered = (data[at + 20] & record.FLAG_REDELIVERED) != 0
    position.body_bytes = end - body_start
    position.content_bytes = content_bytes
    position.journal_state = INDEXED
    position.has_content = not has_place
    if has_place:
        position.place = log_places.place_of(number, start, end - start, content_bytes)
    return position


def runs_of(seqs: Iterable[int]) -> Runs:
    """Seq ids, ascending, as runs."""
    runs: Runs = []
    for seq in seqs:
        add_run(runs, seq, seq)
    return runs
