"""The readers of the files of a data directory.

Of single files, the checksums are right again in half of the inputs. Such records come from no
disk; they show what a reader does with bodies that the checksums keep from it otherwise.
"""

import random
import re
from typing import Final

import msgspec
from crc32c import crc32c

from simulator.simulated.file_system import SimulatedFileSystem
from tests.fuzz.campaign import Reader
from tests.fuzz.mutator import mutate
from tests.support.stores.dict_disk.journal_driver import replayed
from tests.support.stores.made_files import STORE_ID, put
from tests.support.stores.store_driver import (
    QUEUES,
    SETTINGS,
    CheckedStore,
    StoreDriver,
    close_drivers,
)
from warrenmq.store.contents.scan import scan_contents
from warrenmq.store.model.message import QueueLedger
from warrenmq.store.records.checkpoint import decode_checkpoint
from warrenmq.store.records.content import decode_content
from warrenmq.store.records.index import IndexScan
from warrenmq.store.records.record import (
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    RECORD_MAGIC,
    crc_seed,
)
from warrenmq.store.settings import StoreSettings

# Bodies of a `CheckedStore`.
_BODY: Final = re.compile(rb"\d+\.x*")
_MANY: Final = 1 << 40


def number_in(data: bytes | bytearray) -> int:
    """The number in the header of a file."""
    return int.from_bytes(data[28:36], "big")


def signed(data: bytes) -> bytes:
    """The file with right checksums in its header and in each record that can be found."""
    if len(data) < FILE_HEADER_BYTES:
        return data
    found = bytearray(data)
    found[12:28] = STORE_ID
    found[36:40] = crc32c(bytes(found[:36])).to_bytes(4, "big")
    seed = crc_seed(STORE_ID, number_in(found) & (1 << 63) - 1)
    at = FILE_HEADER_BYTES
    while at + RECORD_HEADER_BYTES <= len(found):
        end = at + RECORD_HEADER_BYTES + int.from_bytes(found[at + 4 : at + 8], "big")
        if found[at : at + 2] != RECORD_MAGIC.to_bytes(2, "big"):
            at = found.find(RECORD_MAGIC.to_bytes(2, "big"), at + 1)
            if at < 0:
                break
            continue
        if end > len(found):
            # The last record may have lost or gained bytes: its length follows.
            found[at + 4 : at + 8] = (len(found) - at - RECORD_HEADER_BYTES).to_bytes(4, "big")
            end = len(found)
        header = crc32c(bytes(found[at : at + 8]), seed)
        found[at + 8 : at + 12] = header.to_bytes(4, "big")
        body = crc32c(bytes(found[at + RECORD_HEADER_BYTES : end]), header)
        found[at + 12 : at + 16] = body.to_bytes(4, "big")
        at = end
    return bytes(found)


def mutate_file(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Damage a file; half of the time its checksums are right again."""
    damaged = mutate(rng, data, other)
    return signed(damaged) if rng.randrange(2) else damaged


def mutate_directory(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Damage one to three files of a directory as disks and file systems do, or lose some.

    Files of other directories are no damage: all have the same store id here, which no others have.
    """
    files = msgspec.msgpack.decode(data, type=dict[str, bytes])
    for _ in range(rng.choice((1, 1, 2, 3))):
        name = rng.choice(sorted(files))
        accident = rng.randrange(12)
        if accident == 0 and len(files) > 1:
            del files[name]
        elif accident == 1:
            files[name] = files[name][: rng.randrange(len(files[name]) + 1)]
        else:
            at = rng.randrange(len(files[name]) + 1)
            files[name] = _overwritten(rng, files[name], at)
    return msgspec.msgpack.encode(files)


def _overwritten(rng: random.Random, data: bytes, at: int) -> bytes:
    """`data` with noise, zeros or a flipped bit from `at` on.

    Bytes of the file itself are not copied: a whole record at another place is no damage of a disk.
    """
    size = rng.choice((1, 4, 16, 64, 512))
    kind = rng.randrange(3)
    if kind == 0:
        piece = rng.randbytes(size)
    elif kind == 1:
        piece = bytes(size)
    else:
        piece = bytes([data[at] ^ (1 << rng.randrange(8))]) if at < len(data) else b""
    piece = piece[: len(data) - at]
    return data[:at] + piece + data[at + len(piece) :]


def read_journal(data: bytes) -> None:
    """A journal file, replayed as the only one."""
    replay = replayed({1: data})
    for queue in replay.queues.values():
        queue.in_order()


def read_checkpoint(data: bytes) -> None:
    """A checkpoint."""
    decode_checkpoint(data, STORE_ID)


def read_contents(data: bytes) -> None:
    """A content file: its contents and their messages."""
    seed = crc_seed(STORE_ID, number_in(data) & (1 << 63) - 1)
    found = scan_contents(lambda at, size: data[at : at + size], len(data), seed)
    for _, offset, length, is_valid in found:
        if is_valid:
            decode_content(data, offset + RECORD_HEADER_BYTES, offset + length)


def read_segment(data: bytes) -> None:
    """A segment of an index, read in pieces."""
    seed = crc_seed(STORE_ID, number_in(data) & (1 << 63) - 1)
    scan = IndexScan(QueueLedger(1), seed, FILE_HEADER_BYTES, 0, 1 << 62)
    size = 64
    while scan.offset < len(data) and not scan.is_over:
        before = scan.offset
        piece = data[scan.offset : scan.offset + max(size, int(scan.wanted_bytes))]
        is_last = scan.offset + len(piece) >= len(data)
        scan.feed(piece, is_last, _MANY, _MANY)
        size *= 2
        assert scan.offset > before or size <= 4 * len(data), "the scan makes no progress"


class OpenedStore(CheckedStore):
    """The store in `files`, as a node opens it."""

    def __init__(self, files: SimulatedFileSystem) -> None:
        self.bodies = {queue_id: {} for queue_id in QUEUES}
        self.positions = {}
        self.last_number = 0
        StoreDriver.__init__(self, files, StoreSettings(*SETTINGS))


def read_directory(data: bytes) -> None:
    """Start from a directory; a second start finds the same messages, and none is altered."""
    files = SimulatedFileSystem()
    for name, content in msgspec.msgpack.decode(data, type=dict[str, bytes]).items():
        put(files, name, content)
    try:
        store = OpenedStore(files)
        first = {queue_id: store.found(queue_id) for queue_id in QUEUES}
        store.commit()
        store.store.check()
        store.reopen()
        assert {queue_id: store.found(queue_id) for queue_id in QUEUES} == first
        for found in first.values():
            assert all(_BODY.fullmatch(body) for body in found.values())
    finally:
        close_drivers()


READERS = {
    "journal": Reader(read_journal, (), mutate_file),
    "checkpoint": Reader(read_checkpoint, (), mutate_file),
    "contents": Reader(read_contents, (), mutate_file, fixed_bytes=2 << 20),
    "segment": Reader(read_segment, (), mutate_file),
    "directory": Reader(
        read_directory, (), mutate_directory, fixed_bytes=16 << 20, bytes_per_byte=512
    ),
}
