"""Archives in an object store, and as tables that a log defines: each message once after crashes.

The store is a server with S3's interface; the node is in memory, and no JVM runs.
"""

import uuid
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from tests.pipeline.archives.inline_archive import Archive
from tests.spark.driving import fill
from tests.spark.links import MemoryLink, install
from tests.support.brokers.memory_node import MemoryDisk, MemoryNode
from tests.support.lake_rows import lake_rows
from warrenmq.pipeline import places, restore
from warrenmq.pipeline.archives import batch as archive_batch
from warrenmq.pipeline.archives import source as archive_source
from warrenmq.pipeline.archives.directory import ArchiveDirectory, Commit, Format
from warrenmq.pipeline.archives.iceberg import IcebergFiles
from warrenmq.pipeline.places import LocalPlace, place_of
from warrenmq.pipeline.replays.local import choose
from warrenmq.pipeline.result import JobError
from warrenmq.pipeline.unfinished import absolute

FORMATS: tuple[tuple[str, Format], ...] = (
    ("s3", "parquet"),
    ("s3", "delta"),
    ("s3", "iceberg"),
    ("disk", "iceberg"),
)


@pytest.fixture
def node() -> MemoryNode:
    node = MemoryNode(MemoryDisk())
    node.declare(b"a/b %")
    return node


@pytest.fixture
def link(node: MemoryNode, monkeypatch: pytest.MonkeyPatch) -> MemoryLink:
    return install(monkeypatch, node)


def new_archive(where: str, format: Format, bucket: str, directory: Path) -> Archive:
    """An archive at a place of its own."""
    library = {"delta": "deltalake", "iceberg": "pyiceberg"}.get(format)
    if library is not None:
        pytest.importorskip(library)
    target = f"{bucket}/{uuid.uuid4().hex}/archive" if where == "s3" else ""
    return Archive(directory, target, format)


def run(archive: Archive, max_messages: int = 10) -> None:
    archive.run(max_messages, pattern=".*")


def rows(archive: Archive) -> list[dict[str, Any]]:
    """All rows, as other programs find them."""
    return lake_rows(str(archive.books.place), archive.format)


class _CrashError(Exception):
    """Stands for a kill of the program at this step."""


_STEPS: dict[str, tuple[Any, str]] = {
    "read": (archive_source.ArchiveReader, "latestOffset"),
    "commit": (ArchiveDirectory, "commit"),
    "move": (ArchiveDirectory, "move"),
    "ack": (archive_batch, "put_in_place"),
}


@pytest.mark.parametrize(("where", "format"), FORMATS)
@pytest.mark.parametrize("step", list(_STEPS))
def test_a_crash_between_any_two_steps(
    where: str,
    format: Format,
    step: str,
    node: MemoryNode,
    link: MemoryLink,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a crash at any step of the second batch the next run has each message once."""
    archive = new_archive(where, format, bucket, tmp_path)
    fill(node, 25, queue=b"a/b %")
    owner, name = _STEPS[step]
    done = getattr(owner, name)
    left = 1
    with monkeypatch.context() as patch:

        def crash(*arguments: Any) -> Any:
            nonlocal left
            left -= 1
            # The crash at `ack` comes after the step, the others before theirs.
            if left < 0 and step != "ack":
                raise _CrashError
            found = done(*arguments)
            if left < 0:
                raise _CrashError
            return found

        patch.setattr(owner, name, crash)
        with pytest.raises(_CrashError):
            run(archive)
    run(archive, 7)
    found = rows(archive)
    assert [row["body"] for row in found] == [b"m%d" % number for number in range(25)]
    assert {row["queue"] for row in found} == {"a/b %"}
    assert node.vhost.queues[b"a/b %"].unacked_count == 0


def test_a_crash_between_the_copy_and_the_deletion(
    node: MemoryNode,
    link: MemoryLink,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file that is copied and not yet deleted counts once, and the next start deletes it."""
    archive = new_archive("s3", "parquet", bucket, tmp_path)
    fill(node, 5, queue=b"a/b %")
    system = places.pyarrow_system

    class Stopping:
        def __init__(self, scheme: str, authority: str) -> None:
            self.system = system(scheme, authority)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.system, name)

        def delete_file(self, path: str) -> None:
            raise _CrashError

    with monkeypatch.context() as patch:
        patch.setattr(places, "pyarrow_system", Stopping)
        with pytest.raises(_CrashError):
            run(archive)
    assert len(rows(archive)) == 5
    run(archive)
    assert [row["body"] for row in rows(archive)] == [b"m%d" % number for number in range(5)]
    staging = place_of(f"{archive.books.place}.staging")
    assert [file for file in staging.files() if file.bytes] == []


