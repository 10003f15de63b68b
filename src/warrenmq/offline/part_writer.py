"""Writes one part of a new store (`store_plan.py`) to its own directory in the unfinished store.

The directory of a part is a small store with a checkpoint. Several attempts at one part may be
under way at once: each has its own directory, and `StoreWriter.finish` takes the files of the
attempt whose manifest it gets.
"""

import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from warrenmq.offline.data_directory import VHOSTS_PATH, ToolError
from warrenmq.offline.store_builder import JOURNAL_FILE_BYTES, StoreBuilder
from warrenmq.offline.store_plan import Part, PartManifest, StorePlan, WriterSettings
from warrenmq.store.disk.files import known_store_id, make_directories, put_whole
from warrenmq.store.disk.local_file_system import LocalFileSystem
from warrenmq.store.model.message import ContentRef, Message, Position, QueueLedger
from warrenmq.store.records.content import REFERENCES_MAX
from warrenmq.store.settings import StoreSettings

PLAN_NAME: Final = "plan.json"
DATA_NAME: Final = "data"
PARTS_NAME: Final = "parts"
MANIFEST_NAME: Final = "manifest.json"


@dataclass(slots=True)
class MessageRow:
    """One message to write. Times in ms since 1970, 0 = never; a `seq` of 0 means the next seq id.

    `properties` is the AMQP 0-9-1 property block from the flag word on.
    """

    exchange: bytes
    routing_key: bytes
    properties: bytes
    body: bytes
    enqueued_ms: int
    expires_ms: int = 0
    redelivered: bool = False
    persistent: bool = True
    seq: int = 0


@dataclass(slots=True)
class MessageColumns:
    """Messages as columns of equal length, like MessageRow; `addresses` come from `address_of`."""

    seqs: list[int]
    addresses: list[bytes]
    properties: list[bytes]
    bodies: list[bytes]
    enqueued_ms: list[int]
    expires_ms: list[int]
    redelivered: list[bool]
    persistent: list[bool]


class Sharer(msgspec.Struct, frozen=True):
    """One position of a message whose content is shared."""

    queue_id: int
    seq: int
    expires_ms: int = 0
    redelivered: bool = False


class SharedContent(msgspec.Struct, frozen=True):
    """The place of a shared content, for the writers of the queues that have it. Sizes in bytes."""

    id: int
    file: int
    offset: int
    stored_bytes: int
    references: int
    body_bytes: int
    message_bytes: int
    enqueued_ms: int
    persistent: bool


def address_of(exchange: bytes, routing_key: bytes) -> bytes:
    """A message's address: both names as short strings. ValueError when one exceeds 255 bytes."""
    return bytes((len(exchange),)) + exchange + bytes((len(routing_key),)) + routing_key


