"""The pages of docs/storage/ against the files that the engine writes.

The tests use the pages' tables of bytes as their decoder. A store on a real disk writes every kind
of record, and each must come out with the values that went in, without a byte left over.
`test_documented_limits.py` compares the rest of the pages with the code.
"""

import importlib
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from crc32c import crc32c

from tests.support.stores.documented_bytes import (
    Fields,
    decode,
    page_lines,
    structures,
    table,
)
from tests.support.stores.made_files import STORE_ID, message_of
from tests.support.stores.store_driver import StoreDriver
from warrenmq.store.model.message import Message, MovedMessage, Position
from warrenmq.store.records.checkpoint import decode_checkpoint
from warrenmq.store.settings import StoreSettings
from warrenmq.tables.reading import KIND_NAMES

# -- a store that has written every kind of record -------------------------------------------------


@dataclass
class Record:
    """One record as the page has it decoded, and where it was."""

    path: str
    kind: str
    fields: Fields
    offset: int
    length: int


@pytest.fixture
def records(tmp_path: Path) -> list[Record]:
    """What `write_story` leaves, decoded."""
    directory = tmp_path / "story"
    directory.mkdir()
    write_story(directory)
    return decode_directory(directory)


def decode_directory(directory: Path) -> list[Record]:
    found: list[Record] = []
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            found.extend(decode_file(path.relative_to(directory).as_posix(), path.read_bytes()))
    return found


def store_with_two_queues(path: Path, content_file_size_limit: int = 1 << 20) -> StoreDriver:
    """An empty store with queues 1 and 2; contents of 256 bytes or more go to its content store."""
    store = StoreDriver(path, StoreSettings(1 << 20, content_file_size_limit, 256))
    store.add_queue(1)
    store.add_queue(2)
    return store


def write_story(path: Path) -> None:
    """Publish to both queues, small and large, and once more to the second; index and ack some.

    The first queue begins an epoch before its first message, and another one behind its last.
    """
    store = store_with_two_queues(path)
    now_ms = store.now_ms
    store.queues[1].begin_epoch(7)
    small = store.publish_message(message_of(b"small", now_ms), 1, 2, expiry_ms=now_ms + 60_000)
    large = store.publish_message(message_of(bytes(range(256)) * 4, now_ms), 1, 2)
    store.publish_message(message_of(b"more", now_ms), 2)
    store.commit()
    transient = store.place(1, Message(b"\x00\x01q", b"\x00\x00", b"gone", False, now_ms))
    transient.redelivered = True
    spilled = store.place(1, Message(b"\x00\x01q", b"\x00\x00", bytes(500), False, now_ms))
    store.queues[1].index([small[0], large[0], transient, spilled])
    store.settle_one(small[0])
    store.settle_one(large[1])
    store.queues[1].note_delivered(1, 2)
    store.queues[1].note_delivered(4, 4)
    store.queues[1].begin_epoch(9)
    store.commit()
    store.store.checkpoints.want()
    store.commit()
    store.store.journal.request_file()
    store.store.journal.request_clean_stop()
    store.commit()
    store.close()


@pytest.fixture
def places(tmp_path: Path) -> list[Record]:
    """The records of 30 messages in several journal files, indexed while most of them stay."""
    directory = tmp_path / "places"
    directory.mkdir()
    settings = StoreSettings(1024, 1 << 20, 256, refer_entries=2, refer_bytes=1)
    store = StoreDriver(directory, settings)
    store.add_queue(1)
    store.add_queue(2)
    positions: list[Position] = []
    for number in range(30):
        message = message_of(b"%03d" % number, store.now_ms)
        expiry_ms = store.now_ms + 60_000 if number == 20 else 0
        positions += store.publish_message(message, 1, 2, expiry_ms=expiry_ms)[:1]
        store.commit()
    positions[21].redelivered = True
    store.queues[1].index(positions)
    store.commit()
    store.store.checkpoints.want()
    store.commit()
    store.close()
    return decode_directory(directory)


