"""`warren store check` finds no problem in a killed node's directory, and every kind of damage."""

import random
import shutil
from pathlib import Path

import pytest

from tests.support.stores.stopped_node import (
    MESSAGES,
    change,
    copy_of,
    edit_checkpoint,
    fingerprint,
    store_of,
)
from warrenmq.offline.check import check_directory
from warrenmq.offline.data_directory import ToolError, locked
from warrenmq.offline.problems import (
    DAMAGED,
    DEFINITIONS,
    JOURNAL_GAP,
    MISSING_CONTENT,
    MISSING_FILE,
    NO_CHECKPOINT,
    NO_DEFINITION,
    NO_DIRECTORY,
    NOT_OURS,
    WRONG_COUNT,
    CheckResult,
)
from warrenmq.store.records.checkpoint import CHECKPOINT_CONTENT, CHECKPOINT_QUEUE
from warrenmq.store.records.record import FILE_HEADER_BYTES, crc_seed, record_length

pytestmark = pytest.mark.kill


def kinds(data: Path) -> dict[str, int]:
    """The number of problems found, by kind."""
    return dict(check_directory(data).problem_counts)


def segments(store: Path) -> list[Path]:
    """The segment files of queue `small`, by number."""
    return sorted((store / "queues/1").iterdir(), key=lambda path: int(path.stem))


def journals(store: Path) -> list[Path]:
    return sorted((store / "journal").iterdir(), key=lambda path: int(path.stem))


def contents(store: Path) -> list[Path]:
    """The content files without the last one, which contains nothing live."""
    files = (store / "msg_store_persistent").glob("*.rdq")
    return sorted(files, key=lambda path: int(path.stem))[:-1]


def logs(store: Path) -> list[Path]:
    """The files that have left the journal."""
    files = (store / "msg_store_persistent").glob("*.wal")
    return sorted(files, key=lambda path: int(path.stem))


def needed_journals(store: Path) -> list[Path]:
    """The journal files that the checkpoint does not cover."""
    first = int.from_bytes((store / "checkpoint").read_bytes()[64:72], "big")
    return [path for path in journals(store) if int(path.stem) >= first]


def record_offsets(path: Path, number: int) -> list[int]:
    """The offsets of the records in a file."""
    data = path.read_bytes()
    seed = crc_seed(data[12:28], number)
    offsets: list[int] = []
    at = FILE_HEADER_BYTES
    while at < len(data) and (length := record_length(data, at, seed)) > 0:
        offsets.append(at)
        at += length
    return offsets


def test_a_killed_node_is_clean(original: Path) -> None:
    result = check_directory(original)
    assert result.problems == [] and result.is_clean
    assert result.messages == MESSAGES and result.queues == 3
    assert len(segments(store_of(original))) >= 3 and len(contents(store_of(original))) >= 3


def test_looking_changes_nothing(data: Path, store: Path) -> None:
    """T34: a check changes nothing and repeats its result, even where a start has much to do."""
    segments(store)[1].write_bytes(bytes(4096))
    change(contents(store)[0], lambda data: data.__setitem__(9000, data[9000] ^ 1))
    (store / "journal/strange").write_text("strange")
    (store / "checkpoint").unlink()
    (store / "checkpoint.previous").unlink()
    before = fingerprint(data)
    result = check_directory(data)
    assert not result.is_clean
    assert check_directory(data).as_json() == result.as_json()
    assert fingerprint(data) == before


# -- T20, T21: tails -------------------------------------------------------------------------------


def test_tails_of_crashes_are_no_problems(data: Path, store: Path) -> None:
    tails = (bytes(5000), random.Random(1).randbytes(5000), contents(store)[0].read_bytes()[-3000:])
    for tail in tails:
        for path in (segments(store)[-1], journals(store)[-1]):
            path.write_bytes(path.read_bytes() + tail)
    result = check_directory(data)
    assert result.problems == []
    assert any("no checkpoint counts" in note for note in result.notes)
    assert any("unfinished write" in note for note in result.notes)


