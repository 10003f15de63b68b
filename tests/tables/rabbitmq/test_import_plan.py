"""Tests hand-made directories: live messages, cost of damage, cuts of partitions and batches."""

import os
import pickle
import struct
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.rabbitmq.files import (
    journal_ack,
    journal_delivered,
    journal_publish,
    make_node,
    make_queue,
    message_term,
    segment_mark,
    segment_publish,
    store_record,
)
from warrenmq.tables.rabbitmq import reading
from warrenmq.tables.rabbitmq.damage import Damage
from warrenmq.tables.rabbitmq.import_plan import (
    DefinedQueue,
    ImportPlan,
    NotADataDirectory,
    directory_name,
    plan,
)
from warrenmq.tables.rabbitmq.queue_index import LiveEntries, read_index
from warrenmq.tables.rabbitmq.reading import read


def _publish(entry: int, number: int, is_persistent: bool = True, expiry: int = 0) -> bytes:
    """An embedded message whose body is its number, delivered at once as since RabbitMQ 3.10."""
    term = message_term(number, b"%d" % number)
    return segment_publish(entry, number, term, is_persistent, expiry) + segment_mark(entry)


def _stored(number: int, body: bytes = b"") -> bytes:
    return store_record(number, message_term(number, body or b"%d" % number))


def _plan(
    directory: Path, files: dict[str, bytes], store: dict[str, bytes] | None = None
) -> ImportPlan:
    vhost = make_node(directory)
    for name, data in (store or {}).items():
        (vhost / "msg_store_persistent" / name).write_bytes(data)
    make_queue(vhost, b"q", files)
    return plan(directory)


def _rows(found: ImportPlan) -> tuple[dict[str, list[tuple[int, bytes]]], list[Damage]]:
    """The (seq, body) of each message, by queue, and all damage."""
    rows: dict[str, list[tuple[int, bytes]]] = {}
    damage = list(found.damage)
    for partition in found.partitions:
        for batch in read(partition, damage.append):
            batch.validate(full=True)
            pairs = zip(batch["seq"].to_pylist(), batch["body"].to_pylist(), strict=True)
            rows.setdefault(partition.queue, []).extend(pairs)
    return rows, damage


def _no_damage(damage: Damage) -> None:
    pytest.fail(damage.reason)


def _bodies(found: ImportPlan) -> list[bytes]:
    rows, damage = _rows(found)
    assert damage == []
    return [body for _, body in rows.get("q", [])]


def test_directory_names() -> None:
    assert directory_name(b"/") == "628WB79CIFDYO9LJI6DKMI09L"
    assert directory_name(b"queue", b"/", b"hello") == "7H5R02C8OIY2VA2HNBTO2ZGLS"


# -- segments and journal --------------------------------------------------------------------------


def test_seq_ids_follow_segments_and_acks_leave_holes(tmp_path: Path) -> None:
    files = {
        "0.idx": _publish(14, 1) + _publish(3, 2) + segment_mark(14),
        "2.idx": _publish(1, 3),
        "10.idx": _publish(0, 4),
    }
    found = _plan(tmp_path, files)
    assert _rows(found) == ({"q": [(3, b"2"), (33, b"3"), (160, b"4")]}, [])


def test_transient_messages_do_not_come_back(tmp_path: Path) -> None:
    found = _plan(tmp_path, {"0.idx": _publish(0, 1, is_persistent=False) + _publish(1, 2)})
    assert _bodies(found) == [b"2"]
    assert found.queues[0].transient == 1


def test_the_journal_and_a_segment_count_together(tmp_path: Path) -> None:
    term = message_term(5, b"5")
    journal = (
        # Entries of the segment again: a crash came after writing the segment, before emptying the
        # journal.
        journal_publish(0, 1, message_term(1, b"1")) + journal_delivered(0)
        # Acks of the segment's messages, with and without a delivered mark; an ack of a deleted
        # segment.
        + journal_ack(1) + journal_delivered(2) + journal_ack(2) + journal_ack(999)
        + journal_publish(20, 5, term) + journal_delivered(20)
        + journal_publish(21, 6, message_term(6, b"6"), is_persistent=False)
        + journal_publish(22, 7) + journal_delivered(22)
        + journal_publish(23, 8, message_term(8, b"8")) + journal_delivered(23) + journal_ack(23)
    )  # fmt: skip
    segment = (
        _publish(0, 1)
        + segment_publish(1, 2, message_term(2, b"2"))
        + _publish(2, 3)
        + _publish(3, 4)
    )
    found = _plan(tmp_path, {"0.idx": segment, "journal.jif": journal}, {"0.rdq": _stored(7)})
    assert _rows(found) == ({"q": [(0, b"1"), (3, b"4"), (20, b"5"), (22, b"7")]}, [])


