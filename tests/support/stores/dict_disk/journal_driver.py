"""Drives a journal on a DictDisk by hand, with an oracle that knows what a crash may lose.

The disk keeps synced bytes. A crash or a failed write keeps any first part of the batch in flight.
The oracle knows messages by a number in their body, so it depends neither on seq ids nor on
anything that the journal keeps in memory:

    must    confirmed and not settled: there after any crash, byte for byte
    gone    settled (or failed) in a durable batch: never there again
    others  may be there or not; so may messages that have moved to an index (`retire`), which is
            not simulated here
"""

from dataclasses import dataclass

from tests.support.stores.dict_disk.disk import DictDisk
from tests.support.stores.made_files import STORE_ID, message_of, numbered_body
from warrenmq.store.contents.store import ContentStore
from warrenmq.store.journal.batch import Batch
from warrenmq.store.journal.journal import Journal
from warrenmq.store.journal.window import files_to_retire
from warrenmq.store.model.message import (
    INDEXED,
    NOT_JOURNALED,
    WRITTEN,
    Message,
    Position,
    QueueLedger,
)
from warrenmq.store.records.record import FILE_HEADER_BYTES
from warrenmq.store.recovery import JournalReplay

SEGMENT_ENTRIES = 16384


def new_journal(file_size_limit: int) -> Journal:
    """A journal that embeds all contents."""
    return Journal(
        STORE_ID, file_size_limit, 1 << 40, ContentStore(STORE_ID, "msg_store_persistent", False)
    )


# (queue id, number of the message): one message in one queue.
Key = tuple[int, int]
Content = tuple[bytes, bytes, bytes, bool, int, int]


def number_of(body: bytes) -> int:
    """The number that a body made by `JournalDriver` starts with."""
    return int.from_bytes(body[:4], "big")


def content_of(position: Position) -> Content:
    """Every part of a message that must survive."""
    message = position.message
    return (
        message.address,
        message.properties,
        message.body,
        message.persistent,
        message.timestamp_ms,
        position.expiry_ms,
    )


def replayed(files: dict[int, bytes]) -> JournalReplay:
    """The recovery of these journal files."""
    replay = JournalReplay(STORE_ID, None, SEGMENT_ENTRIES)
    for number in sorted(files):
        replay.feed_file(number, files[number])
    replay.finish()
    return replay


def state_of(replay: JournalReplay) -> dict[int, tuple[int, list[tuple[int, Content]]]]:
    """Recovered queues as plain values, for comparison."""
    return {
        queue_id: (
            queue.ledger.next_seq,
            [(place.seq, content_of(place)) for place in queue.in_order()],
        )
        for queue_id, queue in replay.queues.items()
    }


@dataclass
class InFlight:
    """A sealed batch, with the oracle's published and settled messages in it."""

    batch: Batch
    published: list[Key]
    dying: list[Key]


