"""Drives a content store on a DictDisk by hand, beside a naive model of its content.

The journal and the checkpoint belong to other modules. Here they are lists of what the content
store may rely on: the journal lists added contents and released references, in batches that are
durable as a whole or not at all; the contents of a batch are written before its journal entry.
"""

from dataclasses import dataclass, field

from tests.support.stores.dict_disk.disk import DictDisk
from tests.support.stores.made_files import STORE_ID, message_of, numbered_body
from warrenmq.store.contents.recovery import ContentRecovery
from warrenmq.store.contents.scan import Copied, Source, compact_contents, find_contents
from warrenmq.store.contents.store import ContentStore, ContentWrite
from warrenmq.store.jobs.job import CompactContents
from warrenmq.store.model.message import ContentRef, Message, Position, QueueLedger
from warrenmq.store.records.content import decode_content
from warrenmq.store.records.record import (
    CONTENT_MAGIC,
    RECORD_HEADER_BYTES,
    crc_seed,
    file_header_is_valid,
    file_header_number,
)

DIRECTORY = "msg_store_persistent"


def number_of(path: str) -> int:
    """The number in the path of a content file."""
    return int(path.removeprefix(f"{DIRECTORY}/").removesuffix(".rdq"))


def source_of(path: str, data: bytes) -> Source:
    """A file as `content_scan` reads it: read function, size in bytes, CRC seed."""
    return (
        (lambda offset, size: data[offset : offset + size]),
        len(data),
        crc_seed(STORE_ID, number_of(path)),
    )


def positions_of(shared: Message, count: int) -> list[Position]:
    """Positions of one message in queues 1 to `count`."""
    return [Position(shared, QueueLedger(queue), 7, 0) for queue in range(1, count + 1)]


@dataclass
class Batch:
    """Contents and releases that become durable together."""

    writes: list[ContentWrite] = field(default_factory=list)
    added: list[ContentRef] = field(default_factory=list)
    released: list[ContentRef] = field(default_factory=list)


@dataclass
class Checkpoint:
    rows: list[bytes] = field(default_factory=list)
    next_id: int = 1
    next_file_number: int = 0
    # Number of journal batches that the checkpoint covers.
    batches: int = 0