def test_a_journal_that_ends_in_zeros(tmp_path: Path) -> None:
    journal = journal_publish(0, 1, message_term(1, b"1")) + journal_delivered(0) + bytes(4096)
    assert _bodies(_plan(tmp_path, {"journal.jif": journal})) == [b"1"]


def test_a_segment_of_zeros_or_with_a_tail_of_zeros(tmp_path: Path) -> None:
    found = _plan(tmp_path, {"0.idx": bytes(5000), "1.idx": _publish(0, 1) + bytes(5000)})
    assert _bodies(found) == [b"1"]


def test_a_tail_torn_at_every_byte(tmp_path: Path) -> None:
    segment = _publish(0, 1) + _publish(1, 2)
    whole = len(_publish(0, 1))
    journal = journal_publish(16, 3, message_term(3, b"3")) + journal_publish(
        17, 4, message_term(4, b"4")
    )
    first = len(journal) // 2
    for cut in range(1, max(len(segment) - whole, first)):
        directory = tmp_path / str(cut)
        files = {"0.idx": segment[: whole + cut], "journal.jif": journal[: first + cut]}
        rows, damage = _rows(_plan(directory, files))
        # A cut may keep a publish without its mark.
        second = [(1, b"2")] if whole + cut >= len(segment) - 2 else []
        third = [(17, b"4")] if first + cut >= len(journal) else []
        assert rows == {"q": [(0, b"1"), *second, (16, b"3"), *third]}
        assert all(item.queue == "q" for item in damage)
        if not second and not third:
            assert len(damage) == 2


def test_damage_within_a_segment_costs_what_it_hits(tmp_path: Path) -> None:
    records = [_publish(number, number) for number in range(5)]
    records[2] = b"\x00\x07" + records[2][2:]
    rows, damage = _rows(_plan(tmp_path, {"0.idx": b"".join(records)}))
    assert rows == {"q": [(0, b"0"), (1, b"1"), (3, b"3"), (4, b"4")]}
    assert [(item.offset, item.messages) for item in damage] == [(len(records[0] + records[1]), 0)]
    assert "no records" in damage[0].reason


def test_a_length_that_points_behind_the_end(tmp_path: Path) -> None:
    bad = struct.pack(">H16sQII", 0xC001, bytes(16), 0, 0, 0xFFFFFFFF)
    rows, damage = _rows(_plan(tmp_path, {"0.idx": _publish(0, 1) + bad + _publish(2, 3)}))
    assert rows == {"q": [(0, b"1"), (2, b"3")]}
    assert len(damage) == 1


def test_an_embedded_message_that_is_another_one(tmp_path: Path) -> None:
    segment = segment_publish(0, 1, message_term(2, b"2")) + segment_publish(1, 3, b"\x83hello")
    rows, damage = _rows(_plan(tmp_path, {"0.idx": segment}))
    assert rows == {}
    assert [item.reason.partition(": ")[0] for item in damage] == ["message 0", "message 1"]


# -- the message store -----------------------------------------------------------------------------


def _refs(*numbers: int) -> bytes:
    return b"".join(segment_publish(entry, number) for entry, number in enumerate(numbers))


def test_files_in_the_order_of_their_numbers_and_leftovers_of_a_merge(tmp_path: Path) -> None:
    store = {
        "2.rdq": _stored(3),
        "10.rdq": _stored(4),
        "0.rdq": _stored(1) + _stored(2),
        "0.rdt": _stored(5),
    }
    store |= {"clean.dot": b"{", "x.rdq": b"?"}
    assert _bodies(_plan(tmp_path, {"0.idx": _refs(5, 4, 3, 2, 1)}, store)) == [
        b"5",
        b"4",
        b"3",
        b"2",
        b"1",
    ]


def test_of_two_copies_the_first_counts_and_nobody_misses_a_third(tmp_path: Path) -> None:
    store = {
        "0.rdq": _stored(1, b"same") + _stored(1, b"same"),
        "1.rdq": _stored(1, b"same") + _stored(9),
    }
    assert _bodies(_plan(tmp_path, {"0.idx": _refs(1, 1)}, store)) == [b"same", b"same"]