@pytest.fixture
def moves(tmp_path: Path) -> list[Record]:
    """Records of three messages moved from stage 7, and of a publish whose batch has failed."""
    directory = tmp_path / "moves"
    directory.mkdir()
    store = store_with_two_queues(directory)
    for seq, body, persistent in ((1, b"small", True), (2, bytes(1024), True), (3, b"gone", False)):
        moved = MovedMessage(b"\x01x\x01k", b"\x00\x00", body, persistent, store.now_ms, 7, seq)
        if persistent:
            store.publish_message(moved, 1, 2)
        store.store.journal.moves.add(moved)
    store.commit()
    # So that the file does not end in zeros that are a record's.
    store.publish_message(message_of(b"other"), 2)
    store.commit()
    store.publish_message(message_of(b"failed"), 1)
    store.fail(store.store.journal.seal(), store.now_ms)
    store.commit()
    store.close()
    return decode_directory(directory)


def decode_file(path: str, data: bytes) -> list[Record]:
    """All records of one file by the page's rules: header, CRCs, types."""
    header, at = decode("File header", data, 0)
    assert at == structures()["File header"].size
    assert header["magic"] == magic_of(path)
    assert header["format_version"] == 3
    assert header["store_id"] == STORE_ID
    assert header["crc"] == crc32c(data[:36])
    number = header["file_number"]
    assert number == number_of(path, data)
    assert isinstance(number, int)
    seed = crc32c(number.to_bytes(8, "big"), crc32c(STORE_ID))
    if path.endswith(".wal"):
        data = data.rstrip(b"\0")
    kinds = {structure.number: name for name, structure in structures().items() if structure.number}
    found: list[Record] = []
    while at < len(data):
        start = at
        record, at = decode("Record header", data, start)
        assert at - start == structures()["Record header"].size
        assert (record["magic"], record["version"]) == (0x5752, 1)
        header_crc = crc32c(data[start : start + 8], seed)
        assert record["header_crc"] == header_crc
        length = record["body_length"]
        assert isinstance(length, int)
        body = data[at : at + length]
        assert record["body_crc"] == crc32c(body, header_crc)
        kind = kinds[record["type"]]  # type: ignore[index]  # an int: `type` is a u8
        fields, end = decode(kind, body, 0)
        assert end == length, f"{kind} has {length} bytes, the page knows {end}"
        at += length
        found.append(Record(path, kind, fields, start, at - start))
    return found


def file_row(path: str) -> list[str]:
    suffix = {"wal": "`journal/N.wal`", "idx": "`queues/Q/K.idx`", "rdq": "`msg_store_*/N.rdq`"}
    name = suffix.get(path.rpartition(".")[2], "`checkpoint`")
    rows = [row for row in table("| file | magic | file number | records |") if row[0] == name]
    assert len(rows) == 1
    return rows[0]


def magic_of(path: str) -> bytes:
    return file_row(path)[1].strip("`").encode()


def number_of(path: str, data: bytes) -> int:
    if path.endswith(".idx"):
        _, queue_id, name = path.rsplit("/", 2)
        return int(queue_id) * 2**32 + int(name.removesuffix(".idx"))
    if "." in path and not path.startswith("checkpoint"):
        return int(path.rpartition("/")[2].partition(".")[0])
    return int.from_bytes(data[56:64], "big")  # the generation, first of the first record's body


def of_kind(records: list[Record], kind: str, path: str = "") -> list[Fields]:
    return [record.fields for record in records if record.kind == kind and path in record.path]


# -- bytes -----------------------------------------------------------------------------------------


def test_every_record_that_the_page_describes_is_written_and_where_it_says(
    records: list[Record], moves: list[Record], places: list[Record]
) -> None:
    described = {name for name, structure in structures().items() if structure.number}
    assert {record.kind for record in records + moves + places} == described
    for record in records + moves + places:
        assert record.kind in file_row(record.path)[3].split(", "), record


def test_type_numbers_are_those_of_the_code() -> None:
    modules = [
        importlib.import_module(f"warrenmq.store.records.{name}")
        for name in ("record", "checkpoint", "log_places")
    ]
    for name, structure in structures().items():
        if structure.number is not None:
            assert structure.number in [getattr(module, name, None) for module in modules], name


def test_sizes_in_headings() -> None:
    for name, structure in structures().items():
        if structure.size is not None:
            assert decode(name, bytes(structure.size), 0)[1] == structure.size, name