class ContentDriver:
    """Runs a content store through commits, compactions, checkpoints and crashes."""

    def __init__(self, file_size_limit: int) -> None:
        self.file_size_limit = file_size_limit
        self.disk = DictDisk[str]()
        self.journal: list[Batch] = []
        self.checkpoint = Checkpoint()
        # Body of every content ever added, by content id.
        self.bodies: dict[int, bytes] = {}
        # Place of every content ever added, by content id.
        self.refs: dict[int, ContentRef] = {}
        # Remaining references of each live content, by content id.
        self.live: dict[int, int] = {}
        # Contents whose record has a flipped bit.
        self.damaged: set[int] = set()
        # Live damaged contents that a compaction has left out.
        self.lost: set[int] = set()
        self.last_body = 0
        self.start_empty()

    def start_empty(self) -> None:
        self.store = ContentStore(STORE_ID, DIRECTORY, False, self.file_size_limit)
        self.gathered = Batch()
        self.in_flight: Batch | None = None
        self.job: CompactContents | None = None
        # Files that a failed batch has begun: the flusher does not continue them.
        self.broken: set[str] = set()

    # -- what queues do ----------------------------------------------------------------------------

    def publish(self, size: int, references: int = 1) -> int:
        """Add a content of at least `size` bytes; returns its id."""
        self.last_body += 1
        body = numbered_body(self.last_body, size)
        published = message_of(body)
        content = self.store.add(published, positions_of(published, references), 0, references)
        assert published.content_ref is content
        content_id = int(content.id)
        assert content_id not in self.bodies or content_id not in self.live
        self.bodies[content_id] = body
        self.refs[content_id] = content
        self.live[content_id] = references
        self.damaged.discard(content_id)
        self.gathered.added.append(content)
        return content_id

    def settle(self, content_id: int) -> None:
        """Release one reference."""
        content = self.refs[content_id]
        self.gathered.released.append(content)
        self.store.release(content.id, content.references, content.stored_bytes)
        self.live[content_id] -= 1
        if self.live[content_id] == 0:
            del self.live[content_id]
            self.lost.discard(content_id)

    # -- commits -----------------------------------------------------------------------------------

    def seal(self) -> None:
        assert self.in_flight is None
        self.in_flight = self.gathered
        self.in_flight.writes = self.store.take_writes()
        self.gathered = Batch()

    def succeed(self) -> None:
        batch = self.landed()
        if not self.is_writable(batch):
            self.in_flight = batch
            self.fail(0.0)
            return
        self.write(batch, 1.0)
        self.journal.append(batch)
        self.store.on_written(batch.writes, True)

    def fail(self, kept: float) -> None:
        """Fail the batch in flight; `kept` (0 to 1) of its bytes reach the disk all the same."""
        batch = self.landed()
        self.write(batch, kept)
        self.broken |= {write.path for write in batch.writes if write.is_new}
        self.store.on_written(batch.writes, False)
        for content in batch.added:
            self.live.pop(int(content.id), None)
        # A failed batch does not lose its releases: they go with the next batch.
        self.gathered.released = batch.released + self.gathered.released

    def commit(self) -> None:
        self.seal()
        self.succeed()

    def commit_all(self) -> None:
        """Commit until nothing is gathered; a commit may fail because the one before it did."""
        self.commit()
        while self.gathered.added or self.gathered.released:
            self.commit()

    def landed(self) -> Batch:
        batch = self.in_flight
        assert batch is not None
        self.in_flight = None
        return batch

    def is_writable(self, batch: Batch) -> bool:
        """False when the batch continues a file that the batch before it has failed to begin."""
        return all(write.is_new or write.path not in self.broken for write in batch.writes)

    def write(self, batch: Batch, kept: float) -> None:
        writes = [(write.path, int(write.offset), b"".join(write.parts)) for write in batch.writes]
        self.disk.write(writes, kept)

    # -- compaction --------------------------------------------------------------------------------

    def start_compaction(self) -> bool:
        assert self.job is None
        self.job = self.store.pick_compaction()
        if self.job is not None and len(self.job.source_paths) > 1:
            valid = sum(
                int(self.refs[int(content_id)].stored_bytes) for content_id in self.job.live_ids
            )
            assert valid <= self.file_size_limit
        return self.job is not None

    def copy(self) -> tuple[bytes, list[Copied], list[int]]:
        """Run the copy of the compaction: bytes of the target, copied contents, damaged ids."""
        job = self.job
        assert job is not None
        written: list[bytes] = []
        sources = [source_of(path, self.disk[path]) for path in job.source_paths]
        copied, damaged = compact_contents(
            sources, job.live_ids, STORE_ID, job.target_number, lambda parts: written.extend(parts)
        )
        return b"".join(written), copied, [int(content_id) for content_id in damaged]

    def finish_compaction(self, ok: bool = True, kept: float = 1.0) -> None:
        """End the compaction; if not `ok`, it fails with `kept` (0 to 1) of the target on disk."""
        job = self.job
        assert job is not None
        data, copied, damaged = self.copy()
        self.job = None
        if ok:
            self.disk[job.target_path] = data
            job.copied, job.damaged = copied, [*damaged]
        else:
            self.disk[job.target_path] = data[: int(len(data) * kept)]
            job.error = OSError("no space")
        job.finished()
        found = {int(content_id) for content_id in self.store.take_damaged()}
        assert found <= self.damaged
        self.lost |= found & self.live.keys()

    def compact_all(self) -> int:
        """Compact until nothing can be gained; returns the number of compactions."""
        count = 0
        while self.start_compaction():
            self.finish_compaction()
            count += 1
            assert count < 10_000, "compaction never comes to rest"
        return count

    # -- checkpoint and crash ----------------------------------------------------------------------

    def take_checkpoint(self, deletes: bool = True) -> None:
        """Take a checkpoint with no batch gathered or in flight; `deletes`: drop dead files."""
        assert self.in_flight is None and not self.gathered.added and not self.gathered.released
        store = self.store
        self.checkpoint = Checkpoint(
            store.checkpoint_rows(),
            int(store.next_id),
            int(store.next_file_number),
            len(self.journal),
        )
        if deletes:
            for path in store.take_dead_paths():
                self.disk.pop(path, None)

    def damage(self, content_id: int, place: int) -> None:
        """Flip a bit in the record of a written content."""
        located = self.store.locate(content_id)
        assert located is not None
        path = located[0]
        found = find_contents(*source_of(path, self.disk[path]), [content_id])
        if content_id in found:
            offset, record = found[content_id]
            data = bytearray(self.disk[path])
            data[offset + place % len(record)] ^= 1 << place % 8
            self.disk[path] = bytes(data)
            self.damaged.add(content_id)

    def crash(
        self, kept: float = 0.0, journal_too: bool = False, copied: float = -1.0
    ) -> ContentRecovery:
        """Crash and start again.

        Of the batch in flight, `kept` (0 to 1) of the contents' bytes are on disk, and its journal
        entry if `journal_too`. Of the target of a compaction, `copied` (0 to 1) of the bytes are on
        disk; below 0 there is no target file.
        """
        if self.in_flight is not None:
            self.write(self.in_flight, kept)
            if journal_too and kept >= 1.0 and self.is_writable(self.in_flight):
                self.journal.append(self.in_flight)
        if self.job is not None and copied >= 0:
            data = self.copy()[0]
            self.disk[self.job.target_path] = data[: int(len(data) * copied)]
        for path, data in list(self.disk.items()):
            if not file_header_is_valid(data, CONTENT_MAGIC, STORE_ID) or file_header_number(
                data
            ) != number_of(path):
                # A store puts files without a valid header aside.
                del self.disk[path]
        return self.recover()

    def recover(self) -> ContentRecovery:
        """Start from the disk; returns the recovery."""
        self.start_empty()
        added: dict[int, ContentRef] = {}
        left: dict[int, int] = {}
        for batch in self.journal:
            for content in batch.added:
                added[int(content.id)] = content
                left[int(content.id)] = int(content.references)
            for content in batch.released:
                if int(content.id) in left:
                    left[int(content.id)] -= 1
        self.live = {content_id: count for content_id, count in left.items() if count > 0}
        recovery = ContentRecovery(self.store)
        checkpoint = self.checkpoint
        assert recovery.restore(checkpoint.rows, checkpoint.next_id, checkpoint.next_file_number)
        for path in self.disk:
            recovery.restore_file(number_of(path), len(self.disk[path]))
        for batch in self.journal[checkpoint.batches :]:
            for content in batch.released:
                recovery.release(content.id, content.references, content.stored_bytes)
        for batch in self.journal[checkpoint.batches :]:
            for content in batch.added:
                assert recovery.add_recovered(content, self.live.get(int(content.id), 0))
        recovery.finish()
        self.lost = {
            content_id for content_id in self.live if self.store.locate(content_id) is None
        }
        assert self.lost <= self.damaged
        assert recovery.unknown_releases == 0 or self.damaged
        return recovery

    # -- what must be true -------------------------------------------------------------------------

    def body_of(self, content_id: int) -> bytes | None:
        """The body of a content as a consumer would get it: read from the disk."""
        located = self.store.locate(content_id)
        if located is None:
            return None
        path, number = located
        assert number == number_of(path)
        found = find_contents(*source_of(path, self.disk[path]), [content_id])
        if content_id not in found:
            return None
        offset, record = found[content_id]
        content = self.refs[content_id]
        if self.store.is_current_location(content):
            assert offset == content.offset
        assert len(record) == content.stored_bytes
        stored = decode_content(record, RECORD_HEADER_BYTES, len(record))
        assert (
            stored is not None
            and stored.id == content_id
            and stored.references == content.references
        )
        return stored.message.body

    def check(self) -> None:
        """Assert that the store's accounts are right and every live written content is readable."""
        store = self.store
        store.check()
        there = self.live.keys() - self.lost
        assert store.valid_bytes == sum(
            int(self.refs[content_id].stored_bytes) for content_id in there
        )
        unwritten = {int(content.id) for content in self.gathered.added}
        if self.in_flight is not None:
            unwritten |= {int(content.id) for content in self.in_flight.added}
        for content_id in there - unwritten:
            body = self.body_of(content_id)
            if content_id in self.damaged:
                assert body is None
            else:
                assert body == self.bodies[content_id]
        for content_id in self.lost:
            assert store.locate(content_id) is None


def filled(driver: ContentDriver, files: int, size: int = 300) -> list[int]:
    """Fill `files` content files and begin one more; one commit per content. Returns the ids."""
    ids = []
    while driver.store.file_count <= files:
        ids.append(driver.publish(size))
        driver.commit()
    return ids


def thinned(driver: ContentDriver, ids: list[int], every: int) -> list[int]:
    """Settle all `ids` except every `every`-th; returns the remaining ids."""
    for place, content_id in enumerate(ids):
        if place % every:
            driver.settle(content_id)
    driver.commit()
    return ids[::every]


def paths_of(driver: ContentDriver) -> list[str]:
    return [file.path for file in driver.store.files]