def test_messages_without_content_are_counted(tmp_path: Path) -> None:
    found = _plan(tmp_path, {"0.idx": _refs(1, 2, 3)}, {"0.rdq": _stored(2)})
    rows, damage = _rows(found)
    assert rows == {"q": [(1, b"2")]}
    assert (found.messages, found.queues[0].missing) == (1, 2)
    assert [(item.queue, item.messages) for item in damage] == [("q", 2)]
    # Without the file of the message store all three messages are missing.
    (found.queues[0].path.parent.parent / "msg_store_persistent" / "0.rdq").unlink()
    assert plan(tmp_path).queues[0].missing == 3


@pytest.mark.parametrize(
    "garbage", [b"\x07" * 100, bytes(100), b"\x00" * 7 + b"\x20" + b"\xff" * 60, b"\xff"]
)
def test_the_chain_of_records_is_found_again(tmp_path: Path, garbage: bytes) -> None:
    store = garbage + _stored(1) + garbage + _stored(2) + _stored(3) + garbage
    rows, _ = _rows(_plan(tmp_path, {"0.idx": _refs(1, 2, 3)}, {"0.rdq": store}))
    assert rows == {"q": [(0, b"1"), (1, b"2"), (2, b"3")]}


def test_a_damaged_size_costs_its_own_record(tmp_path: Path) -> None:
    """A damaged size costs its own record, whatever it is, even when it leads to a byte 255."""
    before, after = _stored(1), _stored(3, b"\xff" * 300) + _stored(4)
    for size in (0, 1, 17, 200, 250, 300, 1 << 40, (1 << 64) - 1):
        damaged = struct.pack(">Q", size) + _stored(2)[8:]
        directory = tmp_path / str(size)
        rows, damage = _rows(
            _plan(directory, {"0.idx": _refs(1, 2, 3, 4)}, {"0.rdq": before + damaged + after})
        )
        assert [seq for seq, _ in rows["q"]] == [0, 2, 3]
        assert "no content" in damage[-1].reason


def test_a_store_torn_at_every_byte(tmp_path: Path) -> None:
    first, second = _stored(1), _stored(2)
    for cut in range(len(second)):
        found = _plan(tmp_path / str(cut), {"0.idx": _refs(1, 2)}, {"0.rdq": first + second[:cut]})
        assert _rows(found)[0] == {"q": [(0, b"1")]}


def test_a_body_that_looks_like_a_record(tmp_path: Path) -> None:
    """After damage a record counts only if its message is wanted: bodies may contain records."""
    inner = store_record(77, message_term(77, b"forged"))
    store = b"\x01" * 50 + _stored(1, inner) + _stored(2)
    rows, _ = _rows(_plan(tmp_path, {"0.idx": _refs(1, 2)}, {"0.rdq": store}))
    assert rows == {"q": [(0, inner), (1, b"2")]}


# -- version 2 -------------------------------------------------------------------------------------


def _slot(flags: int, place: int, location: bytes, expiry: int = 0, status: int = 1) -> bytes:
    return (
        bytes([status, flags, 0, place]) + location.ljust(16, b"\0") + struct.pack(">IQ", 5, expiry)
    )


def _header(magic: bytes, number: int = 0, version: int = 2) -> bytes:
    return struct.pack(">4sBQQ", magic, version, number * 4096, (number + 1) * 4096).ljust(
        64, b"\0"
    )


def test_slots(tmp_path: Path) -> None:
    term = message_term(1, b"1")
    entry = struct.pack(">IBHB", len(term), 1, zlib.crc32(term) & 0xFFFF, 0) + term
    store = _header(b"RCQS", 3) + entry
    place = struct.pack(">QI", 64, len(term))
    slots = [
        bytes(32), _slot(1, 2, place, 1_000_000), _slot(0, 2, place), _slot(1, 1, (7).to_bytes(16, "big")),
        _slot(1, 0, b""), _slot(1, 2, struct.pack(">QI", 65, len(term))), _slot(1, 2, b"", status=9), b"\x01",
    ]  # fmt: skip
    files = {"3.qi": _header(b"RCQI", 3) + b"".join(slots), "3.qs": store}
    files |= {"4.qi": _header(b"RCQI", 5), "5.qi": b"RCQI", "6.qi": _header(b"RCQI", 6, version=3)}
    found = _plan(tmp_path, files, {"0.rdq": _stored(7)})
    rows, damage = _rows(found)
    assert rows == {"q": [(3 * 4096 + 1, b"1"), (3 * 4096 + 3, b"7")]}
    assert found.queues[0].transient == 1
    reasons = "memory only, behind the end, status 9, torn slot, unknown header, wrong size, unknown header"
    for item, reason in zip(damage, reasons.split(", "), strict=True):
        assert reason in item.reason