def test_messages_in_the_journal(records: list[Record]) -> None:
    small, more = of_kind(records, "PUBLISH", ".wal")
    assert small == {
        "position_count": 2,
        "positions": [position(1, 1, 1_700_000_060_000), position(2, 1, 1_700_000_060_000)],
        "timestamp": 1_700_000_000_000,
        "flags": 1,
        "exchange_length": 2,
        "exchange": b"ex",
        "routing_key_length": 3,
        "routing_key": b"key",
        "properties_length": 3,
        "properties": b"\x10\x00\x02",
        "body_length": 5,
        "body": b"small",
    }
    assert more["positions"] == [position(2, 3)]
    (reference,) = of_kind(records, "PUBLISH_REF", ".wal")
    (content,) = [
        record for record in records if record.kind == "CONTENT" and "persistent" in record.path
    ]
    assert reference == {
        "content_id": 1,
        "file": 0,
        "offset": content.offset,
        "stored_bytes": content.length,
        "body_bytes": 1024,
        "references": 2,
        "flags": 1,
        "timestamp": 1_700_000_000_000,
        "position_count": 2,
        "positions": [position(1, 2), position(2, 2)],
    }


def test_moves_from_a_staging_log(moves: list[Record]) -> None:
    small, nothing = of_kind(moves, "MOVE")
    (large,) = of_kind(moves, "MOVE_REF")
    assert [(move["origin_id"], move["origin_seq"]) for move in (small, large, nothing)] == [
        (7, 1),
        (7, 2),
        (7, 3),
    ]
    publishes = [move["publish"] for move in (small, large, nothing)]
    places: list[list[Fields]] = [
        [position(1, 1), position(2, 1)],
        [position(1, 2), position(2, 2)],
        [],
    ]
    assert [isinstance(publish, dict) and publish["positions"] for publish in publishes] == places


def position(queue_id: int, seq: int, expiry: int = 0, flags: int = 0) -> Fields:
    return {"queue_id": queue_id, "seq": seq, "expiry": expiry, "flags": flags}


def test_contents(records: list[Record]) -> None:
    (content,) = of_kind(records, "CONTENT", "persistent")
    publish = content["publish"]
    assert isinstance(publish, dict)
    assert (content["content_id"], content["references"]) == (1, 2)
    assert publish["positions"] == [position(1, 2), position(2, 2)]
    assert publish["body"] == bytes(range(256)) * 4
    (spilled,) = of_kind(records, "CONTENT", "transient")
    assert isinstance(spilled["publish"], dict)
    assert spilled["publish"]["body"] == bytes(500)
    assert spilled["publish"]["flags"] == 0


def test_a_segment(records: list[Record]) -> None:
    small, gone = of_kind(records, "PUBLISH", ".idx")
    assert small["positions"] == [position(1, 1, 1_700_000_060_000)]
    assert small["body"] == b"small"
    assert gone["positions"] == [position(1, 3, flags=1 | 2)]
    large, spilled = of_kind(records, "PUBLISH_REF", ".idx")
    assert (large["content_id"], large["flags"], large["positions"]) == (1, 1, [position(1, 2)])
    assert (spilled["flags"], spilled["positions"]) == (2, [position(1, 4, flags=2)])


def test_places_of_contents_in_journal_files(places: list[Record]) -> None:
    """Each entry says what the record at its place says, and each file has a stretch."""
    publishes = {
        (record.path, record.offset): record for record in places if record.kind == "PUBLISH"
    }
    found: list[tuple[int, int]] = []
    for block in of_kind(places, "PLACES", "queues/1/0.idx"):
        assert block["queue_id"] == 1
        file, first_seq, entries = block["file"], block["first_seq"], block["places"]
        assert isinstance(entries, list) and isinstance(first_seq, int) and isinstance(file, int)
        assert isinstance(entries[0], dict) and entries[0]["seq"] == 0
        for entry in entries:
            assert isinstance(entry, dict) and isinstance(entry["seq"], int)
            seq = first_seq + entry["seq"]
            assert isinstance(entry["offset"], int)
            record = publishes[f"journal/{file}.wal", entry["offset"]]
            written = record.fields
            assert isinstance(written["positions"], list)
            assert written["positions"][0] == position(1, seq, entry["expiry"])  # type: ignore[arg-type]  # a u64
            assert entry["stored_bytes"] == record.length
            assert (entry["body_bytes"], entry["content_bytes"]) == (3, 1 + 2 + 1 + 3 + 3 + 3)
            assert (entry["flags"], entry["unused"]) == (1 if seq == 22 else 0, bytes(3))
            assert (entry["expiry"] != 0) == (seq == 21)
            found.append((seq, file))
    assert len(found) > 15
    assert found == sorted(found)
    (row,) = [row for row in of_kind(places, "CHECKPOINT_QUEUE") if row["queue_id"] == 1]
    stretches = row["stretches"]
    assert isinstance(stretches, list)
    named: list[tuple[int, int]] = []
    for stretch in stretches:
        assert isinstance(stretch, dict)
        first, length, file = stretch["first"], stretch["length"], stretch["file"]
        assert isinstance(first, int) and isinstance(length, int) and isinstance(file, int)
        named += [(seq, file) for seq in range(first, first + length)]
    assert named == found
    (segment,) = row["segments"]  # type: ignore[misc]  # a list of one
    assert isinstance(segment, dict)
    size = sum(record.length for record in publishes.values() if record.path.endswith(".wal"))
    assert segment["flags"] == 2
    assert segment["referred"] == size * len(found) // 30


