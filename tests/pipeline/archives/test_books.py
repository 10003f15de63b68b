"""An archive's directory, without Spark: repeated batches, crashes between all steps, merges."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from warrenmq.pipeline.archives import merge as archive_merge
from warrenmq.pipeline.archives.delta import DeltaFiles
from warrenmq.pipeline.archives.directory import (
    ArchiveDirectory,
    Commit,
    StagedFile,
    parquet_figures,
    partition_of,
)
from warrenmq.pipeline.archives.files import StagedFiles
from warrenmq.pipeline.archives.merge import (
    Merger,
    ParquetFiles,
    SmallFile,
    choose,
    exchange,
    merged_name,
)
from warrenmq.pipeline.places import LocalPlace
from warrenmq.pipeline.result import JobError

QUEUE = "queue=a%2Fb %25/date=2026-01-31"


@pytest.fixture
def books(tmp_path: Path) -> ArchiveDirectory:
    books = ArchiveDirectory(tmp_path / "target", tmp_path / "target.checkpoint")
    with books.locked():
        books.open("parquet", "/", "g")
    books.id = "0badc0de1"
    return books


def stage(
    books: ArchiveDirectory, batch: int, partition: str = QUEUE, rows: int = 10
) -> list[StagedFile]:
    """Write the two files of a batch, as tasks do; seq ids continue from batch to batch."""
    staged = books.new_staging()
    found = []
    for part in (1, 0):
        first = (2 * batch + part) * rows
        table = pa.table({"seq": range(first, first + rows), "body": [b"x" * 50] * rows})
        name = f"{partition}/part-{part:05d}-c000.zstd.parquet"
        with staged.output(name) as file:
            pq.write_table(table, file)
        found.append(StagedFile(name, staged.size(name), rows, first, first + rows - 1))
    return found


def run_batch(books: ArchiveDirectory, batch: int) -> Commit:
    commit = books.commit(stage(books, batch), {"pos": batch})
    books.move(commit)
    return commit


def seqs(books: ArchiveDirectory) -> list[int]:
    """All seq ids in the target's files, sorted, as any Parquet reader finds them."""
    files = [path for path in books.target.rglob("*.parquet") if "_delta_log" not in path.parts]
    return sorted(
        seq for path in files for seq in pq.read_table(path, partitioning=None)["seq"].to_pylist()
    )


def test_a_batch_counts_once(books: ArchiveDirectory) -> None:
    """A committed batch counts once: its number is known, totals add up, all files are finished."""
    assert books.committed() is None
    run_batch(books, 0)
    commit = run_batch(books, 1)
    assert books.committed() == commit
    assert (commit.batch, commit.offset) == (1, {"pos": 1})
    assert (commit.total_rows, [file.rows for file in commit.files]) == (40, [10, 10])
    assert [(file.seq_first, file.seq_last) for file in commit.files] == [(20, 29), (30, 39)]
    assert commit.files[0].partition == {"queue": "a/b %", "date": "2026-01-31"}
    assert seqs(books) == list(range(40))
    assert {path.name.count("part-0badc0de-") for path in books.target.rglob("*.parquet")} == {1}


def test_a_crash_before_the_commit_leaves_nothing_in_the_target(books: ArchiveDirectory) -> None:
    """After a crash before the commit the target is empty; the next attempt has a new directory."""
    stage(books, 0)
    first = {path for path in books.checkpoint.rglob("*.parquet")}
    again = stage(books, 0)
    assert len(first) == 2
    assert not any(path.exists() for path in first)
    assert books.committed() is None
    books.move(books.commit(again, {}))
    assert seqs(books) == list(range(20))


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_crash_after_the_commit_is_gone_on_with(books: ArchiveDirectory, moved: int) -> None:
    """A crash after the commit is resumed, after any number of moved files; moves may repeat."""
    commit = books.commit(stage(books, 0), {})
    books.move(Commit(0, commit.files[:moved], {}, 0, 0))
    for _ in range(2):
        found = books.committed()
        assert found == commit
        books.move(found)
        assert seqs(books) == list(range(20))