def test_a_queue_whose_change_of_version_was_interrupted(tmp_path: Path) -> None:
    """A message that both indexes have, after an interrupted conversion, is read once."""
    files = {"0.idx": _publish(0, 1) + _publish(1, 2), "0.qi": _header(b"RCQI") + bytes(32)}
    files["0.qi"] += _slot(1, 1, (2).to_bytes(16, "big")) + _slot(1, 1, (3).to_bytes(16, "big"))
    found = _plan(tmp_path, files, {"0.rdq": _stored(2) + _stored(3)})
    assert _bodies(found) == [b"1", b"2", b"3"]
    assert found.queues[0].missing == 0


def test_an_entry_is_compared_with_its_checksum(tmp_path: Path) -> None:
    term = message_term(1, b"1")
    heads = [
        (len(term), 1, zlib.crc32(term) & 0xFFFF),
        (len(term), 1, 7),
        (len(term), 0, 7),
        (5, 0, 0),
    ]
    store, slots = _header(b"RCQS"), b""
    for head in heads:
        slots += _slot(1, 2, struct.pack(">QI", len(store), len(term)))
        store += struct.pack(">IBHB", *head, 0) + term
    rows, damage = _rows(_plan(tmp_path, {"0.qi": _header(b"RCQI") + slots, "0.qs": store}))
    assert rows == {"q": [(0, b"1"), (2, b"1")]}
    assert [item.reason.partition(":")[0] for item in damage] == ["message 1", "message 3"]


# -- queues, vhosts, directories -------------------------------------------------------------------


def test_levels_of_priority_come_from_the_highest_down(tmp_path: Path) -> None:
    vhost = make_node(tmp_path)
    for level in range(3):
        make_queue(vhost, b"q" + bytes([0, level]), {"0.idx": _publish(0, level)})
    found = plan(tmp_path)
    assert [(queue.name, queue.priority) for queue in found.queues] == [
        ("q", 2),
        ("q", 1),
        ("q", 0),
    ]
    assert _bodies(found) == [b"2", b"1", b"0"]


def test_names_that_are_lost_come_from_definitions(tmp_path: Path) -> None:
    vhost = make_node(tmp_path)
    for name in (b"known", b"levels\x00\x01", b"unknown"):
        (make_queue(vhost, name, {"0.idx": _publish(0, 1)}) / ".queue_name").unlink()
    (vhost / ".config").write_text("?")
    found = plan(tmp_path, [DefinedQueue("/", "known"), DefinedQueue("/", "levels", 4)])
    unknown = directory_name(b"queue", b"/", b"unknown")
    assert {(queue.name, queue.priority) for queue in found.queues} == {
        ("known", None),
        ("levels", 1),
        (unknown, None),
    }
    assert [item.path.rpartition("/")[2] for item in found.damage] == [".config", ".queue_name"]
    assert found.messages == 3


def test_a_queue_that_cannot_be_read_stops_nobody(tmp_path: Path) -> None:
    vhost = make_node(tmp_path)
    (make_queue(vhost, b"a", {}) / "0.idx").mkdir()
    make_queue(vhost, b"q", {"0.idx": _publish(0, 1), "x.idx": b"?"})
    (vhost / "msg_store_persistent" / "0.rdq").mkdir()
    (vhost / "queues" / "stray file").write_text("?")
    rows, damage = _rows(plan(tmp_path))
    assert rows == {"q": [(0, b"1")]}
    assert [item.queue for item in damage] == ["a", ""]


def test_a_journal_that_its_node_cuts_meanwhile_is_told(tmp_path: Path) -> None:
    class CutOff(LiveEntries):
        def add_file(self, path: Path) -> int:
            os.truncate(path, 5)
            return super().add_file(path)

    directory = make_queue(make_node(tmp_path), b"q", {"journal.jif": journal_publish(0, 1)})
    with pytest.raises(OSError, match="not stopped") as raised:
        read_index(directory, 8, CutOff(), lambda *_: None)
    assert raised.value.filename == str(directory / "journal.jif")


def test_queues_of_other_types_are_told(tmp_path: Path) -> None:
    make_node(tmp_path)
    (tmp_path / "quorum" / "node" / "2F_Q").mkdir(parents=True)
    (tmp_path / "quorum" / "node" / "names.dets").write_text("?")
    (tmp_path / "stream" / "__s_1").mkdir(parents=True)
    reasons = [item.reason for item in plan(tmp_path).damage]
    assert reasons == [
        f"the data of a {kind}, which is not read" for kind in ("quorum queue", "stream")
    ]