def test_what_is_settled(records: list[Record], moves: list[Record]) -> None:
    assert of_kind(records, "ACK") == [ack(1, 1, 1)]
    assert of_kind(moves, "RETRACT") == [{"retracted": ack(1, 3, 3)}]
    (release,) = of_kind(records, "RELEASE")
    (reference,) = of_kind(records, "PUBLISH_REF", ".wal")
    content = {"content_id": 1, "references": 2, "stored_bytes": reference["stored_bytes"]}
    assert release == {"serial": 1, "count": 1, "contents": [content], "ack": ack(2, 2, 2)}


def ack(queue_id: int, first: int, last: int) -> Fields:
    return {"queue_id": queue_id, "run_count": 1, "runs": [{"first": first, "last": last}]}


def test_a_clean_stop(records: list[Record]) -> None:
    journal = [record for record in records if record.path.endswith(".wal")]
    assert [record.kind for record in journal[-3:]] == ["QUEUE_STATE", "QUEUE_STATE", "CLEAN_STOP"]
    assert of_kind(records, "QUEUE_STATE") == [
        {
            "queue_id": 1,
            "next_seq": 5,
            "delivered_upto": 2,
            "delivered_count": 1,
            "delivered": [{"first": 4, "last": 4}],
        },
        {
            "queue_id": 2,
            "next_seq": 4,
            "delivered_upto": 0,
            "delivered_count": 0,
            "delivered": [],
        },
    ]


def test_epochs(records: list[Record]) -> None:
    assert of_kind(records, "EPOCH") == [
        {"queue_id": 1, "epoch": 7, "first_seq": 1},
        {"queue_id": 1, "epoch": 9, "first_seq": 5},
    ]


def end_of(records: list[Record], path: str) -> int:
    return max(record.offset + record.length for record in records if record.path == path)


def test_the_first_record_names_the_file_before(records: list[Record]) -> None:
    (first,) = [
        record for record in records if record.path == "journal/2.wal" and record.offset == 40
    ]
    assert first.kind == "PREDECESSOR"
    assert first.fields == {"file": 1, "size": end_of(records, "journal/1.wal")}


def test_a_checkpoint(records: list[Record]) -> None:
    rows = [record for record in records if record.path == "checkpoint"]
    kinds = [record.kind for record in rows]
    assert kinds == [
        "CHECKPOINT_HEAD",
        *["CHECKPOINT_QUEUE"] * 2,
        "CHECKPOINT_CONTENT",
        "CHECKPOINT_END",
    ]
    head, first, second, content, end = [record.fields for record in rows]
    segment_bytes = (
        sum([record.length for record in records if record.path == "queues/1/0.idx"]) + 40
    )
    (reference,) = of_kind(records, "PUBLISH_REF", ".wal")
    stored_bytes = reference["stored_bytes"]
    assert isinstance(stored_bytes, int)
    journal_bytes = end_of(records, "journal/1.wal")
    assert head == {
        "generation": 1,
        "first_journal_file": 1,
        "next_content_id": 2,
        "release_serial": 1,
        "next_content_file": 1,
        "journal_file": 1,
        "journal_offset": journal_bytes,
        "queue_count": 2,
        "content_file_count": 1,
        "damage_count": 0,
        "damage": [],
        # Each of three messages has an address of 7 bytes and 3 bytes of properties.
        "published_bytes": 3 * (7 + 3) + 5 + 1024 + 4,
        "written_bytes": journal_bytes + 40 + stored_bytes + segment_bytes,
    }
    segment = {
        "number": 0,
        "size": segment_bytes,
        "entries": 4,
        "live_persistent": 1,
        "flags": 1,
        "referred": 0,
    }
    assert first == {
        "queue_id": 1,
        "next_seq": 5,
        "delivered_upto": 2,
        "indexed_upto": 5,
        "flags": 0,
        "run_count": 1,
        "settled": [{"first": 0, "last": 1}],
        "segment_count": 1,
        "segments": [segment],
        "delivered_count": 1,
        "delivered": [{"first": 4, "last": 4}],
        "epoch_count": 2,
        "epochs": [{"epoch": 7, "first_seq": 1}, {"epoch": 9, "first_seq": 5}],
        "stretch_count": 0,
        "stretches": [],
    }
    assert (second["indexed_upto"], second["segments"], second["settled"]) == (1, [], [])
    assert content == {
        "number": 0,
        "first_id": 1,
        "content_count": 1,
        "size": 40 + stored_bytes,
        "valid": stored_bytes,
        "id_count": 0,
        "ids": [],
        "released_count": 1,
        "released": [1],
    }
    assert end == {"record_count": 4}