def test_an_archive_is_refused_when_it_is_another(books: ArchiveDirectory, tmp_path: Path) -> None:
    """An archive refuses another format, group or vhost, a used target, and another version.

    The same archive keeps its id.
    """
    run_batch(books, 0)
    wanted = "is an archive in format parquet of vhost '/' with the reader group g"
    with pytest.raises(JobError, match=wanted):
        books.open("parquet", "/", "h")
    with pytest.raises(JobError, match="is not empty and"):
        ArchiveDirectory(books.target, tmp_path / "another").open("parquet", "/", "g")
    ids = []
    for _ in range(2):
        again = ArchiveDirectory(books.target, books.checkpoint)
        again.open("parquet", "/", "g")
        ids.append(again.id)
    assert ids[0] == ids[1] != ""
    (books.checkpoint / "archive.json").write_text(
        '{"version": 1, "format": "parquet", "vhost": "/", "group": "g"}'
    )
    with pytest.raises(JobError, match=r"another version of warren \(1\)"):
        books.open("parquet", "/", "g")


def test_an_archive_that_has_nothing_yet_may_become_another(books: ArchiveDirectory) -> None:
    """An archive without a batch may change its format, vhost and group, as after a typo."""
    books.open("delta", "/other", "h")
    books.open("parquet", "/", "h")
    run_batch(books, 0)
    with pytest.raises(JobError, match="this run asks for delta"):
        books.open("delta", "/", "h")


@pytest.mark.parametrize("copy", ["older", "none"])
def test_an_older_copy_of_the_checkpoint_is_refused(books: ArchiveDirectory, copy: str) -> None:
    """An older copy of the checkpoint is refused: it would reuse the names of existing files."""
    books.id = json.loads((books.checkpoint / "archive.json").read_text())["id"]
    run_batch(books, 0)
    state = books.checkpoint / "committed.json"
    old = state.read_bytes()
    run_batch(books, 1)
    books.open("parquet", "/", "g")
    if copy == "older":
        state.write_bytes(old)
    else:
        state.unlink()
    with pytest.raises(
        JobError, match=r"has batch 1, .* the checkpoint is an older copy, or damaged"
    ):
        books.open("parquet", "/", "g")
    assert seqs(books) == list(range(40))


def test_one_process_writes(books: ArchiveDirectory) -> None:
    with books.locked(), pytest.raises(JobError, match="another process writes"), books.locked():
        pass
    with books.locked():
        pass


def test_a_task_writes_a_file_for_each_queue_and_day(tmp_path: Path) -> None:
    """A task writes one file for each queue and day, with names escaped as Spark does.

    The columns of the partition are in the names only.
    """
    noon = 1_769_860_800_000_000
    with StagedFiles(LocalPlace(tmp_path)) as files:
        for number in range(30):
            times = pa.array(
                [noon, noon + 86_400_000_000 * (number % 2), noon], pa.timestamp("us", tz="UTC")
            )
            columns = {
                "queue": [f"a/{number % 10}%"] * 3,
                "seq": [number] * 3,
                "enqueued_at": times,
                "body": [b"x"] * 3,
            }
            files.write(pa.RecordBatch.from_pydict(columns))
    paths = [tmp_path / file.name for file in files.done]
    assert sorted(paths) == sorted(tmp_path.rglob("*.parquet"))
    found = [partition_of(path.relative_to(tmp_path).as_posix()) for path in paths]
    assert {each["queue"] for each in found} == {f"a/{number}%" for number in range(10)}
    assert {each["date"] for each in found} == {"2026-01-31", "2026-02-01"}
    for file in files.done:
        assert (file.rows, file.seq_first, file.seq_last) == parquet_figures(tmp_path / file.name)
    assert sum(file.rows for file in files.done) == 90
    assert {tuple(pq.read_schema(path).names) for path in paths} == {("seq", "enqueued_at", "body")}


def small(*sizes: int) -> list[SmallFile]:
    return [
        SmallFile(f"q/d/part-0badc0de-{number:08d}-0000.parquet", size)
        for number, size in enumerate(sizes)
    ]