class JournalDriver:
    """Acts as the queues of a vhost: publishes, settles, commits, retires files, and crashes."""

    def __init__(self, file_size_limit: int, queue_ids: tuple[int, ...] = (1, 2, 3)) -> None:
        self.file_size_limit = file_size_limit
        self.queue_ids = queue_ids
        self.content: dict[Key, Content] = {}
        self.must: set[Key] = set()
        self.gone: set[Key] = set()
        self.last_number = 0
        self.now_ms = 1_000
        self.start({})

    def start(self, files: dict[int, bytes]) -> None:
        """Recover from `files` and continue with the recovered journal."""
        self.files = DictDisk(files)
        replay = replayed(files)
        self.journal = new_journal(self.file_size_limit)
        self.journal.adopt(replay.files, 1)
        self.logs: dict[int, QueueLedger] = {}
        self.live: dict[Key, Position] = {}
        for queue_id in self.queue_ids:
            found = replay.queues.get(queue_id)
            ledger = found.ledger if found is not None else QueueLedger(queue_id)
            ledger.is_durable = True
            self.logs[queue_id] = ledger
            self.journal.ledgers[queue_id] = ledger
            for position in found.in_order() if found is not None else []:
                self.live[queue_id, number_of(position.message.body)] = position
        self.gathered: list[Key] = []
        self.dying: list[Key] = []
        self.in_flight: InFlight | None = None

    # -- what queues do ----------------------------------------------------------------------------

    def publish(self, size: int, queue_ids: list[int], expiry_ms: int = 0) -> list[Key]:
        """Publish a message of at least `size` bytes to these queues; returns its keys."""
        self.last_number += 1
        number = self.last_number
        self.now_ms += 1
        published = message_of(numbered_body(number, size), self.now_ms)
        keys = []
        for queue_id in queue_ids:
            ledger = self.logs[queue_id]
            position = Position(published, ledger, ledger.next_seq, expiry_ms)
            ledger.next_seq += 1
            self.journal.append(position, self.now_ms)
            key = (queue_id, number)
            self.live[key] = position
            self.content[key] = content_of(position)
            self.gathered.append(key)
            keys.append(key)
        return keys

    def settle(self, key: Key) -> None:
        """Ack one message."""
        self.journal.settle(self.live.pop(key), self.now_ms)
        self.must.discard(key)
        self.dying.append(key)

    def journal_again(self) -> None:
        """Journal every message whose batch failed once more, as a reader group does."""
        for key, position in self.live.items():
            if position.journal_state == NOT_JOURNALED:
                old = position.message
                position.message = Message(
                    old.address, old.properties, old.body, old.persistent, old.timestamp_ms
                )
                self.journal.append(position, self.now_ms)
                self.gathered.append(key)
                self.gone.discard(key)
                self.dying = [other for other in self.dying if other != key]
                if self.in_flight is not None:
                    self.in_flight.dying = [other for other in self.in_flight.dying if other != key]

    def retire(self, is_forced: bool = False) -> None:
        """Retire the oldest files, as a checkpoint does; `is_forced`: one file even without need.

        Live messages in these files move to an index, and the journal has no part in them any more.
        """
        files = files_to_retire(self.journal, 0, False)
        if is_forced and not files and len(self.journal.files) > 1:
            files = [self.journal.files[0]]
        for key, position in list(self.live.items()):
            if position.message.file in files and position.journal_state == WRITTEN:
                self.journal.on_indexed(position)
                position.journal_state = INDEXED
                del self.live[key]
                self.must.discard(key)
        for file in self.journal.forget_files(self.journal.first_needed_file()):
            self.files.pop(int(file.number), None)

    # -- commits -----------------------------------------------------------------------------------

    def seal(self) -> None:
        """Begin a group commit."""
        assert self.in_flight is None
        self.now_ms += 1
        published = [key for key in self.gathered if key in self.live]
        self.in_flight = InFlight(self.journal.seal(), published, self.dying)
        self.gathered = []
        self.dying = []

    def succeed(self) -> None:
        """Let the whole batch in flight reach the disk."""
        assert self.in_flight is not None
        self.files = self.after(self.in_flight.batch)
        self.land(True)

    def fail(self, kept: float) -> None:
        """Fail the batch in flight; `kept` (0 to 1) of its bytes reach the disk all the same."""
        assert self.in_flight is not None
        batch = self.in_flight.batch
        batch.found.created_file = batch.starts_file
        self.files = self.after(batch, kept)
        self.land(False)

    def land(self, ok: bool) -> None:
        """End the batch in flight for journal and oracle; the caller has written `files`."""
        flight = self.in_flight
        assert flight is not None
        self.in_flight = None
        self.journal.on_done(flight.batch, ok, self.now_ms)
        if ok:
            self.must.update(key for key in flight.published if key in self.live)
            self.gone.update(flight.dying)
        else:
            # A failed publish, or a part of it on disk, must not return once the next batch is
            # durable.
            self.dying += flight.published + flight.dying

    def commit(self) -> None:
        """Run a whole group commit."""
        self.seal()
        self.succeed()

    def settle_down(self) -> None:
        """Commit until nothing is left to do."""
        if self.in_flight is not None:
            self.succeed()
        while self.journal.has_pending():
            self.commit()
        # The next batch deletes an abandoned file, whatever else is in the batch.
        self.commit()
        self.retire()

    # -- the disk ----------------------------------------------------------------------------------

    def after(self, batch: Batch, kept: float = 2.0, junk: bytes = b"") -> DictDisk[int]:
        """The files after `kept` (0 to 1) of the batch's bytes and `junk`; above 1: after all."""
        files = DictDisk(self.files)
        written = b"".join(batch.parts)
        if written:
            cut = written[: int(len(written) * min(kept, 1.0))] + junk
            number = int(batch.file_number)
            files.write([(number, 0 if batch.starts_file else len(files[number]), cut)])
        if kept > 1.0:
            for number in batch.delete_files:
                files.pop(int(number), None)
        return files

    def crash(self, kept: float = 0.0, junk: bytes = b"") -> None:
        """Crash with `kept` (0 to 1) of the batch in flight on disk, start again, and compare."""
        files = (
            self.files if self.in_flight is None else self.after(self.in_flight.batch, kept, junk)
        )
        # The store's shell puts files without a whole header aside.
        whole = {number: data for number, data in files.items() if len(data) >= FILE_HEADER_BYTES}
        self.check_recovery(whole)
        self.start(whole)
        self.must = set(self.live)
        self.gone.update(key for key in self.content if key not in self.live)

    def check_recovery(self, files: dict[int, bytes]) -> None:
        """Assert that the recovery of `files` is one that the oracle allows."""
        replay = replayed(files)
        found: dict[Key, Content] = {}
        for queue_id, queue in replay.queues.items():
            numbers = []
            for position in queue.in_order():
                numbers.append(number_of(position.message.body))
                found[queue_id, numbers[-1]] = content_of(position)
            assert numbers == sorted(numbers), "order lost"
        for key, content in found.items():
            assert content == self.content[key], f"{key} is damaged"
        missing = self.must - found.keys()
        assert not missing, f"confirmed and lost: {sorted(missing)}"
        risen = self.gone & found.keys()
        assert not risen, f"settled for good and back: {sorted(risen)}"
        assert state_of(replay) == state_of(replayed(files)), "a second replay differs"

    def check_accounts(self) -> None:
        """Assert, at rest, that the journal knows the files on disk and the live bytes in each."""
        assert [file.number for file in self.journal.files] == sorted(self.files)
        live: dict[int, int] = {int(file.number): 0 for file in self.journal.files}
        for message in {id(place.message): place.message for place in self.live.values()}.values():
            file = message.file
            if file is not None:
                live[int(file.number)] += int(message.stored_bytes)
        assert {int(file.number): int(file.live_bytes) for file in self.journal.files} == live
        for position in self.live.values():
            if position.journal_state == WRITTEN:
                refs = [place for place in self.live.values() if place.message is position.message]
                assert position.message.journal_refs == len(refs)