def test_a_checkpoint_that_is_cut_or_changed_does_not_count(tmp_path: Path) -> None:
    """T30: it is believed as a whole, or not at all."""
    write_story(tmp_path)
    data = (tmp_path / "checkpoint").read_bytes()
    assert decode_checkpoint(data, STORE_ID) is not None
    for size in range(len(data)):
        assert decode_checkpoint(data[:size], STORE_ID) is None
    for at in range(len(data)):
        for bit in range(8):
            changed = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
            assert decode_checkpoint(changed, STORE_ID) is None
    assert decode_checkpoint(data, bytes(16)) is None


def test_a_compacted_file_in_a_checkpoint(tmp_path: Path) -> None:
    """Compaction merges two files with one live content each; one has released a reference."""
    store = store_with_two_queues(tmp_path, content_file_size_limit=2500)
    contents: dict[int, list[Position]] = {}
    for content_id in range(1, 11):
        queues = (1, 2) if content_id == 5 else (1,)
        contents[content_id] = store.publish_message(message_of(bytes(1024)), *queues)
    store.commit()
    store.settle_one(contents[5][1])
    for content_id in (1, 3, 4, 6, 8, 9):
        store.settle_one(contents[content_id][0])
    store.commit()
    store.store.checkpoints.want()
    store.commit()
    store.close()
    records = decode_directory(tmp_path)
    copy, third, last = of_kind(records, "CHECKPOINT_CONTENT", "checkpoint")
    sizes = [
        record.length for record in records if record.kind == "CONTENT" and "/4.rdq" in record.path
    ]
    assert (copy["number"], copy["first_id"], copy["content_count"]) == (4, 2, 2)
    assert (copy["ids"], copy["released"]) == ([2, 5], [0, 1])
    assert (copy["size"], copy["valid"]) == (40 + sum(sizes), sum(sizes))
    assert (third["ids"], third["released"]) == ([], [0, 65535, 65535])
    assert (last["first_id"], last["content_count"], last["released"]) == (10, 1, [])


def test_the_file_by_hand_is_a_file() -> None:
    """The bytes printed in the page are valid, and say what it says."""
    data = b""
    for line in page_lines():
        if match := re.match(r"000000[0-9a-f]0  ((?:[0-9a-f]{2} +){16})\|", line):
            data += bytes.fromhex(match[1].replace(" ", ""))
    header, at = decode("File header", data, 0)
    assert header["crc"] == crc32c(data[:36])
    assert isinstance(header["store_id"], bytes)
    seed = crc32c((1).to_bytes(8, "big"), crc32c(header["store_id"]))
    record, at = decode("Record header", data, at)
    assert record["header_crc"] == crc32c(data[40:48], seed)
    body = data[at : at + 75]
    assert record["body_crc"] == crc32c(body, crc32c(data[40:48], seed))
    fields, end = decode("PUBLISH", body, 0)
    assert (end, record["body_length"]) == (75, 75)
    assert (fields["exchange"], fields["routing_key"], fields["body"]) == (b"x", b"k", b"hello")
    assert fields["positions"] == [position(1, 1), position(2, 1)]


def test_the_tables_have_a_name_for_each_kind_of_record() -> None:
    """A move is shown as the publish it is, and an entry of PLACES as the message it is of."""
    files = ("0.wal", "0.idx", "0.rdq")
    names = {name for path in files for name in file_row(path)[3].split(", ")} - {
        "MOVE",
        "MOVE_REF",
        "PLACES",
    }
    assert {structures()[name].number: name.lower() for name in names} == KIND_NAMES
