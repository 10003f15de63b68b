"""`warren store salvage` puts the rest of a damaged directory into a new one; the old one stays."""

import random
import shutil
from pathlib import Path

import pytest

from tests.kill.test_restart import publish
from tests.store.test_check import contents, flip, logs, needed_journals, record_offsets
from tests.support.brokers.process import BrokerProcess
from tests.support.kills.ledger import connect
from tests.support.stores.stopped_node import (
    FAN,
    LARGE,
    MESSAGES,
    SMALL,
    fingerprint,
    large_body,
    small_body,
)
from warrenmq.offline.check import check_directory
from warrenmq.offline.data_directory import DataDirectory, ToolError, files_of, opened
from warrenmq.offline.problems import JOURNAL_GAP
from warrenmq.offline.salvage import SalvageResult, salvage
from warrenmq.store.disk.snapshot import VhostSnapshot

pytestmark = pytest.mark.kill


def names(directory: DataDirectory) -> dict[int, bytes]:
    return {queue.id: queue.name for queue in directory.definitions.queues}


def bodies(path: Path) -> dict[bytes, list[bytes]]:
    """The bodies in each queue, in order."""
    found: dict[bytes, list[bytes]] = {}
    with opened(path) as directory:
        for vhost in directory.vhosts:
            with files_of(vhost) as files:
                snapshot = VhostSnapshot(files)
                for queue in snapshot.queues():
                    row = found.setdefault(names(directory)[queue.ledger.queue_id], [])
                    for position in snapshot.positions(queue):
                        message = snapshot.message(position)
                        assert message is not None
                        row.append(message.body)
    return found


def salvaged(data: Path, tmp_path: Path) -> tuple[SalvageResult, dict[bytes, list[bytes]]]:
    """Salvage into a directory that checks clean, with the old directory untouched."""
    before = fingerprint(data)
    target = tmp_path / "salvaged"
    result = salvage(data, target)
    assert fingerprint(data) == before
    checked = check_directory(target)
    assert checked.problems == [] and checked.notes == []
    assert checked.messages == result.messages
    return result, bodies(target)


def everything() -> dict[bytes, list[bytes]]:
    return {
        b"small": [small_body(number) for number in SMALL],
        b"large": [large_body(number) for number in LARGE],
        b"fan": [large_body(number) for number in FAN],
    }


def test_all_of_a_directory_without_damage(data: Path, tmp_path: Path) -> None:
    result, found = salvaged(data, tmp_path)
    assert result.losses == [] and result.lost == 0 and result.messages == MESSAGES
    assert found == everything()
    node = BrokerProcess(tmp_path / "node")
    shutil.move(tmp_path / "salvaged", tmp_path / "node/data")
    node.start()
    try:
        channel = connect(node).channel()
        assert channel.drain(b"large") == everything()[b"large"]
        assert len(channel.drain(b"fan")) == len(FAN)
        channel.publish(b"", b"routed", exchange=b"both")
        assert channel.drain(b"large") == [b"routed"], "definitions came over too"
        assert channel.get(b"small").body == small_body(SMALL[0])
    finally:
        node.kill()


def test_without_checkpoints_everything_is_there(data: Path, store: Path, tmp_path: Path) -> None:
    """Only the acks that the checkpoints knew are lost."""
    (store / "checkpoint").unlink()
    (store / "checkpoint.previous").unlink()
    result, found = salvaged(data, tmp_path)
    assert result.losses == []
    assert "there is no usable checkpoint" in result.notes[0]
    for queue, expected in everything().items():
        assert found[queue][-len(expected) :] == expected


