"""Jobs that make a directory resume after a kill, and refuse another job or a second call.

A kill may come at any moment; another call may come between a kill and its resumption.
"""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.dying_process import deaths
from tests.support.brokers.process import BrokerProcess
from tests.support.kills.ledger import Confirms, connect
from tests.support.rabbitmq.files import make_node, make_queue, message_term, segment_publish
from tests.support.spark.inline import InlineSpark
from tests.support.stores.made_backups import run_backup, run_restore
from warrenmq.admin.client.client import AdminRefusedError
from warrenmq.broker.definitions.metadata import Definitions, PutQueue, PutVhost
from warrenmq.offline.backup_files import incomplete_path
from warrenmq.offline.check import check_directory
from warrenmq.offline.data_directory import ToolError
from warrenmq.offline.part_writer import MessageRow, PartWriter
from warrenmq.offline.store_plan import QueueExtent
from warrenmq.offline.store_writer import StoreWriter
from warrenmq.pipeline.backups.job import BackupResult
from warrenmq.pipeline.rabbitmq.import_job import ImportResult, import_rabbitmq
from warrenmq.pipeline.rebuild_index_job import rebuild_index
from warrenmq.pipeline.result import JobError
from warrenmq.pipeline.unfinished import unfinished
from warrenmq.tables.parts import ReadOptions
from warrenmq.tables.planning import plan
from warrenmq.tables.reading import read
from warrenmq.tables.schemas import COLUMNS, MESSAGES

pytestmark = [pytest.mark.kill, pytest.mark.timeout(240)]


def make_store(path: Path, queues: int = 2, messages: int = 5) -> Path:
    """Write a data directory with `messages` messages in each of its queues; return its path."""
    definitions = Definitions()
    definitions.vhosts.append(PutVhost(b"/", 1))
    extents = []
    for number in range(1, queues + 1):
        definitions.queues.append(PutQueue(b"/", number, b"q%d" % number, True, False, b""))
        extents.append(QueueExtent(vhost_id=1, queue_id=number, end_seq=messages + 1))
    writer = StoreWriter.create(path, definitions, extents)
    manifests = []
    for part in writer.plan.parts:
        with PartWriter(writer.work_directory, part) as rows:
            for number in range(messages):
                body = b"%d of %d" % (number, part.queue_id) + bytes(5000 * (number % 2))
                rows.add(MessageRow(b"", b"q", b"\x00\x00", body, 1_700_000_000_000))
            manifests.append(rows.finish())
    writer.finish(manifests)
    return path


def make_rabbitmq(path: Path, names: tuple[bytes, ...] = (b"one", b"two")) -> Path:
    """Write a RabbitMQ node's directory: each queue has five messages that contain its name."""
    vhost = make_node(path)
    for name in names:
        records = [segment_publish(i, i, message_term(i, b"%s %d" % (name, i))) for i in range(5)]
        make_queue(vhost, name, {"0.idx": b"".join(records)})
    return path


def run_import(source: Path, target: Path, **more: Any) -> ImportResult:
    return import_rabbitmq(source, target, spark=InlineSpark(), **more)  # type: ignore[arg-type]  # does as much as is needed


def bodies_in(directory: Path) -> dict[str, list[bytes]]:
    schema = COLUMNS[MESSAGES]
    found: dict[str, list[bytes]] = {}
    import pyarrow as pa

    wanted = pa.schema([("queue", schema["queue"]), ("body", schema["body"])])
    for partition in plan(directory, MESSAGES, ReadOptions()):
        for batch in read(partition, wanted):
            for row in batch.to_pylist():
                found.setdefault(row["queue"], []).append(row["body"])
    return found


