"""Reading a segment in pieces finds the same records wherever the pieces end."""

import pytest

from tests.support.stores.made_files import SEGMENT_NUMBER, STORE_ID, segment_records
from warrenmq.store.model.message import QueueLedger
from warrenmq.store.records.index import IndexScan, find_messages
from warrenmq.store.records.record import FILE_HEADER_BYTES, crc_seed

RECORDS = segment_records(range(49152, 49160))
DATA = b"".join(RECORDS)


def scan(data: bytes, piece: int) -> tuple[list[int], int]:
    """The seq ids found, and the number of bytes reported as damaged."""
    found = IndexScan(
        QueueLedger(7), crc_seed(STORE_ID, SEGMENT_NUMBER), FILE_HEADER_BYTES, 49152, 65536
    )
    while found.offset < len(data):
        size = max(piece, found.wanted_bytes)
        end = min(found.offset + size, len(data))
        found.feed(data[found.offset : end], end == len(data), 1 << 62, 1 << 62)
    return [position.seq for position in found.found], sum(
        len(stretch) for _offset, stretch in found.damaged
    )


def test_a_whole_segment() -> None:
    for piece in range(1, 400):
        assert scan(DATA, piece) == (list(range(49152, 49160)), 0), piece


@pytest.mark.parametrize("where", ["header", "body"])
def test_damage_costs_its_own_record_wherever_the_pieces_end(where: str) -> None:
    start = sum(map(len, RECORDS[:4]))
    data = bytearray(DATA)
    data[start + (5 if where == "header" else 40)] ^= 1
    expected = [seq for seq in range(49152, 49160) if seq != 49155]
    for piece in range(1, 400):
        assert scan(bytes(data), piece) == (expected, len(RECORDS[4])), piece


def test_messages_are_found_by_their_seq_ids_but_for_what_is_damaged() -> None:
    """A flipped bit costs exactly the record that contains it, wherever it is."""
    seed = crc_seed(STORE_ID, SEGMENT_NUMBER)
    wanted = {49152, 49155, 49159, 50000}
    assert {seq: message.body for seq, message in find_messages(DATA, seed, wanted).items()} == {
        seq: b"body %d" % seq * 9 for seq in (49152, 49155, 49159)
    }
    start = sum(map(len, RECORDS[:4]))
    for offset in range(start, start + len(RECORDS[4])):
        data = bytearray(DATA)
        data[offset] ^= 1
        assert set(find_messages(bytes(data), seed, wanted)) == {49152, 49159}, offset
    for size in range(len(DATA)):
        find_messages(DATA[:size], seed, wanted)
