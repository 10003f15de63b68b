"""`rebuild-index` recovers lost positions from journal and content files, and reports the rest."""

from pathlib import Path

import pytest

from tests.support.spark.inline import InlineSpark
from tests.support.stores.stopped_node import FAN, LARGE, MESSAGES, SMALL, change, fingerprint
from tests.support.stores.stopped_node_fixtures import data, original, store
from warrenmq.offline.check import check_directory
from warrenmq.offline.data_directory import ToolError, files_of, opened
from warrenmq.pipeline.rebuild_index_job import RebuildIndexResult, rebuild_index
from warrenmq.store.disk.snapshot import VhostSnapshot

__all__ = ["data", "original", "store"]

# The first test makes the data directory, so it takes longest.
pytestmark = [pytest.mark.kill, pytest.mark.timeout(300)]


def rebuild(source: Path, target: Path) -> RebuildIndexResult:
    return rebuild_index(source, target, spark=InlineSpark())  # type: ignore[arg-type]  # does as much as is needed


def messages_in(directory: Path) -> dict[tuple[int, int], tuple[bytes, bytes, bytes]]:
    """Return address, properties and body of every message by (queue id, seq id)."""
    found = {}
    with opened(directory) as known, files_of(known.vhosts[0]) as files:
        snapshot = VhostSnapshot(files)
        defined = {queue.id for queue in known.definitions.queues}
        for queue in snapshot.queues():
            for position in snapshot.positions(queue) if queue.ledger.queue_id in defined else []:
                message = snapshot.message(position)
                assert message is not None
                content = message.address, message.properties, message.body
                found[queue.ledger.queue_id, position.seq] = content
    return found


def test_nothing_lost(original: Path, tmp_path: Path) -> None:
    before = fingerprint(original)
    result = rebuild(original, tmp_path / "new")
    assert (result.messages, result.found_again, result.exit_code) == (MESSAGES, 0, 0)
    assert messages_in(tmp_path / "new") == messages_in(original)
    assert fingerprint(original) == before


def logs_of(store: Path) -> list[Path]:
    """The files that have left the journal, oldest first."""
    paths = store.glob("msg_store_persistent/*.wal")
    return sorted(paths, key=lambda path: int(path.stem))


def test_all_segments_lost(data: Path, store: Path, original: Path, tmp_path: Path) -> None:
    """Large messages come from content files, small ones from the journal and from logs."""
    for path in store.glob("queues/*/*.idx"):
        path.unlink()
    result = rebuild(data, tmp_path / "new")
    assert messages_in(tmp_path / "new") == messages_in(original)
    assert (result.lost, result.exit_code) == (0, 0)
    assert result.found_again > len(LARGE) + len(FAN)
    assert check_directory(tmp_path / "new").is_clean


def test_all_segments_and_a_log_lost(
    data: Path, store: Path, original: Path, tmp_path: Path
) -> None:
    """No message is duplicated or changed; those of the lost log are reported missing."""
    for path in store.glob("queues/*/*.idx"):
        path.unlink()
    logs_of(store)[1].unlink()
    result = rebuild(data, tmp_path / "new")
    before, after = messages_in(original), messages_in(tmp_path / "new")
    assert after.items() <= before.items()
    assert result.messages == len(after) and result.lost == len(before) - len(after)
    large = len(LARGE) + len(FAN)
    assert sum(queue.messages for queue in result.queues if queue.name != "small") == large
    assert result.exit_code == 1 and 0 < result.lost < len(SMALL)
    (small,) = [queue for queue in result.queues if queue.name == "small"]
    missing = {seq for first, last in small.missing for seq in range(first, last + 1)}
    assert {seq for queue, seq in before.keys() - after.keys() if queue == small.id} <= missing
    assert not missing & {seq for queue, seq in after if queue == small.id}
    assert check_directory(tmp_path / "new").is_clean
    assert any("found again" in line for line in result.lines())


def test_what_old_journal_files_have(
    data: Path, store: Path, original: Path, tmp_path: Path
) -> None:
    """Positions of a lost last segment are recovered from journal files that still exist."""
    last = max(store.glob("queues/1/*.idx"), key=lambda path: int(path.stem))
    last.unlink()
    result = rebuild(data, tmp_path / "new")
    before, after = messages_in(original), messages_in(tmp_path / "new")
    assert after.items() <= before.items()
    assert result.found_again > 0
    assert result.lost == len(before) - len(after)


def test_a_damaged_stretch(data: Path, store: Path, original: Path, tmp_path: Path) -> None:
    change(
        store / "queues/1/0.idx", lambda raw: raw.__setitem__(slice(300_000, 301_000), bytes(1000))
    )
    result = rebuild(data, tmp_path / "new")
    before, after = messages_in(original), messages_in(tmp_path / "new")
    assert after.items() <= before.items()
    # Entries have their contents in logs, and are found again by them.
    assert 0 == result.lost == len(before) - len(after) < result.found_again
    assert check_directory(tmp_path / "new").is_clean


def test_what_is_in_the_way(original: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new/file").touch()
    with pytest.raises(ToolError, match="is not empty"):
        rebuild(original, tmp_path / "new")
    with pytest.raises(ToolError, match="lies in"):
        rebuild(original, original / "new")
    with pytest.raises(ToolError, match="not a data directory"):
        rebuild(tmp_path, tmp_path.parent / "nothing")
    assert not list(tmp_path.parent.glob(".nothing*"))


def test_a_damaged_content_in_a_log(
    data: Path, store: Path, original: Path, tmp_path: Path
) -> None:
    change(logs_of(store)[0], lambda raw: raw.__setitem__(slice(300_000, 301_000), bytes(1000)))
    result = rebuild(data, tmp_path / "new")
    before, after = messages_in(original), messages_in(tmp_path / "new")
    assert after.items() <= before.items()
    assert 0 < result.lost == len(before) - len(after) < 20
    assert check_directory(tmp_path / "new").is_clean