def test_damaged_records_cost_their_own_messages(data: Path, store: Path, tmp_path: Path) -> None:
    for path in (logs(store)[-1], contents(store)[1], needed_journals(store)[0]):
        offsets = record_offsets(path, int(path.stem))
        flip(path, offsets[len(offsets) // 2] + 50)
    result, found = salvaged(data, tmp_path)
    # Lost: one content that an index refers to, and one that two queues share. The journal's record
    # may be of any kind.
    assert result.lost == 3 and len(result.losses) >= 3
    for queue, expected in everything().items():
        missing = set(expected) - set(found[queue])
        assert len(missing) == {b"small": 2, b"large": 1, b"fan": 1}[queue]
        assert found[queue] == [body for body in expected if body not in missing]


def test_large_messages_whose_index_is_lost_are_found_in_the_content_files(
    data: Path, store: Path, tmp_path: Path
) -> None:
    """Each content in a content file names its positions."""
    shutil.rmtree(store / "queues")
    result, found = salvaged(data, tmp_path)
    assert found[b"large"] == everything()[b"large"]
    assert found[b"fan"] == everything()[b"fan"]
    in_journal = found[b"small"]
    assert in_journal == everything()[b"small"][-len(in_journal) :]
    assert result.lost == len(SMALL) - len(in_journal)


def test_a_damaged_reference_is_found_again_in_its_place(
    data: Path, store: Path, tmp_path: Path
) -> None:
    segment = store / "queues/2/0.idx"
    offsets = record_offsets(segment, 2 << 32)
    for offset in offsets[10:20]:
        flip(segment, offset + 30)
    result, found = salvaged(data, tmp_path)
    assert found == everything()
    assert result.lost == 0


def test_lost_definitions_are_made_up(data: Path, tmp_path: Path) -> None:
    for path in data.glob("node.sqlite*"):
        path.unlink()
    result, found = salvaged(data, tmp_path)
    assert found == {
        b"salvaged-1": everything()[b"small"],
        b"salvaged-2": everything()[b"large"],
        b"salvaged-3": everything()[b"fan"],
    }
    assert any("is called 'salvaged-1'" in note for note in result.notes)
    shutil.move(tmp_path / "salvaged", tmp_path / "node/data")
    node = BrokerProcess(tmp_path / "node")
    node.start()
    try:
        assert connect(node).channel().drain(b"salvaged-2") == everything()[b"large"]
    finally:
        node.kill()


def test_missing_files(data: Path, store: Path, tmp_path: Path) -> None:
    content = contents(store)[1]
    shared = len(record_offsets(content, int(content.stem)))
    content.unlink()
    (store / "store_id").unlink()
    result, found = salvaged(data, tmp_path)
    assert result.lost == 2 * shared
    assert found[b"small"] == everything()[b"small"]
    assert len(found[b"fan"]) == len(FAN) - shared


@pytest.mark.parametrize("place", [0, 1])
def test_a_missing_journal_file_is_a_loss_of_unknown_size(
    data: Path, store: Path, tmp_path: Path, place: int
) -> None:
    missing = needed_journals(store)[place]
    missing.unlink()
    result, found = salvaged(data, tmp_path)
    line, *counted = result.losses
    assert f"journal/{missing.name}" in line
    assert result.uncounted == 1
    # Positions in the index say how many of their contents were in the file.
    assert len(counted) == (result.lost > 0)
    assert len(found[b"small"]) < len(SMALL)
    (gap,) = [
        problem.text for problem in check_directory(data).problems if problem.kind == JOURNAL_GAP
    ]
    assert gap.removesuffix(" is missing") in line


def test_large_messages_that_a_node_kept_in_its_journal(tmp_path: Path) -> None:
    """Messages are salvaged whose node had a higher threshold than the new directory."""
    node = BrokerProcess(tmp_path / "node", "queue_index_embed_msgs_below=1MiB")
    node.start()
    channel = connect(node).channel()
    channel.declare(b"q", durable=True)
    publish(channel, b"q", *[large_body(number) for number in range(20)])
    node.kill()
    result, found = salvaged(tmp_path / "node/data", tmp_path)
    assert found == {b"q": [large_body(number) for number in range(20)]}
    assert result.lost == 0


def replace(path: Path, start: int, new: bytes, end: int | None) -> None:
    """Replace bytes [start, end) of the file by `new`; `end` None: to the end of the file."""
    data = path.read_bytes()
    path.write_bytes(data[:start] + new + (b"" if end is None else data[end:]))


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_damaged_the_result_is_whole(
    data: Path, store: Path, tmp_path: Path, seed: int
) -> None:
    """No wrong message comes out, and no message out of order."""
    choose = random.Random(seed)
    paths = [path for path in data.rglob("*") if path.is_file() and path.stat().st_size > 0]
    for path in choose.sample(paths, len(paths) // 3):
        how = choose.randrange(4)
        size = path.stat().st_size
        if how == 0:
            path.unlink()
        elif how == 1:
            replace(path, choose.randrange(size), b"", None)
        else:
            at = choose.randrange(size)
            noise = choose.randbytes(choose.choice((1, 20, 5000)))
            replace(path, at, noise, at + len(noise))
    if not (store / "journal").exists() or not list(store.iterdir()):
        return
    _, found = salvaged(data, tmp_path)
    valid = {body for queue in everything().values() for body in queue}
    valid |= {small_body(number) for number in range(SMALL[0])} | {large_body(0), large_body(1000)}
    for queue in found.values():
        assert set(queue) <= valid
        assert queue == sorted(queue)


def test_what_is_refused(data: Path, tmp_path: Path) -> None:
    for target, text in (
        (data / "new", "is not to be written to"),
        (data, "is not to be written to"),
        (tmp_path, "is not empty"),
        (data / "node.sqlite", "is not to be written to"),
    ):
        with pytest.raises(ToolError, match=text):
            salvage(data, target)
