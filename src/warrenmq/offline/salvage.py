"""Makes a new data directory from what is left of an old one.

Salvage copies, in order and without garbage, every message that a start would deliver. It also
finds messages that a start counts as lost: a message whose index entry is lost may be in any of the
journal files, also in those that have left the journal; a large one, in the content files, which
name the positions that shared each content. Without any checkpoint and segment of a queue, the
journal files alone say what it had.
Queues that earlier starts did not know and put into `lost+found` become queues of their own. A
queue whose definition is lost gets a name made of its id. Readable definitions are copied as they
are. The old directory is only read.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from warrenmq.broker.definitions.kinds import as_changes
from warrenmq.broker.definitions.metadata import (
    Change,
    Definitions,
    PutPermission,
    PutQueue,
    PutUser,
    PutVhost,
)
from warrenmq.broker.definitions.metadata_sqlite import SqliteMetadata
from warrenmq.broker.definitions.passwords import SHA256, hash_password
from warrenmq.offline import data_directory
from warrenmq.offline.backup_files import must_be_new
from warrenmq.offline.check import is_deleted_queue
from warrenmq.offline.lost_queues import find_lost_queues
from warrenmq.offline.queue_copies import lacks_definitions
from warrenmq.offline.store_builder import StoreBuilder
from warrenmq.store.contents.file import GONE, ContentFile, index_of
from warrenmq.store.disk.files import (
    journal_numbers,
    journal_path,
    make_directories,
    read_whole,
    sync_directory,
)
from warrenmq.store.disk.local_file_system import LocalFileSystem
from warrenmq.store.disk.log_reader import is_referred, runs_of
from warrenmq.store.disk.snapshot import NoStore, ReferenceCounts, VhostSnapshot
from warrenmq.store.model.message import ABSENT, ContentRef, Message, Position, QueueLedger
from warrenmq.store.model.queue_index import SEGMENT_ENTRIES, Segment
from warrenmq.store.model.runs import Runs, contains, merge_runs, subtract
from warrenmq.store.records.content import StoredContent, decode_content
from warrenmq.store.records.record import (
    FLAG_REDELIVERED,
    FLAG_TRANSIENT,
    POSITION_BYTES,
    RECORD_HEADER_BYTES,
    read_u32,
    read_u64,
)
from warrenmq.store.recovery import JournalReplay, RecoveredQueue

# The vhost that a first start makes has this id.
_FIRST_VHOST_ID: Final = 1


@dataclass
class SalvagedQueue:
    """The result of salvage for one queue."""

    vhost: str
    id: int
    name: str
    # Messages in the new directory.
    messages: int = 0
    # Messages that are not in the new directory.
    lost: int = 0
    # Messages in the new directory that had no index entry any more.
    found_again: int = 0
    # Seq ids, (first, last) of each run, of which nothing was found: lost messages have some of
    # these.
    missing: list[tuple[int, int]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """For --json."""
        return dict(vars(self))


@dataclass
class MadeQueue:
    """A queue whose definition is lost, with the name that it gets."""

    vhost: bytes
    id: int
    name: bytes


@dataclass
class SalvageResult:
    """The result of salvage: the messages of the new directory, and the losses."""

    queues: list[SalvagedQueue] = field(default_factory=list)
    # Lines for people about data that could not be taken over.
    losses: list[str] = field(default_factory=list)
    # Losses of an unknown number of messages.
    uncounted: int = 0
    # Other lines for people, such as the names that salvage made up.
    notes: list[str] = field(default_factory=list)
    # Vhosts, by id, and queues whose definitions are lost: `finish` writes new ones.
    made_vhosts: list[int] = field(default_factory=list)
    made_queues: list[MadeQueue] = field(default_factory=list)

    def add(self, other: SalvageResult) -> None:
        """Add what was salvaged elsewhere."""
        self.queues += other.queues
        self.losses += other.losses
        self.uncounted += other.uncounted
        self.notes += other.notes
        self.made_vhosts += other.made_vhosts
        self.made_queues += other.made_queues

    @property
    def messages(self) -> int:
        """Messages in the new directory."""
        return sum(queue.messages for queue in self.queues)

    @property
    def lost(self) -> int:
        """Messages that are known to be lost."""
        return sum(queue.lost for queue in self.queues)

    def as_json(self) -> dict[str, Any]:
        """For --json."""
        return {
            "messages": self.messages,
            "lost": self.lost,
            "uncounted_losses": self.uncounted,
            "queues": [queue.as_json() for queue in self.queues],
            "losses": self.losses,
            "notes": self.notes,
        }


def salvage(
    path: Path, target: Path, on_bytes: Callable[[int], None] = lambda size: None
) -> SalvageResult:
    """Make `target` from `path`. Raises ToolError; what exists of `target` is then of no use."""
    with data_directory.opened(path) as directory:
        begin(directory, target)
        vhosts = [salvage_vhost(directory, vhost, target, on_bytes) for vhost in directory.vhosts]
        return finish(directory, target, vhosts)


def begin(directory: data_directory.DataDirectory, target: Path) -> None:
    """Create the new data directory `target`. Raises ToolError unless it is missing or empty."""
    path = directory.path
    if target.resolve().is_relative_to(path.resolve()):
        raise data_directory.ToolError(f"{target} lies in {path}, which is not to be written to")
    must_be_new(target)
    make_directories(target)


def salvage_vhost(
    directory: data_directory.DataDirectory,
    vhost: data_directory.VhostDirectory,
    target: Path,
    on_bytes: Callable[[int], None] = lambda size: None,
) -> SalvageResult:
    """Copy what is left of a vhost's store into a new store below `target`.

    `finish` writes the definitions of all vhosts. Raises ToolError.
    """
    result = SalvageResult()
    definition = vhost.definition
    if definition is None:
        definition = PutVhost(_made_name(vhost.id), vhost.id)
        result.made_vhosts.append(vhost.id)
        result.notes.append(
            f"vhost id {vhost.id}, whose definition is lost, is called {definition.name.decode()!r}"
        )
    path = target / data_directory.VHOSTS_PATH / str(vhost.id)
    make_directories(path)
    with data_directory.files_of(vhost) as files:
        try:
            snapshot = VhostSnapshot(files, SEGMENT_ENTRIES)
        except NoStore as error:
            result.losses.append(f"vhost '{vhost.name}': {error}")
            return result
        target_files = LocalFileSystem(path)
        try:
            VhostSalvage(directory.definitions, vhost, definition, snapshot, result, on_bytes).run(
                StoreBuilder(target_files)
            )
        finally:
            target_files.release()
    return result


def finish(
    directory: data_directory.DataDirectory, target: Path, vhosts: Iterable[SalvageResult]
) -> SalvageResult:
    """Write the definitions for the stores in `target`; returns the sum of the results."""
    result = SalvageResult()
    changes = _taken_over(directory, result)
    users = [user.name for user in directory.definitions.users] or [b"guest"]
    for vhost in vhosts:
        for vhost_id in vhost.made_vhosts:
            name = _made_name(vhost_id)
            changes.append(PutVhost(name, vhost_id))
            changes += [PutPermission(name, user, ".*", ".*", ".*") for user in users]
        changes += [
            PutQueue(made.vhost, made.id, made.name, True, False, b"") for made in vhost.made_queues
        ]
        result.add(vhost)
    metadata = SqliteMetadata(target / data_directory.DATABASE_NAME)
    metadata.apply(changes)
    metadata.close()
    sync_directory(target)
    return result


def _made_name(vhost_id: int) -> bytes:
    """The name for a vhost whose definition is lost."""
    return b"/" if vhost_id == _FIRST_VHOST_ID else b"salvaged-%d" % vhost_id


def _taken_over(directory: data_directory.DataDirectory, result: SalvageResult) -> list[Change]:
    """The readable definitions; user guest if they are lost, or are of a cluster."""
    definitions = directory.definitions
    changes = as_changes(definitions)
    if directory.definitions_error:
        result.losses.append(f"the definitions: {directory.definitions_error}")
    elif lacks_definitions(directory):
        result.losses.append("exchanges, bindings and users, which are in the etcd of the cluster")
    else:
        return changes
    if not definitions.users:
        result.notes.append("user guest with password guest is made, as at a first start")
        changes.append(PutUser(b"guest", hash_password(b"guest"), SHA256, ["administrator"]))
        changes += [
            PutPermission(vhost.name, b"guest", ".*", ".*", ".*") for vhost in definitions.vhosts
        ]
    return changes


class VhostSalvage:
    """The salvage of one vhost."""

    def __init__(
        self,
        definitions: Definitions,
        vhost: data_directory.VhostDirectory,
        definition: PutVhost,
        snapshot: VhostSnapshot,
        result: SalvageResult,
        on_bytes: Callable[[int], None],
    ) -> None:
        self.definitions = definitions
        self.vhost = vhost
        self.definition = definition
        self.snapshot = snapshot
        self.result = result
        self.on_bytes = on_bytes
        self.names = data_directory.queue_names(definitions, definition.name)
        self.next_queue_id = int(definitions.next_queue_id)
        self.counts = ReferenceCounts(snapshot.content_files)
        # Places of the contents in the new store, by the index of the old file and the place in it.
        self.moved: list[_Moved] = [_Moved(file) for file in snapshot.content_files]
        self.queues = [
            queue
            for queue in snapshot.queues()
            if queue.ledger.queue_id in self.names
            or not (queue.is_deleted or is_deleted_queue(definitions, vhost, queue.ledger.queue_id))
        ]
        # Seq ids whose index records cannot be read, by queue id.
        self.lost: dict[int, Runs] = {}
        # Positions of `lost` that were found elsewhere, by queue id and seq id.
        self.found_again: dict[int, dict[int, Position]] = {}

    def run(self, builder: StoreBuilder) -> None:
        """Fill the new store."""
        self._report_start()
        for queue in self.queues:
            self._count(queue)
        if self.lost:
            self._search_journal()
            self._search_logs()
        if not self.snapshot.report.checkpoint:
            self._search_unknown()
        for index, file in enumerate(self.snapshot.content_files):
            self._copy_contents(index, file, builder)
        for queue in self.queues:
            self._copy_queue(queue, builder)
        self._copy_lost_queues(builder)
        builder.finish()

    def _report_start(self) -> None:
        report = self.snapshot.report
        where = f"vhost '{self.vhost.name}'"
        if report.is_rebuilt:
            self.result.notes.append(
                f"{where}: there is no usable checkpoint; messages acked before it may be there again, and epochs "
                "of queues that only it knew are lost"
            )
        self.result.uncounted += len(report.damage) + len(report.missing_journal)
        for line in report.missing_journal:
            self.result.losses.append(f"{where}: missing: {line}")
        for damage in report.damage:
            self.result.losses.append(
                f"{where}: what was in journal file {damage.file_number}, bytes {damage.start} to {damage.end}"
            )
        for line in report.quarantined:
            self.result.losses.append(f"{where}: not a usable file: {line.partition(' -> ')[0]}")
        for missing in report.missing:
            self.result.losses.append(f"{where}: missing: {missing}")

    # -- what is referred to -----------------------------------------------------------------------

    def _count(self, queue: RecoveredQueue) -> None:
        lost: Runs = []
        for segment in self.snapshot.segments(queue):
            if segment.live_persistent > 0:
                self._count_segment(queue, segment, lost)
        for position in queue.in_order():
            if position.content_ref is not None:
                self.counts.add(position.content_ref.id)
        if lost:
            self.lost[queue.ledger.queue_id] = lost

    def _count_segment(self, queue: RecoveredQueue, segment: Segment, lost: Runs) -> None:
        index = queue.ledger.index
        assert index is not None
        entries = index.segment_entries
        end = min((segment.number + 1) * entries, queue.ledger.indexed_upto)
        expected = segment.number * entries
        count = 0
        gaps: Runs = []
        for position in self._positions(queue, segment):
            if position.content_ref is not None:
                self.counts.add(position.content_ref.id)
            if position.seq > expected:
                gaps.append((expected, position.seq - 1))
            expected = position.seq + 1
            count += 1
        if count >= segment.live_persistent:
            return
        if expected < end:
            gaps.append((expected, end - 1))
        for first, last in gaps:
            lost += subtract(first, last, index.settled)

    def _positions(self, queue: RecoveredQueue, segment: Segment) -> Iterator[Position]:
        """The live positions of a segment, as far as it can be read."""
        path = self.snapshot.path_of(queue, segment)
        if self.snapshot.files.is_file(path):
            try:
                yield from self.snapshot.segment_positions(queue, segment)
            except OSError as error:
                self.result.losses.append(f"{path} cannot be read: {error}")

    def _search_journal(self) -> None:
        """Search all journal files for the messages whose index entries are lost."""
        snapshot = self.snapshot
        replay = JournalReplay(snapshot.store_id, None, SEGMENT_ENTRIES)
        for number in journal_numbers(snapshot.files)[0]:
            # In a file of another store no record is valid.
            replay.feed_file(number, read_whole(snapshot.files, journal_path(number)))
        for queue_id, lost in self.lost.items():
            recovered = replay.queues.get(queue_id)
            for position in recovered.in_order() if recovered is not None else []:
                content = position.content_ref
                if not contains(lost, position.seq) or (content is not None and content.transient):
                    continue
                if content is None or self.counts.add(content.id):
                    self.found_again.setdefault(queue_id, {})[position.seq] = position

    def _search_logs(self) -> None:
        """Search the files that have left the journal for what the journal does not have."""
        logs = self.snapshot.logs

        def is_wanted(queue_id: int, seq: int) -> bool:
            lost = self.lost.get(queue_id)
            return (
                lost is not None
                and contains(lost, seq)
                and seq not in self.found_again.get(queue_id, {})
            )

        for position in logs.search(logs.retained(), is_wanted):
            self.found_again.setdefault(position.ledger.queue_id, {})[position.seq] = position

    def _search_unknown(self) -> None:
        """Find the messages of queues without segments: nothing but journal files name them."""
        snapshot = self.snapshot
        numbers = snapshot.logs.retained()
        with_segments = {
            queue.ledger.queue_id for queue in self.queues if self.snapshot.segments(queue)
        }
        known = {queue.ledger.queue_id: queue for queue in self.queues}
        acked: dict[int, Runs] = {}
        for number in [*numbers, *(file.number for file in snapshot.replay.files)]:
            for queue_id, runs in snapshot.logs.acks(number):
                if queue_id not in with_segments:
                    acked[queue_id] = merge_runs(acked.get(queue_id, []) + runs)

        def is_wanted(queue_id: int, seq: int) -> bool:
            queue = known.get(queue_id)
            return (
                queue_id not in with_segments
                and not (queue is not None and seq in queue.positions)
                and not contains(acked.get(queue_id, []), seq)
                and not is_deleted_queue(self.definitions, self.vhost, queue_id)
            )

        for position in snapshot.logs.search(numbers, is_wanted):
            queue_id = int(position.ledger.queue_id)
            if queue_id not in known:
                known[queue_id] = RecoveredQueue(queue_id)
                self.queues.append(known[queue_id])
            self.found_again.setdefault(queue_id, {})[position.seq] = position

    # -- contents ----------------------------------------------------------------------------------

    def _copy_contents(self, index: int, file: ContentFile, builder: StoreBuilder) -> None:
        scan = self.snapshot.content_scan(file)
        counts = self.counts.of_file(index)
        moved = self.moved[index]
        before = 0
        while scan.advance():
            self.on_bytes(scan.offset + scan.length - before)
            before = scan.offset + scan.length
            place = file.place_of(scan.content_id) if scan.is_valid else -1
            if place < 0 or moved.ids[place]:
                continue
            live = counts[place]
            if live == 0 and (not self.lost or file.released_at(place) == GONE):
                continue
            record = scan.record()
            stored = decode_content(record, RECORD_HEADER_BYTES, len(record))
            if stored is None:
                continue
            positions = _named_positions(record, stored)
            again = [position for position in positions if self._is_lost(position)]
            if live + len(again) == 0:
                continue
            live = min(live + len(again), len(positions))
            content = builder.add_content(stored.message, positions, live)
            moved.set(place, content, stored.message.timestamp_ms)
            for position in again:
                position.content_ref = ContentRef(scan.content_id, 0, 0, 0, 1, False)
                position.message = ABSENT
                self.found_again.setdefault(position.ledger.queue_id, {})[position.seq] = position

    def _is_lost(self, position: Position) -> bool:
        queue_id = position.ledger.queue_id
        if position.seq in self.found_again.get(queue_id, {}):
            return False
        lost = self.lost.get(queue_id)
        return lost is not None and contains(lost, position.seq)

    # -- queues ------------------------------------------------------------------------------------

    def _copy_queue(self, queue: RecoveredQueue, builder: StoreBuilder) -> None:
        queue_id = int(queue.ledger.queue_id)
        expected = len(queue.positions)
        for segment in self.snapshot.segments(queue):
            expected += segment.live_persistent
        name = self.names.get(queue_id)
        again = self.found_again.get(queue_id, {})
        if name is None and expected == 0 and not again:
            # Nothing is left of the queue: take it for deleted.
            return
        is_made = name is None
        if name is None:
            name = b"salvaged-%d" % queue_id
            self.result.made_queues.append(MadeQueue(self.definition.name, queue_id, name))
        vhost_name = self.definition.name.decode("utf-8", "replace")
        row = SalvagedQueue(vhost_name, queue_id, name.decode("utf-8", "replace"))
        builder.start_queue(queue_id)
        waiting = sorted(again, reverse=True)
        for position in self._live_positions(queue):
            while waiting and waiting[-1] < position.seq:
                self._copy_again(again[waiting.pop()], row, builder)
            self._copy(position, row, builder)
            self.on_bytes(position.content_bytes if position.has_content else 0)
        while waiting:
            self._copy_again(again[waiting.pop()], row, builder)
        builder.end_queue(queue.ledger.next_seq, queue.ledger)
        row.lost = max(expected - row.messages, 0)
        row.found_again = len(again)
        for first, last in self.lost.get(queue_id, []):
            row.missing += [
                (int(a), int(b)) for a, b in subtract(first, last, runs_of(sorted(again)))
            ]
        if row.lost:
            self.result.losses.append(
                f"vhost '{vhost_name}', queue '{row.name}': {row.lost} messages"
            )
        self.result.queues.append(row)
        if is_made:
            self.result.notes.append(
                f"queue id {queue_id}, whose definition is lost, is called '{row.name}'"
            )

    def _copy_lost_queues(self, builder: StoreBuilder) -> None:
        made = self.result.made_queues
        taken = {*self.names.values(), *(queue.name for queue in made)}
        lost_queues = find_lost_queues(
            self.snapshot.files,
            self.snapshot.store_id,
            self.snapshot.store.settings.segment_entries,
        )
        known = [*self.snapshot.replay.queues, *(queue.queue_id for queue in lost_queues)]
        next_id = max([self.next_queue_id, *(queue_id + 1 for queue_id in known)])
        vhost_name = self.definition.name.decode("utf-8", "replace")
        for queue_id, queue in enumerate(lost_queues, next_id):
            name = base = b"salvaged-%d" % queue.queue_id
            number = 1
            while name in taken:
                number += 1
                name = b"%s-%d" % (base, number)
            taken.add(name)
            row = SalvagedQueue(vhost_name, queue_id, name.decode())
            builder.start_queue(queue_id)
            next_seq = 1
            for position, message in queue.positions():
                next_seq = position.seq + 1
                if message is None:
                    row.lost += 1
                    continue
                builder.add(position, message, None)
                row.messages += 1
            builder.end_queue(next_seq)
            row.found_again = row.messages
            made.append(MadeQueue(self.definition.name, queue_id, name))
            self.result.queues.append(row)
            self.result.notes.append(
                f"vhost '{vhost_name}': what lost+found has of queue id {queue.queue_id}, {row.messages} messages, is called "
                f"'{row.name}'; acked ones may be among them"
            )
            if row.lost:
                self.result.losses.append(
                    f"vhost '{vhost_name}', queue '{row.name}': {row.lost} messages"
                )

    def _live_positions(self, queue: RecoveredQueue) -> Iterator[Position]:
        """All positions of a queue that a start finds, in order."""
        for segment in self.snapshot.segments(queue):
            if segment.live_persistent > 0:
                yield from self.snapshot.logs.filled(self._positions(queue, segment))
        yield from queue.in_order()

    def _copy_again(self, position: Position, row: SalvagedQueue, builder: StoreBuilder) -> None:
        """Copy a position that was found without its index entry."""
        if not is_referred(position):
            self._copy(position, row, builder)
            return
        self.snapshot.logs.fill([position])
        self._copy(position, row, builder)
        # Keep no contents in memory.
        position.message = ABSENT
        position.has_content = False

    def _copy(self, position: Position, row: SalvagedQueue, builder: StoreBuilder) -> None:
        content = position.content_ref
        if content is None and not position.has_content:
            # The record in the journal file is damaged, or the file is missing.
            return
        if content is None:
            builder.add(position, position.message, None)
        else:
            index = index_of(self.snapshot.content_files, content.id)
            place = self.snapshot.content_files[index].place_of(content.id) if index >= 0 else -1
            if place < 0 or not self.moved[index].ids[place]:
                return
            moved, timestamp_ms = self.moved[index].get(place)
            builder.add(position, Message(b"\x00\x00", b"\x00\x00", b"", True, timestamp_ms), moved)
        row.messages += 1


class _Moved:
    """Places of one old file's contents in the new store. An id of 0: the content is not there.

    Takes 42 bytes a content.
    """

    def __init__(self, file: ContentFile) -> None:
        self.ids = array("Q", bytes(8 * file.count))
        self._files = array("L", bytes(8 * file.count))
        self._offsets = array("L", bytes(8 * file.count))
        self._sizes = array("L", bytes(8 * file.count))
        self._references = array("H", bytes(2 * file.count))
        self._timestamps = array("Q", bytes(8 * file.count))

    def set(self, place: int, content: ContentRef, timestamp_ms: int) -> None:
        """Note the new place of the content at `place`."""
        self.ids[place] = content.id
        self._files[place] = content.file
        self._offsets[place] = content.offset
        self._sizes[place] = content.stored_bytes
        self._references[place] = content.references
        self._timestamps[place] = max(timestamp_ms, 0)

    def get(self, place: int) -> tuple[ContentRef, int]:
        """The new place of the content at `place`, and when its message was published (ms)."""
        content = ContentRef(
            self.ids[place],
            self._files[place],
            self._offsets[place],
            self._sizes[place],
            self._references[place],
            False,
        )
        return content, self._timestamps[place]


def _named_positions(record: bytes, stored: StoredContent) -> list[Position]:
    """The positions that shared a content from the start; its record names them."""
    positions: list[Position] = []
    at: int = stored.positions_start
    for _ in range(stored.references):
        position = Position(
            stored.message,
            QueueLedger(read_u32(record, at)),
            read_u64(record, at + 4),
            read_u64(record, at + 12),
        )
        flags = record[at + 20]
        position.redelivered = (flags & FLAG_REDELIVERED) != 0
        position.persistent = (flags & FLAG_TRANSIENT) == 0
        positions.append(position)
        at += POSITION_BYTES
    return positions