def test_files_of_about_one_size_are_merged_when_they_are_many_or_fill_a_large_one() -> None:
    """Files of similar size merge when they are many or fill a large one.

    A large file stays, and a few small files wait.
    """
    mib = 1 << 20
    assert choose(small(*[1000] * 7), 128 * mib) == []
    assert choose(small(*[1000] * 9), 128 * mib) == small(*[1000] * 9)
    assert choose(small(100 * mib, 30 * mib, 40 * mib, 50 * mib), 128 * mib)[0].bytes == 30 * mib
    assert [file.bytes for file in choose(small(*[30 * mib] * 6), 128 * mib)] == [30 * mib] * 4
    assert choose(small(60 * mib, 1 * mib, 1000), 128 * mib) == []


def test_a_message_is_written_a_few_times_at_most() -> None:
    """With many small batches all merges together write a small multiple of the bytes."""
    files: list[SmallFile] = []
    written = 0
    for number in range(2000):
        files.append(SmallFile(f"q/d/part-x-{number:08d}-0000.parquet", 20_000))
        while chosen := choose(files, 32 << 20):
            size = sum(file.bytes for file in chosen)
            written += size
            files = [file for file in files if file not in chosen]
            files.append(SmallFile(merged_name(chosen[0].path), size))
    assert sum(file.bytes for file in files) == 2000 * 20_000
    assert len(files) < 30
    assert written < 5 * 2000 * 20_000


def test_the_name_of_a_merged_file_sorts_in_its_place() -> None:
    assert (
        merged_name("q/d/part-ab-00000001-0000.parquet") == "q/d/part-ab-00000001-0000-m01.parquet"
    )
    assert (
        merged_name("q/d/part-ab-00000001-0000-m01.parquet")
        == "q/d/part-ab-00000001-0000-m02.parquet"
    )


def test_merging_keeps_every_row_in_order(books: ArchiveDirectory) -> None:
    """A merge keeps every row in order, in one file of one row group; foreign files stay."""
    for batch in range(5):
        run_batch(books, batch)
    (books.target / QUEUE / "README").write_text("mine")
    files = ParquetFiles(books)
    merger = Merger(files.files(), 1 << 30, files.replace)
    assert merger.merge(1) == 9
    found = list((books.target / QUEUE).iterdir())
    assert {path.name for path in found} == {"README", "part-0badc0de-00000000-0000-m01.parquet"}
    [merged] = books.target.rglob("*.parquet")
    assert pq.read_table(merged, partitioning=None)["seq"].to_pylist() == list(range(100))
    assert pq.read_metadata(merged).num_row_groups == 1
    assert not (books.checkpoint / "merging").exists()
    # A move that repeats after a crash ignores files that are merged already.
    last = books.committed()
    assert last is not None
    books.move(last)
    assert seqs(books) == list(range(100))