@pytest.mark.parametrize("cut", [1, 16, 100])
def test_a_torn_last_record(data: Path, store: Path, cut: int) -> None:
    """A torn last record of the journal is no problem: it counts as never confirmed."""
    path = journals(store)[-1]
    size = len(path.read_bytes().rstrip(b"\0"))
    change(path, lambda data: data.__delitem__(slice(size - cut, None)))
    result = check_directory(data)
    assert set(result.problem_counts) <= {WRONG_COUNT}
    assert any("unfinished write" in note for note in result.notes)


# -- T22, T33: files that are not ours -------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", bytes(4096)])
def test_what_is_not_ours(data: Path, store: Path, content: bytes) -> None:
    strange = ["queues/1/x.idx", "queues/readme", "journal/note"]
    # Power that fails just after a file was made leaves such a file: nothing to report.
    just_made = ["journal/999.wal", "msg_store_persistent/999.rdq"]
    for name in (*strange, *just_made):
        (store / name).write_bytes(content)
    for directory in (store / "queues/backup", data / "msg_stores/vhosts/mine"):
        directory.mkdir()
    result = check_directory(data)
    assert result.problem_counts == {NOT_OURS: 5}
    told = [problem.text for problem in result.problems]
    for name in ("x.idx", "readme", "note", "queues/backup", "vhosts/mine"):
        assert sum(name in text for text in told) == 1, (name, told)


@pytest.mark.parametrize("content", [b"", bytes(4096), b"WARRENIX\0\0\0\1", b"noise" * 100])
def test_an_overwritten_segment(data: Path, store: Path, content: bytes) -> None:
    """T32: an overwritten segment is reported, and the other segments are still checked."""
    path = segments(store)[1]
    path.write_bytes(content)
    result = check_directory(data)
    assert DAMAGED in result.problem_counts
    # Messages whose contents are in journal files are found there.
    assert MESSAGES - 16384 < result.messages <= MESSAGES
    assert all("queues/1/1.idx" in problem.text for problem in result.problems)


@pytest.mark.parametrize("place", ["first", "middle"])
def test_an_overwritten_journal_file(data: Path, store: Path, place: str) -> None:
    path = needed_journals(store)[0 if place == "first" else 1]
    path.write_bytes(bytes(4096))
    assert set(kinds(data)) >= {NOT_OURS, JOURNAL_GAP}


# -- T23: flipped bits -----------------------------------------------------------------------------


def flip(path: Path, at: int) -> None:
    change(path, lambda data: data.__setitem__(at, data[at] ^ 4))


# Where the parts of a record are in it (bytes).
PARTS = {
    "magic": 0,
    "type": 2,
    "version": 3,
    "length": 6,
    "header crc": 9,
    "body crc": 13,
    "body": 60,
}


@pytest.mark.parametrize("kind", ["journal", "segment", "contents"])
def test_a_flipped_bit_in_each_part_of_a_record(data: Path, store: Path, kind: str) -> None:
    """A record for each part, none of them next to another."""
    paths = {
        "journal": needed_journals(store)[1:2],
        "segment": segments(store)[1:2],
        "contents": contents(store),
    }[kind]
    records = [
        (path, at)
        for path in paths
        for at in record_offsets(path, 1 << 32 | 1 if kind == "segment" else int(path.stem))[1:-1:2]
    ]
    assert len(records) >= len(PARTS)
    step = len(records) // len(PARTS)
    for (path, at), offset in zip(records[::step], PARTS.values(), strict=False):
        flip(path, at + offset)
    found = kinds(data)
    assert found[DAMAGED] == len(PARTS)
    assert found.get(MISSING_CONTENT, 0) == (2 * len(PARTS) if kind == "contents" else 0)


@pytest.mark.parametrize("at", [0, 30])
def test_a_flipped_bit_in_the_headers_of_files(data: Path, store: Path, at: int) -> None:
    for path in (needed_journals(store)[1], segments(store)[1], contents(store)[1]):
        flip(path, at)
    result = check_directory(data)
    assert result.problem_counts == {DAMAGED: 3}
    assert result.messages == MESSAGES


