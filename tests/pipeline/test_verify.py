"""`verify` reports the same as `warren store check`, for clean and for damaged directories."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import pyarrow.parquet as pq

from tests.support.spark.inline import InlineSpark
from tests.support.stores.stopped_node import MESSAGES, change, edit_checkpoint, fingerprint
from tests.support.stores.stopped_node_fixtures import data, original, store
from warrenmq.offline.check import check_directory
from warrenmq.offline.data_directory import ToolError
from warrenmq.pipeline import verify_job
from warrenmq.pipeline.verify_job import VerifyResult, verify
from warrenmq.store.records.checkpoint import CHECKPOINT_CONTENT, CHECKPOINT_QUEUE

__all__ = ["data", "original", "store"]

# The first test makes the data directory, so it takes longest.
pytestmark = [pytest.mark.kill, pytest.mark.timeout(300)]


def run_verify(directory: Path, **more: Path) -> VerifyResult:
    return verify(directory, spark=InlineSpark(), **more)  # type: ignore[arg-type]  # does as much as is needed


def must_agree(directory: Path) -> VerifyResult:
    """Assert that `verify` and the check find the same problems; return the result of `verify`."""
    found, expected = run_verify(directory), check_directory(directory)
    assert found.counts == dict(expected.problem_counts)
    assert [vars(row) for row in found.damage] == [vars(row) for row in expected.problems]
    assert found.notes == expected.notes
    figures = (expected.queues, expected.messages, expected.contents)
    assert (found.queues, found.messages, found.contents) == figures
    assert found.clean == expected.is_clean and found.exit_code == (0 if expected.is_clean else 1)
    return found


def paths(store: Path, pattern: str) -> list[Path]:
    return sorted(store.glob(pattern), key=lambda path: int(path.stem))


def forget_checkpoints(store: Path) -> None:
    for name in ("checkpoint", "checkpoint.previous"):
        (store / name).unlink()


def flip(path: Path, seed: int) -> None:
    def edit(raw: bytearray) -> None:
        raw[random.Random(seed).randrange(40, len(raw))] ^= 1 << seed % 8

    change(path, edit)


def test_a_killed_node_is_clean(original: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(original)
    assert must_agree(original).messages == MESSAGES
    # Many small tasks find the same.
    monkeypatch.setattr(verify_job, "TASK_BYTES", 100_000)
    must_agree(original)
    assert fingerprint(original) == before


EDITS: list[Callable[[Path], object]] = [
    lambda store: paths(store, "queues/1/*.idx")[1].unlink(),
    lambda store: paths(store, "queues/1/*.idx")[1].write_bytes(bytes(4096)),
    lambda store: paths(store, "msg_store_persistent/*.rdq")[0].unlink(),
    lambda store: paths(store, "msg_store_persistent/*.rdq")[0].write_bytes(b"noise" * 100),
    lambda store: paths(store, "journal/*.wal")[-2].unlink(),
    lambda store: (store / "checkpoint").unlink(),
    lambda store: forget_checkpoints(store),
    lambda store: (store / "queues/backup").mkdir(),
    lambda store: (store.parents[2] / "node.sqlite").write_bytes(b"no database"),
    lambda store: (store / "store_id").unlink(),
    lambda store: edit_checkpoint(
        store, CHECKPOINT_CONTENT, lambda _, body: body.__setitem__(35, body[35] ^ 1)
    ),
    lambda store: edit_checkpoint(
        store, CHECKPOINT_QUEUE, lambda _, body: body.__setitem__(11, body[11] ^ 1)
    ),
    *(
        lambda store, pattern=pattern, seed=seed: flip(paths(store, pattern)[seed % 2], seed)
        for pattern in (
            "queues/1/*.idx",
            "msg_store_persistent/*.rdq",
            "journal/*.wal",
            "queues/2/*.idx",
        )
        for seed in range(1)
    ),
]


@pytest.mark.parametrize("number", range(len(EDITS)))
def test_damage(data: Path, store: Path, number: int) -> None:
    EDITS[number](store)
    must_agree(data)


def test_the_table_of_damage(data: Path, store: Path, tmp_path: Path) -> None:
    """The Parquet table of damage has kind, file, queue and byte range of each problem."""
    path = paths(store, "queues/1/*.idx")[0]
    change(path, lambda raw: raw.__setitem__(5000, raw[5000] ^ 1))
    result = run_verify(data, damage_to=tmp_path / "damage.parquet")
    assert result.exit_code == 1
    (row,) = pq.read_table(tmp_path / "damage.parquet").to_pylist()
    assert (row["kind"], row["path"], row["queue_id"], row["count"]) == (
        "damaged",
        "queues/1/0.idx",
        1,
        1,
    )
    assert row["start"] <= 5000 < row["end"]
    assert "queues/1/0.idx" in result.lines()[0] and result.lines()[-1] == "problems: 1 damaged"


def test_an_interrupted_one_is_gone_on_with(data: Path, tmp_path: Path) -> None:
    class Dying(InlineSpark):
        def __init__(self) -> None:
            super().__init__()
            self.on_partition = lambda: (_ for _ in ()).throw(KeyboardInterrupt)

    work = tmp_path / "work"
    with pytest.raises(KeyboardInterrupt):
        verify(data, work=work, spark=Dying())  # type: ignore[arg-type]  # as above
    assert run_verify(data, work=work).clean
    assert not work.exists()
    with pytest.raises(KeyboardInterrupt):
        verify(data, work=work, spark=Dying())  # type: ignore[arg-type]  # as above
    (data / "new").touch()
    with pytest.raises(ToolError, match="of another state"):
        run_verify(data, work=work)


def test_a_place_for_the_damage_that_is_not_there(data: Path, tmp_path: Path) -> None:
    """A missing place for the damage table is refused before reading; `work` keeps the results."""
    with pytest.raises(ToolError, match=r"there is no directory .*nothing"):
        verify(data, damage_to=tmp_path / "nothing/damage.parquet")
    (tmp_path / "a directory").mkdir()
    with pytest.raises(ToolError, match=r"a directory cannot be written"):
        run_verify(data, damage_to=tmp_path / "a directory", work=tmp_path / "work")
    assert (tmp_path / "work").is_dir()
