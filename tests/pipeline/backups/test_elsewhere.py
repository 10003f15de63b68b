"""Backups in an object store: whole or not there whatever is killed, and restored bit for bit.

The store is a server with S3's interface.
"""

import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyarrow import fs

from tests.pipeline.backups.test_backup import definitions_of, exact_rows
from tests.pipeline.test_interrupted_jobs import make_store
from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.process import BrokerProcess
from tests.support.kills.ledger import Confirms, connect
from tests.support.kills.mixed_vhost import SETTINGS
from tests.support.spark.inline import InlineSpark
from tests.support.stores.dying_store import DyingSystem
from tests.support.stores.made_backups import Backups, run_backup, run_restore
from warrenmq.offline.data_directory import ToolError
from warrenmq.pipeline import places, restore_live
from warrenmq.pipeline.backups.chain import check_file, open_chain, rows_of_queue
from warrenmq.pipeline.backups.manifest import SEQ_END
from warrenmq.pipeline.places import LocalPlace, path_between, place_from, place_of
from warrenmq.pipeline.result import JobError
from warrenmq.pipeline.unfinished import CLAIM_NAME
from warrenmq.tables import planning

pytestmark = [pytest.mark.kill, pytest.mark.timeout(240)]

ROOT = Path(__file__).parent.parent.parent.parent


@pytest.fixture
def lake(bucket: str) -> str:
    """The URI of a new directory in the store."""
    return f"{bucket}/{uuid.uuid4().hex}"


def copy(origin: str | Path, goal: str | Path) -> None:
    """Copy a directory as the store's own tools do."""

    def place(text: str | Path) -> tuple[Any, str]:
        found = place_of(text)
        if isinstance(found, LocalPlace):
            return fs.LocalFileSystem(), str(found)
        return places.pyarrow_system(found.scheme, found.authority), found._full("")

    (origin_system, origin_path), (goal_system, goal_path) = place(origin), place(goal)
    fs.copy_files(
        origin_path, goal_path, source_filesystem=origin_system, destination_filesystem=goal_system
    )


def names(target: str) -> list[str]:
    """The files of a backup, those in directories without their names."""
    return [file.name.partition("/")[0] for file in place_of(target).files()]


def rows_in(target: str) -> list[dict[str, Any]]:
    """All rows of a backup, whose files are compared with the manifests."""
    chain = open_chain(target)
    assert [check_file(file) for file in chain.all_files()] == [""] * len(chain.all_files())
    return [
        row
        for queue in chain.last.queues
        for batch in rows_of_queue(chain, queue.id, 0, SEQ_END)
        for row in batch.to_pylist()
    ]


def test_restored_bit_for_bit(backups: Backups, lake: str, tmp_path: Path) -> None:
    """A backup in the store, and one that builds on it, have all rows and definitions.

    The chain is restored wherever it is moved, into a directory and into a running node.
    """
    copy(backups.live, f"{lake}/live")
    made = run_backup(
        backups.data, f"{lake}/increment", base=f"{lake}/live", work=tmp_path / "work"
    )
    assert (made.backup, made.base) == (f"{lake}/increment", backups.results["live"].id)
    assert made.written_messages < made.messages
    assert set(names(made.backup)) == {"alive", "data", "manifest.json", "topology.json"}
    assert not list(tmp_path.iterdir())
    copy(f"{lake}/increment", f"{lake}/moved/increment")
    copy(f"{lake}/live", f"{lake}/moved/live")
    place_of(f"{lake}/live").clear()
    assert run_restore(f"{lake}/moved/increment", tmp_path / "data").chain == 2
    assert exact_rows(tmp_path / "data") == exact_rows(backups.data)
    assert definitions_of(tmp_path / "data") == definitions_of(backups.data)
    copy(f"{lake}/moved", tmp_path / "moved")
    assert rows_in(str(tmp_path / "moved/increment")) == rows_in(f"{lake}/moved/increment")
    place_of(f"{lake}/moved/live").clear()
    with pytest.raises(ToolError, match=r"name it with --base, since s3://\S+ has no manifest"):
        run_restore(f"{lake}/moved/increment", tmp_path / "mixed")
    bases = [tmp_path / "moved/live"]
    node = BrokerProcess(tmp_path / "node", *SETTINGS)
    node.start()
    try:
        spark: Any = InlineSpark()
        live = restore_live(f"{lake}/moved/increment", node.uri, bases=bases, spark=spark)
        assert (live.restored, live.differences) == (made.messages, [])
    finally:
        node.kill()


class Killed(BaseException):
    """Stands for a kill of the program; a BaseException, so that no handler runs."""


def die() -> None:
    raise Killed