def test_a_flipped_bit_in_the_checkpoint(data: Path, store: Path) -> None:
    """T30: the checkpoint before the damaged one serves."""
    flip(store / "checkpoint", 100)
    found = check_directory(data)
    assert set(found.problem_counts) == {NO_CHECKPOINT, NOT_OURS}
    assert found.messages == MESSAGES


@pytest.mark.parametrize("size", [0, 39, 40, -1])
def test_a_truncated_checkpoint(data: Path, store: Path, size: int) -> None:
    change(store / "checkpoint", lambda data: data.__delitem__(slice(size, None)))
    assert set(kinds(data)) == {NO_CHECKPOINT, NOT_OURS}


def test_a_flipped_bit_in_the_store_id(data: Path, store: Path) -> None:
    change(
        store / "store_id",
        lambda data: data.__setitem__(0, ord("0") if data[0] != ord("0") else ord("1")),
    )
    assert kinds(data) == {MISSING_FILE: 1}


def test_flipped_bits_anywhere_are_seen(data: Path, store: Path) -> None:
    choose = random.Random(5)
    paths = [
        segments(store)[0],
        *contents(store),
        *needed_journals(store)[:-1],
        store / "checkpoint",
    ]
    for path in choose.sample(paths, 4):
        before = path.read_bytes()
        flip(path, choose.randrange(len(before)))
        result = check_directory(data)
        assert not result.is_clean, path
        assert result.messages >= MESSAGES - 1
        path.write_bytes(before)


# -- T24, T25: lengths and stretches ---------------------------------------------------------------