def test_what_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unreadable files are reported; errors are simulated, because permissions do not stop root."""

    def guard(name: str) -> None:
        monkeypatch.undo()
        listdir, read_bytes = os.listdir, Path.read_bytes
        monkeypatch.setattr(os, "listdir", lambda path: listdir(_checked(path, name)))
        monkeypatch.setattr(Path, "read_bytes", lambda path: read_bytes(_checked(path, name)))

    make_queue(make_node(tmp_path), b"q", {"0.idx": _publish(0, 1)})
    for name in (".vhost", ".config", ".queue_name", "queues", "msg_store_persistent"):
        guard(name)
        (item,) = plan(tmp_path).damage
        assert Path(item.path).name == name
    guard("vhosts")
    with pytest.raises(NotADataDirectory, match=r"cannot be read: .*no permission"):
        plan(tmp_path)


def _checked(path: Path, refused: str) -> Path:
    if Path(path).name == refused:
        raise PermissionError(13, "no permission", str(path))
    return path


def test_which_directories_are_taken(tmp_path: Path) -> None:
    for name in (
        "missing",
        "empty",
        "old/msg_store_persistent",
        "nodes/a/msg_stores/vhosts",
        "nodes/b/msg_stores/vhosts",
    ):
        if name != "missing":
            (tmp_path / name).mkdir(parents=True)
    for name, reason in (
        ("missing", "is not a directory"),
        ("empty", "is not a data directory of RabbitMQ"),
        ("old", "before 3.7"),
        ("nodes", "holds several nodes: a, b"),
    ):
        with pytest.raises(NotADataDirectory, match=reason):
            plan(tmp_path / name)
    assert plan(tmp_path / "nodes/a").path == tmp_path / "nodes/a"
    (tmp_path / "nodes/b/msg_stores/vhosts").rmdir()
    assert plan(tmp_path / "nodes").path == tmp_path / "nodes/a"


# -- partitions and batches ------------------------------------------------------------------------


def test_partitions_are_cut_by_bytes_and_can_be_pickled(tmp_path: Path) -> None:
    vhost = make_node(tmp_path)
    make_queue(vhost, b"q", {"0.idx": b"".join(_publish(entry, entry + 10) for entry in range(10))})
    size = len(message_term(10, b"10"))
    found = plan(tmp_path, partition_bytes=3 * size)
    assert [partition.messages for partition in found.partitions] == [3, 3, 3, 1]
    assert found.partitions[0].bytes == 3 * size
    found.queues[0].partitions = pickle.loads(pickle.dumps(found.partitions))
    assert _bodies(found) == [b"%d" % number for number in range(10, 20)]
    assert [part.messages for part in plan(tmp_path, partition_bytes=1).partitions] == [1] * 10


def test_batches_are_cut_by_rows_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BATCH_ROWS", 4)
    monkeypatch.setattr(reading, "BATCH_BYTES", 1000)
    sizes = [10, 10, 10, 10, 10, 5000, 400, 400, 400]
    segment = b"".join(
        segment_publish(entry, entry, message_term(entry, b"x" * size))
        for entry, size in enumerate(sizes)
    )
    partition = _plan(tmp_path, {"0.idx": segment}).partitions[0]
    batches = list(read(partition, _no_damage))
    assert [batch["size"].to_pylist() for batch in batches] == [
        [10] * 4,
        [10],
        [5000],
        [400, 400],
        [400],
    ]


def test_columns(tmp_path: Path) -> None:
    found = _plan(tmp_path, {"0.idx": _publish(0, 1, expiry=5_000_000) + _publish(1, 2)})
    table = pa.Table.from_batches(read(found.partitions[0], _no_damage))
    assert table.schema == reading.SCHEMA
    first, second = table.to_pylist()
    assert {name: value for name, value in first.items() if value is not None} == {
        "vhost": "/",
        "queue": "q",
        "seq": 0,
        "exchange": "some.exchange",
        "routing_key": "q",
        "expires_at": first["expires_at"],
        "redelivered": True,
        "persistent": True,
        "size": 1,
        "body": b"1",
        "properties_raw": b"\x10\x00\x02",
    }
    assert first["expires_at"].timestamp() == 5
    assert second["expires_at"] is None


def test_files_that_change_after_the_plan(tmp_path: Path) -> None:
    found = _plan(
        tmp_path, {"0.idx": _publish(0, 1) + segment_publish(1, 2)}, {"0.rdq": _stored(2)}
    )
    path = found.queues[0].path
    (path / "0.idx").write_bytes(b"short")
    (path.parent.parent / "msg_store_persistent" / "0.rdq").unlink()
    rows, damage = _rows(found)
    assert rows == {}
    assert [(item.messages, Path(item.path).name) for item in damage] == [
        (1, "0.idx"),
        (1, "0.rdq"),
    ]