@pytest.mark.parametrize("dies_at", ["before", "after"])
def test_a_crash_of_a_merge_leaves_one_of_the_two(
    books: ArchiveDirectory, dies_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash before or after the exchange of names keeps all rows; a start removes leftovers."""

    def die(one: Path, other: Path) -> None:
        if dies_at == "after":
            exchange(one, other)
        raise KeyboardInterrupt

    for batch in range(5):
        run_batch(books, batch)
    files = ParquetFiles(books)
    merger = Merger(files.files(), 1 << 30, files.replace)
    with monkeypatch.context() as patch:
        patch.setattr("warrenmq.pipeline.archives.merge.exchange", die)
        with pytest.raises(KeyboardInterrupt):
            merger.merge(1)
    assert seqs(books) == list(range(100))
    assert (books.checkpoint / "merging").exists()
    files = ParquetFiles(books)
    assert not (books.checkpoint / "merging").exists()
    Merger(files.files(), 1 << 30, files.replace).merge(9)
    assert seqs(books) == list(range(100))
    assert len(list(books.target.rglob("*.parquet"))) == 1


def test_partitions_are_read_from_names() -> None:
    assert partition_of(f"{QUEUE}/x.parquet") == {"queue": "a/b %", "date": "2026-01-31"}


def table_rows(books: ArchiveDirectory) -> list[dict[str, Any]]:
    deltalake = pytest.importorskip("deltalake")
    rows: list[dict[str, Any]] = (
        deltalake.DeltaTable(str(books.target)).to_pyarrow_table().to_pylist()
    )
    return sorted(rows, key=lambda row: row["seq"])


def test_a_delta_table_has_a_batch_once(books: ArchiveDirectory) -> None:
    """A batch that is entered again after a crash is in the Delta log once."""
    pytest.importorskip("deltalake")
    files = DeltaFiles(books)
    assert files.files() == []
    for batch in range(3):
        commit = run_batch(books, batch)
        for _ in range(2):
            files.commit(commit)
    rows = table_rows(books)
    assert [row["seq"] for row in rows] == list(range(60))
    assert {(row["queue"], str(row["date"])) for row in rows} == {("a/b %", "2026-01-31")}


def test_a_delta_table_is_merged_by_its_log(books: ArchiveDirectory) -> None:
    """A merged Delta table has the same rows in one file; old files stay for older versions."""
    deltalake = pytest.importorskip("deltalake")
    files = DeltaFiles(books)
    for batch in range(5):
        files.commit(run_batch(books, batch))
    before = {os.path.basename(file.path) for file in files.files()}
    assert Merger(files.files(), 1 << 30, files.replace).merge(1) == 9
    assert [row["seq"] for row in table_rows(books)] == list(range(100))
    assert [os.path.basename(file.path) for file in files.files()] == [
        "part-0badc0de-00000000-0000-m01.parquet"
    ]
    files.finish()
    assert {path.name for path in books.target.rglob("part-*.parquet")} >= before
    history = deltalake.DeltaTable(str(books.target))
    history.load_as_version(5)
    assert len(history.file_uris()) == 10


@pytest.mark.parametrize("do", ["delete", "compact"])
def test_what_others_do_to_a_delta_table_stays_done(books: ArchiveDirectory, do: str) -> None:
    """Files that another writer has merged or deleted rows from are never merged again."""
    deltalake = pytest.importorskip("deltalake")
    files = DeltaFiles(books)
    for batch in range(5):
        files.commit(run_batch(books, batch))
    merger = Merger(files.files(), 1 << 30, files.replace)
    table = deltalake.DeltaTable(str(books.target))
    rows = list(range(100))
    if do == "delete":
        table.delete("seq < 15")
        rows = rows[15:]
    else:
        table.optimize.compact()
    present = set(books.target.rglob("part-*.parquet"))
    assert merger.merge(1) == 0
    assert [row["seq"] for row in table_rows(books)] == rows
    assert set(books.target.rglob("part-*.parquet")) == present
    # Later files are merged as usual.
    for batch in range(5, 10):
        commit = run_batch(books, batch)
        files.commit(commit)
        merger.add([SmallFile(file.path, file.bytes) for file in commit.files])
    assert merger.merge(1) == 9
    Merger(files.files(), 1 << 30, files.replace).merge(9)
    assert [row["seq"] for row in table_rows(books)] == [*rows, *range(100, 200)]


def test_a_damaged_delta_log_is_one_line(books: ArchiveDirectory) -> None:
    pytest.importorskip("deltalake")
    files = DeltaFiles(books)
    commit = run_batch(books, 0)
    files.commit(commit)
    for path in (books.target / "_delta_log").glob("*.json"):
        path.write_text("{")
    for use in (lambda: files.commit(commit), files.files, files.finish):
        with pytest.raises(JobError, match=r"^the Delta table cannot be used: [^\n]+$"):
            use()


@pytest.mark.parametrize("gone", ["before", "meanwhile", "partition"])
def test_files_that_somebody_takes_away_are_not_merged(
    books: ArchiveDirectory, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that disappear, before a merge or during it, are not merged; the others stay.

    A user may move old days of an archive elsewhere while it grows.
    """
    for batch in range(5):
        run_batch(books, batch)
    files = ParquetFiles(books)
    merger = Merger(files.files(), 1 << 30, files.replace)
    lost = min(books.target.rglob("*.parquet"))

    def take_away(*_: object) -> None:
        if gone == "partition":
            shutil.rmtree(lost.parent)
        else:
            lost.unlink()

    if gone == "before":
        take_away()
    else:
        write_merged = archive_merge.write_merged
        monkeypatch.setattr(
            archive_merge, "write_merged", lambda *arguments: take_away(write_merged(*arguments))
        )
    assert merger.merge(9) == 0
    assert seqs(books) == ([] if gone == "partition" else list(range(10, 100)))
    monkeypatch.undo()
    run_batch(books, 5)
    assert Merger(files.files(), 1 << 30, files.replace).merge(9) == (
        0 if gone == "partition" else 10
    )