@pytest.mark.parametrize(("where", "format"), FORMATS)
def test_an_older_copy_of_the_checkpoint_is_refused(
    where: str, format: Format, node: MemoryNode, link: MemoryLink, bucket: str, tmp_path: Path
) -> None:
    """A checkpoint that knows fewer batches than the target is refused, and so is a new one."""
    archive = new_archive(where, format, bucket, tmp_path)
    fill(node, 25, queue=b"a/b %")
    run(archive)
    state = archive.books.checkpoint / "committed.json"
    newest = state.read_bytes()
    state.unlink()
    with pytest.raises(JobError, match=r"has batch 2, .* the checkpoint is an older copy"):
        run(archive)
    state.write_bytes(newest)
    run(archive)
    other = Archive(tmp_path / "other", str(archive.books.place), format)
    (tmp_path / "other").mkdir()
    with pytest.raises(JobError, match="is not empty and"):
        run(other)
    assert len(rows(archive)) == 25


def test_an_iceberg_table_that_others_change(
    node: MemoryNode,
    link: MemoryLink,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch is entered again in the version of another writer; new columns of others stay null.

    A column that the table lacks is added.
    """
    pytest.importorskip("pyiceberg")
    from pyiceberg.table.update import AddSnapshotUpdate
    from pyiceberg.types import StringType

    from warrenmq.pipeline.archives.iceberg_table import TableDirectory

    archive = new_archive("disk", "iceberg", bucket, tmp_path)
    fill(node, 5, queue=b"a/b %")
    run(archive)
    catalog = TableDirectory(LocalPlace(archive.books.target))
    with catalog.load_table().update_schema() as update:
        update.add_column("note", StringType())
        update.delete_column("app_id")
    commits = []
    sync = TableDirectory._sync_manifests

    def meanwhile(catalog: TableDirectory, updates: Any) -> None:
        commits.extend([update for update in updates if isinstance(update, AddSnapshotUpdate)])
        if len(commits) == 1 and isinstance(updates[0], AddSnapshotUpdate):
            with catalog.load_table().transaction() as transaction:
                transaction.set_properties({"owner": "somebody"})
        sync(catalog, updates)

    monkeypatch.setattr(TableDirectory, "_sync_manifests", meanwhile)
    fill(node, 5, 5, queue=b"a/b %")
    run(archive)
    assert len(commits) == 2
    found = rows(archive)
    assert [row["body"] for row in found] == [b"m%d" % number for number in range(10)]
    assert {(row["note"], row["app_id"]) for row in found} == {(None, None)}
    table = catalog.load_table()
    assert table.properties["owner"] == "somebody"
    # A filter on the columns of partitions leaves files out, and one on others uses statistics.
    assert len(list(table.scan("queue = 'no'").plan_files())) == 0
    assert len(list(table.scan("seq > 5").plan_files())) == 1


@pytest.mark.parametrize(("where", "format"), FORMATS)
def test_a_replay_without_spark_reads_what_counts(
    where: str, format: Format, node: MemoryNode, link: MemoryLink, bucket: str, tmp_path: Path
) -> None:
    """A replay has the messages of the archive, in order, and not what is left over."""
    archive = new_archive(where, format, bucket, tmp_path)
    fill(node, 25, queue=b"a/b %")
    run(archive)
    if format != "parquet":
        with archive.books.place.output("data/queue=x/date=2026-01-31/left.parquet") as file:
            file.write(b"what a killed task has left")
    found = choose([archive.books.place], None, None)
    assert found["body"].to_pylist() == [b"m%d" % number for number in range(25)]
    assert set(found["queue"].to_pylist()) == {"a/b %"}


def test_a_repeated_commit_is_one(
    node: MemoryNode, link: MemoryLink, bucket: str, tmp_path: Path
) -> None:
    """A batch that is entered twice is in the table once, also when its snapshot has expired."""
    archive = new_archive("disk", "iceberg", bucket, tmp_path)
    fill(node, 5, queue=b"a/b %")
    run(archive)
    files = IcebergFiles(archive.books)
    commit = archive.books.committed()
    assert isinstance(commit, Commit)
    version = files.newest_batch()
    files.commit(commit)
    assert files.newest_batch() == version == commit.batch
    assert len(rows(archive)) == 5


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("some/where", None),
        ("file:" + "///a%20b/c", "/a b/c"),
        ("file:/a/b", "/a/b"),
        ("/a:/b", "/a:/b"),
        ("s3a://lake/a/b/", "s3://lake/a/b"),
        ("gs://lake/a", "gs://lake/a"),
    ],
)
def test_places(text: str, found: str | None) -> None:
    """A path or a `file:` URI is a directory of this machine; s3a is S3."""
    assert str(place_of(text)) == (found or str(Path(text).absolute()))


def test_a_job_on_files_of_a_node_takes_no_uri_of_a_store(tmp_path: Path) -> None:
    """It says so; a `file:` URI is a path."""
    with pytest.raises(JobError, match="is not on a disk of this machine, and this job needs"):
        restore(tmp_path, "s3://lake/data")
    assert absolute(f"file://{tmp_path}/a/../b") == tmp_path / "b"


@pytest.mark.parametrize(
    "text",
    [
        "s3://lake",
        "s3:/lake/a",
        "s3://key:secret@lake/a",
        "s3://lake/a?region=x",
        "nosuch://lake/a",
    ],
)
def test_places_that_cannot_be(text: str) -> None:
    """A URI without a path, with a secret or of an unknown kind is one line."""
    with pytest.raises(JobError, match=r"^[^\n]+$"):
        place_of(text).files()
