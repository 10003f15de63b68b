"""Records about contents, and passes over content files with any bytes in them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.stores.dict_disk.content_driver import positions_of
from tests.support.stores.made_files import STORE_ID, message_of
from warrenmq.store.contents.scan import (
    CHUNK_BYTES,
    Source,
    compact_contents,
    find_contents,
    scan_contents,
)
from warrenmq.store.model.message import ABSENT, WRITTEN, ContentRef, Message, Position, QueueLedger
from warrenmq.store.records.content import (
    CONTENT_RECORD_MIN_BYTES,
    Release,
    content_bytes_of,
    decode_content,
    decode_publish_ref,
    decode_release,
    write_content,
    write_publish_ref,
    write_release,
)
from warrenmq.store.records.record import (
    CONTENT,
    CONTENT_MAGIC,
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    RELEASE,
    RecordWriter,
    crc_seed,
)

NUMBER = 3


def content_file(
    sizes: list[int], number: int = NUMBER, store_id: bytes = STORE_ID, first_id: int = 1
) -> bytes:
    """A content file with consecutive ids and bodies of these sizes."""
    rng = random.Random(len(sizes))
    writer = RecordWriter(store_id)
    writer.start_file(CONTENT_MAGIC, number)
    for content_id, size in enumerate(sizes, first_id):
        message = message_of(rng.randbytes(size))
        write_content(writer, content_id, message, positions_of(message, 1), 0, 1)
    return b"".join(writer.take())


def source(data: bytes, number: int = NUMBER) -> Source:
    return (
        (lambda offset, size: data[offset : offset + size]),
        len(data),
        crc_seed(STORE_ID, number),
    )


def ids_in(data: bytes, number: int = NUMBER) -> list[int]:
    return [int(entry[0]) for entry in scan_contents(*source(data, number)) if entry[3]]


def test_a_content_record() -> None:
    writer = RecordWriter(STORE_ID)
    for references in [1, 3, 0x8000, 0xFFFF]:
        message = Message(b"\x02ex\x01k", b"\x10\x00\x02", b"body" * 2000, references == 3, 1 << 41)
        size = write_content(
            writer, 1 << 40, message, positions_of(message, 1) * references, 0, references
        )
        data = b"".join(writer.take())
        assert len(data) == size and data[2] == CONTENT
        found = decode_content(data, RECORD_HEADER_BYTES, len(data))
        assert found is not None and found.id == 1 << 40 and found.references == references
        copy = found.message
        assert (copy.address, copy.properties, copy.body) == (
            message.address,
            message.properties,
            message.body,
        )
        assert (copy.persistent, copy.timestamp_ms) == (message.persistent, message.timestamp_ms)
        ref = ContentRef(1 << 40, 0, 0, size, references, False)
        assert content_bytes_of(ref) == message.content_bytes
    smallest = Message(b"\x00\x00", b"", b"", False, 0)
    assert (
        write_content(writer, 1, smallest, positions_of(smallest, 1), 0, 1)
        == CONTENT_RECORD_MIN_BYTES
    )


def test_a_reference_record() -> None:
    writer = RecordWriter(STORE_ID)
    message = message_of(b"x" * 5000)
    positions = [Position(message, QueueLedger(queue), queue * 10, queue) for queue in range(5)]
    positions[3].redelivered = True
    for transient in [False, True]:
        content = ContentRef(1 << 40, 0xFFFFFFFE, 0xFFFFFFF0, 0xFFFFFF00, 0xFFFF, transient)
        size = write_publish_ref(writer, content, message, positions, 2, 4)
        data = b"".join(writer.take())
        assert len(data) == size
        assert [position.journal_state for position in positions[2:4]] == [WRITTEN, WRITTEN]
        found = decode_publish_ref(data, RECORD_HEADER_BYTES, len(data))
        assert found is not None
        copy = found.content
        assert (copy.id, copy.file, copy.offset) == (content.id, content.file, content.offset)
        assert (copy.stored_bytes, copy.references, copy.transient) == (
            0xFFFFFF00,
            0xFFFF,
            transient,
        )
        assert (found.body_bytes, found.persistent, found.timestamp_ms) == (
            5000,
            True,
            message.timestamp_ms,
        )
        assert found.position_count == 2 and found.positions_start + 2 * 21 == size
        assert data[-1] == 1 and data[-22] == 0
    # The content is elsewhere: the position gives the record its fields.
    positions[0].message = ABSENT
    write_publish_ref(writer, content, ABSENT, positions, 0, 1)
    data = b"".join(writer.take())
    found = decode_publish_ref(data, RECORD_HEADER_BYTES, len(data))
    assert found is not None and found.body_bytes == 5000 and found.persistent


def test_a_release_record() -> None:
    writer = RecordWriter(STORE_ID)
    contents = [
        ContentRef(content_id << 33, 1, 1, 0xFFFFFF00 + content_id, 0xFFFE, False)
        for content_id in range(3)
    ]
    runs = [(1, 1), (3, 1 << 40)]
    release = Release(77, 0xFFFFFFFE, runs, contents)
    assert write_release(writer, release) == RECORD_HEADER_BYTES + 12 + 3 * 14 + 8 + 2 * 16
    data = b"".join(writer.take())
    assert data[2] == RELEASE
    found = decode_release(data, RECORD_HEADER_BYTES, len(data))
    assert found is not None and found.serial == 77
    assert (found.queue_id, found.runs) == (0xFFFFFFFE, runs)
    assert [(ref.id, ref.references, ref.stored_bytes) for ref in found.contents] == [
        (ref.id, ref.references, ref.stored_bytes) for ref in contents
    ]


@given(st.binary(max_size=200))
def test_no_bytes_make_a_decoder_raise(data: bytes) -> None:
    for decode in [decode_content, decode_publish_ref, decode_release]:
        decode(data, 0, len(data))
        decode(data, len(data) // 2, len(data))


SIZES = [0, 10, 700, 0, 5000, 90]


def test_every_damaged_byte_costs_one_content() -> None:
    data = content_file(SIZES)
    entries = scan_contents(*source(data))
    assert [int(entry[0]) for entry in entries] == [1, 2, 3, 4, 5, 6]
    assert entries[-1][1] + entries[-1][2] == len(data)
    for content_id, offset, length, _valid in entries:
        for place in [*range(min(length, 120)), length - 1]:
            broken = bytearray(data)
            broken[offset + place] ^= 0x10
            found = scan_contents(*source(bytes(broken)))
            assert [entry[0] for entry in found if entry[3]] == [
                entry[0] for entry in entries if entry[0] != content_id
            ]
            # The damaged stretch is reported exactly, so that it can be preserved.
            assert [entry[1:3] for entry in found if not entry[3]] == [(offset, length)]


@pytest.mark.parametrize("tail", [b"", bytes(5000), b"WR\x06\x01" * 100, b"\xff" * 3])
def test_cut_anywhere(tail: bytes) -> None:
    data = content_file(SIZES)
    ends = [int(offset + length) for _, offset, length, _ in scan_contents(*source(data))]
    for cut in range(0, len(data) + 1, 7):
        whole = sum(end <= cut for end in ends)
        assert ids_in(data[:cut] + tail if cut >= FILE_HEADER_BYTES else data[:cut]) == list(
            range(1, whole + 1)
        )


def test_records_of_others_do_not_count() -> None:
    """Records of another file or store, and records that are no contents, do not count."""
    own = content_file([50, 60])
    other = content_file([50], number=4, first_id=50)[FILE_HEADER_BYTES:]
    foreign = content_file([50], store_id=bytes(16), first_id=60)[FILE_HEADER_BYTES:]
    writer = RecordWriter(STORE_ID)
    writer.continue_file(NUMBER)
    write_release(writer, Release(1, 1, [], []))
    write_content(writer, 70, message_of(b"last"), positions_of(message_of(b""), 1), 0, 1)
    data = own + other + foreign + b"".join(writer.take())
    assert ids_in(data) == [1, 2, 70]


@pytest.mark.parametrize("shift", [-60, -53, -46, -39, -27, -26, -17, -16, -15, -1, 0, 1, 16, 60])
def test_where_chunks_meet(shift: int) -> None:
    """Headers and bodies may cross chunks, whole or damaged; a read is one chunk at most."""
    data = content_file(
        [CHUNK_BYTES - 40 + shift, 100, CHUNK_BYTES + shift, 3 * CHUNK_BYTES, 100, 100]
    )
    largest = 0

    def read(offset: int, size: int) -> bytes:
        nonlocal largest
        largest = max(largest, size)
        return data[offset : offset + size]

    seed = source(data)[2]
    entries = scan_contents(read, len(data), seed)
    assert [int(entry[0]) for entry in entries] == [1, 2, 3, 4, 5, 6] and largest <= CHUNK_BYTES
    for content_id, offset, length, _valid in entries:
        for place in [2, 9, 14, length // 2, length - 1]:
            broken = bytearray(data)
            broken[offset + place] ^= 1
            assert ids_in(bytes(broken)) == [
                int(entry[0]) for entry in entries if entry[0] != content_id
            ]
    found = find_contents(read, len(data), seed, [2, 4, 99])
    assert found == {int(i): (o, data[o : o + n]) for i, o, n, _ in entries if i in (2, 4)}


def test_a_copy() -> None:
    first = content_file([10, 3 * CHUNK_BYTES, 5000, 20], number=5)
    second = content_file([2 * CHUNK_BYTES, 30, CHUNK_BYTES - 30, 10], number=6, first_id=5)
    broken = bytearray(second)
    broken[-1] ^= 1
    calls: list[bytes] = []
    copied, damaged = compact_contents(
        [source(first, 5), source(bytes(broken), 6)],
        [2, 3, 5, 6, 7, 8, 100],
        STORE_ID,
        9,
        lambda parts: calls.append(b"".join(parts)),
    )
    assert [int(entry[0]) for entry in copied] == [2, 3, 5, 6, 7] and damaged == [8, 100]
    assert max(map(len, calls)) <= CHUNK_BYTES and calls[0][:8] == CONTENT_MAGIC
    data = b"".join(calls)
    assert scan_contents(*source(data, 9)) == [(*entry, True) for entry in copied]
    for content_id, offset, length in copied:
        origin, number = (first, 5) if content_id < 5 else (second, 6)
        found = find_contents(*source(origin, number), [content_id])[int(content_id)][1]
        assert data[offset + RECORD_HEADER_BYTES : offset + length] == found[RECORD_HEADER_BYTES:]


def test_a_copy_of_nothing_has_a_header() -> None:
    calls: list[bytes] = []
    copied, damaged = compact_contents(
        [source(b"")], [1], STORE_ID, 9, lambda parts: calls.append(b"".join(parts))
    )
    assert (copied, damaged) == ([], [1])
    assert len(b"".join(calls)) == FILE_HEADER_BYTES


def test_errors_go_through() -> None:
    data = content_file([10, 20])

    def read(offset: int, size: int) -> bytes:
        raise OSError("EIO")

    def write(parts: list[bytes]) -> None:
        raise OSError("ENOSPC")

    with pytest.raises(OSError, match="EIO"):
        compact_contents([(read, len(data), 0)], [1], STORE_ID, 9, lambda parts: None)
    with pytest.raises(OSError, match="ENOSPC"):
        compact_contents([source(data)], [1], STORE_ID, 9, write)