def call_of(job: str, tmp_path: Path) -> Callable[[Path], Any]:
    """Make a small source for the job; return a function that runs the job for a target."""
    if job == "backup":
        source = make_store(tmp_path / "store")
        return lambda target: run_backup(source, target)
    if job == "restore":
        source = make_store(tmp_path / "store")
        run_backup(source, tmp_path / "backup")
        return lambda target: run_restore(tmp_path / "backup", target)
    if job == "rebuild":
        source = make_store(tmp_path / "store")
        return lambda target: rebuild_index(source, target, spark=InlineSpark())  # type: ignore[arg-type]  # as above
    source = make_rabbitmq(tmp_path / "rabbit")
    return lambda target: run_import(source, target, to_parquet=job == "import to Parquet")


@pytest.mark.parametrize("job", ["backup", "restore", "import", "import to Parquet", "rebuild"])
def test_killed_anywhere_and_called_again(job: str, tmp_path: Path) -> None:
    """A call after a kill at any moment gives the same result and figures, and leaves nothing."""
    call = call_of(job, tmp_path)
    expected = call(tmp_path / "expected").as_json()
    places = tmp_path / "places"
    places.mkdir()
    count = 0
    for number in deaths(lambda: call(places / "target"), step=3):
        count += 1
        target = places / "target"
        try:
            found = call(target).as_json()
        except ToolError as error:
            # The kill came when only the mark of the unfinished job was left to remove.
            assert str(error) == f"{target} is not empty" and number > 15
        else:
            changed = {name for name in found if found[name] != expected[name]}
            assert changed <= {"backup", "directory", "id"}, (number, changed)
        assert [path.name for path in places.iterdir()] == ["target"], number
        if job == "backup":
            run_restore(target, places / "data")
            target = places / "data"
        if job != "import to Parquet":
            assert check_directory(target).problems == []
            assert bodies_in(target) == bodies_in(_as_data(tmp_path, job))
        empty(places)
    assert count > 7


def empty(directory: Path) -> None:
    for path in directory.iterdir():
        shutil.rmtree(path)


def _as_data(tmp_path: Path, job: str) -> Path:
    return tmp_path / ("store" if job == "backup" else "expected")


def test_a_running_node_is_backed_up_although_the_job_was_killed(tmp_path: Path) -> None:
    """A backup of a running node resumes after a kill, also during the snapshot.

    No snapshot is left, neither beside the target nor in the directory of `--snapshots`.
    """
    node = BrokerProcess(tmp_path / "node")
    node.start()
    places, snapshots = tmp_path / "places", tmp_path / "snapshots"
    places.mkdir()
    snapshots.mkdir()
    try:
        channel = connect(node).channel()
        channel.declare(b"q", durable=True)
        confirms = Confirms(channel)
        for number in range(20):
            confirms.publish(b"q", b"%d" % number, PERSISTENT, b"", lambda: None)
        confirms.drain()
        for more in ({}, {"snapshot_directory": snapshots}):

            def call(more: dict[str, Path] = more) -> BackupResult:
                return run_backup(node.uri, places / "backup", **more)

            for number in deaths(call, step=6):
                # The node may still make the snapshot for the killed call.
                result = _patiently(call)
                assert result.messages == 20, number
                run_restore(places / "backup", places / "data")
                left = [path.name for path in [*places.iterdir(), *snapshots.iterdir()]]
                assert sorted(left) == ["backup", "data"], number
                assert len(list((places / "backup").iterdir())) == 4
                empty(places)
            empty(places)
        with pytest.raises(ToolError, match="no vhost 'moon'"):
            run_backup(node.uri, places / "backup", vhost="moon", snapshot_directory=snapshots)
        with pytest.raises(JobError, match="login of user 'guest' was refused"):
            run_backup(node.uri.replace("guest:guest", "guest:no"), places / "backup")
        assert not [*places.iterdir(), *snapshots.iterdir()]
    finally:
        node.kill()


def _patiently(call: Callable[[], Any]) -> Any:
    while True:
        try:
            return call()
        except AdminRefusedError as error:
            if "is being made" not in error.text:
                raise
            time.sleep(0.1)


class Died(BaseException):
    """Stands for a kill of the job; a BaseException, so that no handler runs."""