@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"\x57\x52\x01\x01"])
def test_an_overwritten_stretch(data: Path, store: Path, filler: bytes) -> None:
    for path in (segments(store)[0], contents(store)[0], needed_journals(store)[0]):
        change(
            path, lambda data: data.__setitem__(slice(20000, 24096), filler * (4096 // len(filler)))
        )
    found = kinds(data)
    assert found[DAMAGED] == 3
    # Two messages share the large content; indexes may refer to contents in the journal file.
    assert 2 <= found[MISSING_CONTENT] < 2 + 4096 // 100


# -- T26: missing files ----------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["first", "last", "all"])
def test_missing_segments(data: Path, store: Path, which: str) -> None:
    found = segments(store)
    gone = {"first": found[:1], "last": found[-1:], "all": found}[which]
    for path in gone:
        path.unlink()
    result = check_directory(data)
    assert set(result.problem_counts) == {MISSING_FILE}
    # Messages whose contents are in journal files are found there.
    assert result.problem_counts[MISSING_FILE] >= MESSAGES - result.messages


def test_a_missing_directory_of_segments(data: Path, store: Path) -> None:
    shutil.rmtree(store / "queues")
    assert set(kinds(data)) >= {MISSING_FILE}


def test_a_missing_content_file(data: Path, store: Path) -> None:
    path = contents(store)[1]
    count = len(record_offsets(path, int(path.stem)))
    path.unlink()
    # With one file missing, no unknown file counts as garbage: the last one, which holds nothing
    # live, is not ours.
    assert kinds(data) == {MISSING_FILE: 1, MISSING_CONTENT: 2 * count, NOT_OURS: 1}


@pytest.mark.parametrize("place", [0, 1])
def test_a_missing_journal_file(data: Path, store: Path, place: int) -> None:
    needed_journals(store)[place].unlink()
    assert kinds(data)[JOURNAL_GAP] == 1


def test_no_checkpoint_at_all(data: Path, store: Path) -> None:
    (store / "checkpoint").unlink()
    (store / "checkpoint.previous").unlink()
    result = check_directory(data)
    assert set(result.problem_counts) == {NO_CHECKPOINT}
    assert result.messages == MESSAGES


def test_a_crash_between_the_renames_of_a_checkpoint(data: Path, store: Path) -> None:
    """A crash between the renames leaves a whole checkpoint and everything that it needs."""
    (store / "checkpoint").unlink()
    result = check_directory(data)
    assert result.problems == [] and result.messages == MESSAGES
    assert any("checkpoint.previous and no checkpoint" in note for note in result.notes)
    flip(store / "checkpoint.previous", 100)
    assert set(kinds(data)) == {NO_CHECKPOINT, NOT_OURS}


def test_missing_definitions(data: Path) -> None:
    for path in data.glob("node.sqlite*"):
        path.unlink()
    result = check_directory(data)
    assert set(result.problem_counts) == {DEFINITIONS}
    assert result.messages == MESSAGES


def test_damaged_definitions(data: Path) -> None:
    for path in data.glob("node.sqlite-*"):
        path.unlink()
    (data / "node.sqlite").write_bytes(b"SQLite format 3\0" + bytes(4080))
    assert set(kinds(data)) == {DEFINITIONS}


def test_a_missing_store_id_and_a_missing_vhost(data: Path, store: Path) -> None:
    (store / "store_id").unlink()
    assert kinds(data) == {MISSING_FILE: 1}
    shutil.rmtree(store)
    assert kinds(data) == {NO_DIRECTORY: 1}


def test_a_vhost_that_is_not_defined(data: Path, store: Path) -> None:
    copy_of(store, store.parent / "7")
    result = check_directory(data)
    assert NO_DEFINITION in result.problem_counts
    assert result.messages >= MESSAGES


def test_a_queue_that_is_not_defined(data: Path, store: Path) -> None:
    (store / "queues/99").mkdir()
    shutil.copyfile(segments(store)[0], store / "queues/99/0.idx")
    assert kinds(data) == {NO_DEFINITION: 1}


# -- T27, T28: what contradicts itself -------------------------------------------------------------


def test_wrong_counts_of_a_segment(data: Path, store: Path) -> None:
    def edit(index: int, body: bytearray) -> None:
        if body[:4] == (1).to_bytes(4, "big"):
            # The live count of the first segment; see `encode_queue`.
            runs = int.from_bytes(body[29:33], "big")
            body[33 + 16 * runs + 4 + 19] ^= 1

    edit_checkpoint(store, CHECKPOINT_QUEUE, edit)
    assert kinds(data) == {WRONG_COUNT: 1}


def test_wrong_references_of_a_content(data: Path, store: Path) -> None:
    def edit(index: int, body: bytearray) -> None:
        if index == 1:
            # No reference has been released so far: add a release to the first content.
            count = int.from_bytes(body[16:20], "big")
            assert body[-4:] == bytes(4)
            body[-4:] = count.to_bytes(4, "big") + b"\0\1" + bytes(2 * (count - 1))

    edit_checkpoint(store, CHECKPOINT_CONTENT, edit)
    assert kinds(data) == {WRONG_COUNT: 1}


def test_a_content_that_is_there_twice(data: Path, store: Path) -> None:
    path = contents(store)[0]
    offsets = record_offsets(path, int(path.stem))
    change(path, lambda data: data.extend(data[offsets[0] : offsets[1]]))
    assert kinds(data) == {WRONG_COUNT: 1}


def test_a_copy_that_compaction_did_not_finish(data: Path, store: Path) -> None:
    (store / "msg_store_persistent/900.rdq.new").write_bytes(b"half")
    (store / "queues/1/0.idx.new").write_bytes(b"half")
    (store / "checkpoint.new").write_bytes(b"half")
    assert kinds(data) == {}


# -- what cannot be looked at ----------------------------------------------------------------------


def test_what_is_no_data_directory(tmp_path: Path) -> None:
    for path, text in (
        (tmp_path / "none", "is not a directory"),
        (tmp_path, "is not a data directory"),
    ):
        with pytest.raises(ToolError, match=text):
            check_directory(path)


def test_two_may_look_at_the_same_time(data: Path) -> None:
    with locked(data):
        assert isinstance(check_directory(data), CheckResult)