def test_killed_before_each_change_in_the_store(
    lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a kill there is no backup, or all of it; another call makes it, and leaves nothing."""
    source = make_store(tmp_path / "store")
    run_backup(source, tmp_path / "expected")
    expected = rows_in(str(tmp_path / "expected"))
    assert len(expected) == 10
    work = tmp_path / "work"
    count = 0
    while True:
        target = f"{lake}/{count}"
        with monkeypatch.context() as patch:
            patch.setattr(places, "pyarrow_system", DyingSystem(count, die))
            try:
                run_backup(source, target, work=work)
                break
            except Killed:
                count += 1
        is_whole = "manifest.json" in names(target)
        if is_whole:
            assert rows_in(target) == expected
        elif count > 1:
            with pytest.raises(ToolError, match=r"manifest\.json: it is no backup"):
                run_restore(target, tmp_path / "data")
            with pytest.raises(ToolError, match="unfinished result of another job"):
                run_backup(source, target, work=tmp_path / "other")
        uploaded = [file.name for file in place_of(target).joined("data").files()]
        assert run_backup(source, target, work=work).messages == 10
        assert rows_in(target) == expected
        assert sorted(names(target)) == ["data", "manifest.json", "topology.json"]
        assert set(uploaded) <= {file.name for file in place_of(target).joined("data").files()}
        assert sorted(path.name for path in tmp_path.iterdir()) == ["expected", "store"]
    # The claim, the messages, the definitions, the manifest, and the end of the claim.
    assert count >= 5


def test_a_backup_of_a_running_node_goes_on_after_sigkill(lake: str, tmp_path: Path) -> None:
    """The command continues the killed backup, snapshot included."""
    node = BrokerProcess(tmp_path / "node")
    node.start()
    target, work = f"{lake}/backup", tmp_path / "work"
    try:
        channel = connect(node).channel()
        channel.declare(b"q", durable=True)
        confirms = Confirms(channel)
        for number in range(50):
            confirms.publish(b"q", b"%d" % number, PERSISTENT, b"", lambda: None)
        confirms.drain()

        def run(after: int) -> int:
            command = [sys.executable, "-m", "tests.support.stores.dying_store", str(after)]
            command += ["pipeline", "backup", target, "--uri", node.uri, "--work", str(work)]
            return subprocess.run([*command, "--engine", "local"], cwd=ROOT, check=False).returncode

        assert run(2) == -signal.SIGKILL
        assert set(names(target)) == {CLAIM_NAME, "data"}
        assert list(work.glob("warren-snapshot-*"))
        assert run(99) == 0
    finally:
        node.kill()
    assert not work.exists()
    run_restore(target, tmp_path / "data")
    found = exact_rows(tmp_path / "data")
    assert len(found) == 50 and found == exact_rows(tmp_path / "node/data")


def test_two_jobs_that_make_one_backup(lake: str, tmp_path: Path) -> None:
    """The later one has the place; the other ends with an error and leaves the backup alone."""
    source = make_store(tmp_path / "store")
    target = f"{lake}/backup"
    claim = place_of(target)

    def take_over() -> None:
        claim.replace(CLAIM_NAME, b"another job's")

    spark = InlineSpark()
    spark.on_partition = take_over
    with pytest.raises(ToolError, match="another job has begun to make"):
        run_backup(source, target, work=tmp_path / "work", spark=spark)
    assert "manifest.json" not in names(target)
    claim.clear()
    spark.on_partition = die
    with pytest.raises(Killed):
        run_backup(source, target, work=tmp_path / "work", spark=spark)
    claim.clear()
    run_backup(source, target, work=tmp_path / "other")
    found = rows_in(target)
    with pytest.raises(ToolError, match="is not empty"):
        run_backup(source, target, work=tmp_path / "work")
    assert rows_in(target) == found


def test_files_that_somebody_has_removed(
    lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed job does not finish a backup without the files that it has written before."""
    monkeypatch.setattr(planning, "PARTITION_BYTES", 1)
    source = make_store(tmp_path / "store")
    spark = InlineSpark()
    left = [None]
    spark.on_partition = lambda: left.pop() if left else die()
    with pytest.raises(Killed):
        run_backup(source, lake, work=tmp_path / "work", spark=spark)
    assert names(lake).count("data") == 1
    place_of(lake).clear()
    with pytest.raises(JobError, match="is not as this job has written it"):
        run_backup(source, lake, work=tmp_path / "work")
    assert "manifest.json" not in names(lake)


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_damaged_files(lake: str, tmp_path: Path, damage: str) -> None:
    """A restore compares the files with the manifest before it makes anything."""
    run_backup(make_store(tmp_path / "store"), lake, work=tmp_path / "work")
    place = place_of(lake).joined("data")
    name = place.files()[0].name
    with place.input(name) as file:
        raw = bytearray(file.read())
    raw[len(raw) // 2] ^= 1
    if damage == "gone":
        place.remove([name, name])
    else:
        place.replace(name, bytes(raw if damage == "flip" else raw[:-10]))
    with pytest.raises(ToolError, match=r"the backup is damaged: s3://\S+ (is missing|has )"):
        run_restore(lake, tmp_path / "data")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_directories_of_the_progress(lake: str, tmp_path: Path) -> None:
    """A URI needs one that is new; a target on a disk takes none."""
    source = make_store(tmp_path / "store")
    with pytest.raises(JobError, match=r"name a directory of this machine .* \(work\)"):
        run_backup(source, lake)
    with pytest.raises(JobError, match="for a URI only"):
        run_backup(source, tmp_path / "backup", work=tmp_path / "work")
    with pytest.raises(JobError, match="is not empty: name a new directory"):
        run_backup(source, lake, work=source)
    with pytest.raises(JobError, match="is not on a disk of this machine"):
        run_backup(source, lake, work=lake)
    with pytest.raises(JobError, match="there is no directory"):
        run_backup(source, lake, work=tmp_path / "no/work")
    place_of(lake).replace("something", b"else")
    with pytest.raises(ToolError, match="is not empty"):
        run_backup(source, lake, work=tmp_path / "work")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize(
    ("start", "goal", "path"),
    [
        ("/a/b", "/a/c", "../c"),
        ("s3://lake/a/b", "s3://lake/a/c", "../c"),
        ("s3://lake/a/b", "s3://lake/c/d", "../../c/d"),
        ("s3://lake/a", "s3://other/a", "s3://other/a"),
        ("s3://lake/a", "/a/b", "/a/b"),
        ("/a", "s3://lake/a", "s3://lake/a"),
    ],
)
def test_places_seen_from_each_other(start: str, goal: str, path: str) -> None:
    """The base of a backup is found from there, also when both have moved."""
    assert path_between(place_of(start), place_of(goal)) == path
    assert place_from(place_of(start), path) == place_of(goal)