def interrupted(call: Callable[[Any], Any], after: int) -> None:
    """Call the job with a Spark that raises Died after `after` partitions."""
    spark = InlineSpark()
    left = after

    def die() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Died

    spark.on_partition = die
    with pytest.raises(Died):
        call(spark)


def test_an_import_with_other_definitions_or_another_format_is_another_one(tmp_path: Path) -> None:
    """An interrupted import is not resumed with other definitions, format or files.

    Queues would have other ids then, but parts of the store are written already.
    """
    source = make_rabbitmq(tmp_path / "rabbit")
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    queues = [{"name": name, "vhost": "/", "durable": True} for name in ("one", "two")]
    one.write_text(json.dumps({"queues": queues}))
    other.write_text(json.dumps({"queues": queues[::-1]}))
    target = tmp_path / "data"
    interrupted(lambda spark: import_rabbitmq(source, target, definitions=one, spark=spark), 1)
    for more in ({"definitions": other}, {"definitions": one, "to_parquet": True}, {}):
        with pytest.raises(ToolError, match="of another source or with other options"):
            run_import(source, target, **more)
    segment = next(source.rglob("*.idx"))
    os.utime(segment, ns=(1, 1))
    with pytest.raises(ToolError, match="of another source or with other options"):
        run_import(source, target, definitions=one)
    for path in tmp_path.glob(".data.*"):
        shutil.rmtree(path)
    run_import(source, target, definitions=other)
    assert bodies_in(target)["one"] == [b"one %d" % number for number in range(5)]


@pytest.mark.parametrize("job", ["backup", "import", "rebuild"])
def test_what_another_job_has_begun_is_left_alone(job: str, tmp_path: Path) -> None:
    call = call_of(job, tmp_path)
    source = make_store(tmp_path / "other")
    run_backup(source, tmp_path / "other backup")
    target = tmp_path / "target"
    interrupted(lambda spark: run_restore(tmp_path / "other backup", target, spark=spark), 4)
    with pytest.raises(ToolError, match="exists: another job has begun"):
        call(target)
    run_restore(tmp_path / "other backup", target)
    assert bodies_in(target) == bodies_in(source)
    assert not list(tmp_path.glob(".target*"))


def test_an_unfinished_store_that_somebody_has_removed_is_no_finished_one(tmp_path: Path) -> None:
    source = make_store(tmp_path / "store")
    run_backup(source, tmp_path / "backup")
    target = tmp_path / "target"
    interrupted(lambda spark: run_restore(tmp_path / "backup", target, spark=spark), 4)
    shutil.rmtree(incomplete_path(target) / "data")
    with pytest.raises(ToolError, match=r"data is missing: something has removed it|No such file"):
        run_restore(tmp_path / "backup", target)
    assert not target.exists()


@pytest.mark.parametrize("job", ["backup", "restore", "import", "rebuild"])
def test_two_at_once(job: str, tmp_path: Path) -> None:
    call = call_of(job, tmp_path)
    target = tmp_path / "target"
    with (
        unfinished(target, job, {}),
        pytest.raises(JobError, match=f"another process is making {target}"),
    ):
        call(target)
    assert not list(tmp_path.glob(".target*"))
    call(target)


@pytest.mark.parametrize("job", ["backup", "restore", "import", "rebuild"])
def test_targets(job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty target directory is replaced, even the working one; a mount point is refused."""
    call = call_of(job, tmp_path)
    target = tmp_path / "target"
    target.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr("os.path.ismount", lambda path: Path(path) == target)
        with pytest.raises(ToolError, match="where a file system is mounted"):
            call(target)
    (tmp_path / "file").touch()
    with pytest.raises(ToolError, match="is there and is no directory"):
        call(tmp_path / "file")
    with pytest.raises(ToolError, match="there is no directory"):
        call(tmp_path / "file/target")
    assert not list(tmp_path.glob(".*"))
    monkeypatch.chdir(target)
    call(Path())
    assert any(target.iterdir())
    with pytest.raises(ToolError, match="is not empty"):
        call(target)
    assert not list(tmp_path.glob(".*"))