class PartWriter:
    """Writes `part` of the unfinished store in `work`; not for several threads.

    As a context manager it removes its files when an error ends the block. A disk error raises
    ToolError or OSError, a message that has no place in the part raises ValueError.
    """

    def __init__(self, work: Path, part: Part) -> None:
        self.part = part
        settings = read_plan(work).settings
        self._keep_transient = settings.keep_transient
        self._embed_below = settings.embed_below
        vhost = LocalFileSystem(work / DATA_NAME / VHOSTS_PATH / str(part.vhost_id))
        try:
            store_id, _ = known_store_id(vhost)
        finally:
            vhost.release()
        self._directory = f"{part.name}-{secrets.token_hex(4)}"
        self._path = work / PARTS_NAME / self._directory
        make_directories(self._path)
        self._files = LocalFileSystem(self._path)
        self._builder = StoreBuilder(self._files, store_settings(settings), store_id)
        self._builder.number_contents(part.first_content_id, part.number, part.count)
        self._ledger = (
            self._builder.start_queue(part.queue_id, part.first_seq)
            if part.queue_id
            else QueueLedger(0)
        )
        self._ledgers: dict[int, QueueLedger] = {}
        self._next_seq = part.first_seq
        self._messages = 0
        self._message_bytes = 0
        self._skipped = 0
        self._shared_references = self._shared_id_sum = 0
        self._used_references = self._used_id_sum = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.abandon()

    # -- messages ----------------------------------------------------------------------------------

    def add(self, row: MessageRow) -> int:
        """Write the queue's next message; returns its seq id, or 0 for a transient one left out."""
        seq = row.seq or self._next_seq
        return self._put(
            seq,
            address_of(row.exchange, row.routing_key),
            row.properties,
            row.body,
            row.enqueued_ms,
            row.expires_ms,
            row.redelivered,
            row.persistent,
        )

    def add_columns(self, columns: MessageColumns) -> None:
        """Write the queue's next messages."""
        for values in zip(
            columns.seqs,
            columns.addresses,
            columns.properties,
            columns.bodies,
            columns.enqueued_ms,
            columns.expires_ms,
            columns.redelivered,
            columns.persistent,
            strict=True,
        ):
            seq, *_ = values
            if seq:
                self._put(*values)
            else:
                self._put(self._next_seq, *values[1:])

    def _put(
        self,
        seq: int,
        address: bytes,
        properties: bytes,
        body: bytes,
        enqueued_ms: int,
        expires_ms: int,
        redelivered: bool,
        persistent: bool,
    ) -> int:
        if not persistent and not self._keep_transient:
            self._skipped += 1
            return 0
        self._must_fit(seq)
        message = Message(address, properties, body, persistent, enqueued_ms)
        position = Position(message, self._ledger, seq, expires_ms)
        position.persistent = True
        position.redelivered = redelivered
        size = position.content_bytes
        if size >= self._embed_below:
            self._must_have_ids()
            position.content_ref = self._builder.add_content(message, [position], 1)
        self._builder.append(position)
        self._next_seq = seq + 1
        self._messages += 1
        self._message_bytes += size
        return seq

    def add_shared(self, content: SharedContent, sharer: Sharer) -> None:
        """Write the queue's next message, whose content is in another part."""
        if sharer.queue_id != self.part.queue_id:
            raise ValueError(
                f"a message of queue id {sharer.queue_id} in the part of {self.part.queue_id}"
            )
        self._must_fit(sharer.seq)
        message = Message(b"\x00\x00", b"\x00\x00", b"", content.persistent, content.enqueued_ms)
        position = Position(message, self._ledger, sharer.seq, sharer.expires_ms)
        position.persistent = True
        position.redelivered = sharer.redelivered
        position.content_ref = ContentRef(
            content.id,
            content.file,
            content.offset,
            content.stored_bytes,
            content.references,
            False,
        )
        position.has_content = False
        position.body_bytes = content.body_bytes
        self._builder.append(position)
        self._next_seq = sharer.seq + 1
        self._messages += 1
        self._message_bytes += content.message_bytes
        self._used_references += 1
        self._used_id_sum += content.id

    def share(self, row: MessageRow, sharers: list[Sharer]) -> SharedContent:
        """Store the content of `row` once for several queues; other fields of `row` do not count.

        Each of the sharers then needs an `add_shared` in its part.
        """
        if self.part.queue_id:
            raise ValueError("shared contents need a part for them")
        if not 0 < len(sharers) <= REFERENCES_MAX:
            raise ValueError(
                f"{len(sharers)} messages cannot share a content; 1 to {REFERENCES_MAX} can"
            )
        self._must_have_ids()
        message = Message(
            address_of(row.exchange, row.routing_key),
            row.properties,
            row.body,
            row.persistent,
            row.enqueued_ms,
        )
        positions: list[Position] = []
        for sharer in sharers:
            ledger = self._ledgers.get(sharer.queue_id)
            if ledger is None:
                ledger = self._ledgers[sharer.queue_id] = QueueLedger(sharer.queue_id)
            position = Position(message, ledger, sharer.seq, sharer.expires_ms)
            position.persistent = True
            position.redelivered = sharer.redelivered
            positions.append(position)
        content = self._builder.add_content(message, positions, len(positions))
        self._shared_references += content.references
        self._shared_id_sum += content.references * content.id
        return SharedContent(
            content.id,
            content.file,
            content.offset,
            content.stored_bytes,
            content.references,
            len(row.body),
            message.content_bytes,
            row.enqueued_ms,
            row.persistent,
        )

    def _must_fit(self, seq: int) -> None:
        if seq < self._next_seq or seq >= self.part.end_seq:
            raise ValueError(
                f"seq id {seq} of queue id {self.part.queue_id}; "
                f"from {self._next_seq} up to {self.part.end_seq - 1} may follow here"
            )

    def _must_have_ids(self) -> None:
        if self._builder.next_content_id >= self.part.end_content_id:
            raise ValueError(f"part {self.part.name} was planned with fewer contents")

    # -- the end -----------------------------------------------------------------------------------

    def finish(self) -> PartManifest:
        """Make the part durable; returns its manifest, for `StoreWriter.finish`.

        The manifest is also written to the part's directory.
        """
        part = self.part
        if part.queue_id:
            self._builder.end_queue(self._next_seq)
        contents = self._builder.next_content_id - part.first_content_id
        self._builder.finish()
        manifest = PartManifest(
            part=part,
            directory=self._directory,
            messages=self._messages,
            message_bytes=self._message_bytes,
            skipped_transient=self._skipped,
            next_seq=self._next_seq if self._messages else 0,
            contents=contents,
            shared_references=self._shared_references,
            shared_id_sum=self._shared_id_sum,
            used_references=self._used_references,
            used_id_sum=self._used_id_sum,
        )
        put_whole(self._files, MANIFEST_NAME, msgspec.json.encode(manifest))
        self._files.release()
        return manifest

    def abandon(self) -> None:
        """Remove this attempt's files; `StoreWriter.finish` removes those of a killed writer."""
        self._files.release()
        shutil.rmtree(self._path, ignore_errors=True)


def read_plan(work: Path) -> StorePlan:
    """The plan of the unfinished store in `work`. Raises ToolError."""
    try:
        return msgspec.json.decode((work / PLAN_NAME).read_bytes(), type=StorePlan)
    except (OSError, msgspec.MsgspecError) as error:
        raise ToolError(f"{work} is no unfinished store: {error}") from None


def store_settings(settings: WriterSettings) -> StoreSettings:
    """The writer's settings as the settings of a store."""
    return StoreSettings(
        JOURNAL_FILE_BYTES,
        settings.content_file_size_limit,
        settings.embed_below,
        settings.segment_entries,
    )
