"""`compare-mirrors` on copies of real nodes: equal, altered on disk, in use, behind, away."""

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.awaiting import eventually
from tests.support.command_line import warren, warren_json
from warrenmq.offline.data_directory import ToolError
from warrenmq.pipeline import CompareMirrorsResult, JobError, compare_mirrors
from warrenmq.spark import node_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.cluster.trio import ClusterNode

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

# Lazy: a master has its messages in the index, and mirrors have them in the journal.
POLICY = {"ha-mode": "all", "ha-sync-mode": "automatic", "queue-mode": "lazy"}
MESSAGES = 400
# Such bodies are in content files, others in the journal and the index.
LARGE_BYTES = 9000


@pytest.fixture
def mirrored(trio: "list[ClusterNode]", request: pytest.FixtureRequest) -> Iterator[str]:
    """A policy for queues whose names begin with the name of the test, which is returned."""
    name = request.node.name
    assert trio[0].ctl("set_policy", name, f"^{name}", json.dumps(POLICY)).code == 0
    yield name
    assert trio[0].ctl("clear_policy", name).code == 0


def fill(nodes: "list[ClusterNode]", queue: str, **arguments: int) -> None:
    """Declare a queue, wait for its mirrors, and publish messages of all kinds."""
    import pika

    from tests.support.cluster.trio import channels

    given = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    with channels(nodes) as opened:
        opened[0].queue_declare(queue, durable=True, arguments=given)
        await_in_sync(nodes[0], queue, 2)
        for number in range(MESSAGES):
            body = text(queue, "body", number) + b"-" * (LARGE_BYTES if number % 40 == 0 else 9)
            properties = pika.BasicProperties(
                delivery_mode=2,
                message_id=text(queue, "id", number).decode(),
                headers={"text": text(queue, "header", number).decode()},
                priority=number % 3,
                expiration="3600000" if number % 2 else None,
            )
            opened[number % 3].basic_publish("", queue, body, properties)
        # Acks of the first messages.
        for _ in range(20):
            method, _, _ = opened[1].basic_get(queue)
            opened[1].basic_ack(method.delivery_tag)


def text(queue: str, part: str, number: int) -> bytes:
    """A text that only one message of one queue has, in one part of it."""
    return f"{queue} {part} {number:03d}".encode()


def await_in_sync(node: "ClusterNode", queue: str, count: int) -> None:
    def is_so() -> bool:
        rows = dict(node.table("list_queues", "name", "synchronised_slave_pids"))
        return sum(map(bool, rows[queue].strip("[]").split(","))) == count

    eventually(is_so, f"{queue} has {count} mirrors in sync", 0.1)


def states(result: CompareMirrorsResult) -> dict[str, str]:
    return {copy.name[:2]: copy.state for copy in result.copies}


def test_equal_copies(
    spark: "SparkSession", trio: "list[ClusterNode]", mirrored: str, tmp_path: Path
) -> None:
    """Messages in journals, indexes and content files, with priorities, are the same everywhere."""
    fill(trio, mirrored, max_priority=2)
    table = tmp_path / "differences.parquet"
    result = compare_mirrors(
        mirrored, uri=trio[1].uri, snapshots=tmp_path, output=table, spark=spark
    )
    assert (result.exit_code, result.differences, result.doubtful) == (0, 0, 0)
    assert states(result) == dict.fromkeys(("n1", "n2", "n3"), "in sync")
    assert [copy.role for copy in result.copies] == ["master", "mirror", "mirror"]
    assert {copy.messages for copy in result.copies} == {MESSAGES - 20}
    assert {copy.compared for copy in result.copies[1:]} == {MESSAGES - 20}
    assert result.lines()[-1] == f"the copies of queue '{mirrored}' in vhost '/' are equal"
    assert spark.read.parquet(str(table)).count() == 0
    # Snapshots and files of the job are gone.
    assert list(tmp_path.iterdir()) == [table]
    found = warren_json(
        "pipeline", "compare-mirrors", mirrored, "--uri", trio[0].uri, "--snapshots", tmp_path,
        "--engine", "local",
    )  # fmt: skip
    assert found["equal"] and len(found["copies"]) == 3


def test_altered_copies(
    spark: "SparkSession", trio: "list[ClusterNode]", mirrored: str, tmp_path: Path
) -> None:
    """Each kind of change on the disk of a copy is found, and named with the fields it changed."""
    from tests.spark.cluster.altered_copies import dropping, edit_records, replacing

    fill(trio, mirrored)
    paths = []
    for node in trio:
        with node_snapshot(node.uri, tmp_path) as snapshot:
            paths.append(shutil.copytree(snapshot, tmp_path / node.name[:2]))
    options = [part for path in paths for part in ("--directory", path)]
    command = ("pipeline", "compare-mirrors", mirrored, *options)
    assert warren_json(*command, "--engine", "local")["equal"]

    def alter(path: Path, pattern: str, part: str, number: int, is_lost: bool = False) -> None:
        old = text(mirrored, part, number)
        edit = dropping(old) if is_lost else replacing(old, old.swapcase())
        files = list(path.glob(f"msg_stores/vhosts/1/{pattern}"))
        assert sum(edit_records(file, edit) for file in files) == 1, pattern

    master, mirror, other = paths
    alter(master, "queues/*/*.idx", "body", 101)
    alter(master, "queues/*/*.idx", "body", 102, is_lost=True)
    alter(mirror, "journal/*.wal", "header", 103)
    alter(mirror, "journal/*.wal", "id", 104)
    alter(other, "msg_store_persistent/*.rdq", "body", 120)
    table = tmp_path / "differences.parquet"
    result = compare_mirrors(mirrored, directories=paths, output=table, spark=spark)
    assert (result.exit_code, result.differences) == (1, 7)
    assert result.kinds == {"missing": 2, "differs": 5}
    rows = spark.read.parquet(str(table)).where("queue = '" + mirrored + "'").collect()
    found = {(row.message_id[-3:], row.kind, row.copy, *row.differs) for row in rows}
    reference = result.copies[0].name
    one, two = [name for name in ("n1", "n2", "n3") if name != reference]
    assert reference == "n1"
    assert found == {
        *[("101", "differs", copy, "body") for copy in (one, two)],
        ("102", "missing", "n1"),
        ("103", "differs", "n2", "headers"),
        ("104", "differs", "n2", "message_id"),
        ("120", "differs", "n3", "body"),
    }
    done = warren(*command, "--engine", "local")
    assert done.returncode == 1
    assert "n1 lacks the message that n2 has (routing key" in done.stdout
    assert "n3 and n1 differ in body" in done.stdout
    # A seq id that is lost from the end of one copy is told as that, and not as damage.
    assert {copy.behind + copy.lacks for copy in result.copies} == {0}


def test_a_queue_in_use_has_no_differences(
    trio: "list[ClusterNode]", mirrored: str, tmp_path: Path
) -> None:
    """Publishers and consumers go on at all nodes while the copies are compared."""
    import pika

    from tests.support.cluster.trio import channels

    fill(trio, mirrored)
    is_over = threading.Event()
    counts = [0, 0]

    def publish() -> None:
        with channels(trio[2:]) as (channel,):
            while not is_over.is_set():
                body = b"busy" * (1 + 2000 * (counts[0] % 20 == 0))
                channel.basic_publish("", mirrored, body, pika.BasicProperties(delivery_mode=2))
                counts[0] += 1

    def consume() -> None:
        with channels(trio[1:2]) as (channel,):
            channel.basic_qos(prefetch_count=10)
            for method, _, _ in channel.consume(mirrored, inactivity_timeout=0.1):
                if method is not None:
                    channel.basic_ack(method.delivery_tag)
                    counts[1] += 1
                if is_over.is_set():
                    return

    threads = [threading.Thread(target=each) for each in (publish, publish, consume)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: min(counts) > 0, "the clients work")
        for _ in range(3):
            before = list(counts)
            result = compare_mirrors(mirrored, uri=trio[0].uri, snapshots=tmp_path, engine="local")
            assert all(now > then for now, then in zip(counts, before, strict=True))
            assert (result.differences, result.doubtful, result.exit_code) == (0, 0, 0)
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def test_copies_that_are_not_whole(
    trio: "list[ClusterNode]", mirrored: str, tmp_path: Path
) -> None:
    """A node is away; when it is back, its copy lacks messages, and that is no damage."""
    import pika

    from tests.support.cluster.trio import channels

    manual = json.dumps(POLICY | {"ha-sync-mode": "manual"})
    assert trio[0].ctl("set_policy", mirrored, f"^{mirrored}", manual).code == 0
    fill(trio, mirrored)

    def compared() -> CompareMirrorsResult:
        return compare_mirrors(mirrored, uri=trio[0].uri, snapshots=tmp_path, engine="local")

    trio[2].kill()
    try:
        await_in_sync(trio[0], mirrored, 1)
        partly = compared()
        assert (partly.exit_code, partly.differences) == (1, 0)
        assert states(partly) == {"n1": "in sync", "n2": "in sync", "n3": "away"}
        assert partly.lines()[2] == f"{trio[2].name}: away, not compared"
        with channels(trio[:1]) as (channel,):
            for number in range(7):
                body = b"later %d" % number
                channel.basic_publish("", mirrored, body, pika.BasicProperties(delivery_mode=2))
    finally:
        trio[2].start()

    def is_back() -> bool:
        return dict(trio[0].table("list_queues", "name", "slave_pids"))[mirrored].count("n3@") == 1

    eventually(is_back, "the mirror is back", 0.1)
    result = compared()
    (mirror,) = [copy for copy in result.copies if copy.name == trio[2].name]
    assert (result.exit_code, result.differences) == (1, 0)
    assert states(result) == {"n1": "in sync", "n2": "in sync", "n3": "not in sync"}
    assert (mirror.lacks, mirror.compared, mirror.messages) == (7, MESSAGES - 20, MESSAGES - 20)
    assert "; 380 compared: equal; 7 are not there yet" in "\n".join(result.lines())
    assert result.lines()[-1].startswith("no differences in what could be compared")
    # Directories do not tell who is in sync, but how far each copy goes.
    paths = []
    for node in trio[::2]:
        with node_snapshot(node.uri, tmp_path) as snapshot:
            paths.append(shutil.copytree(snapshot, tmp_path / node.name))
    stopped = compare_mirrors(mirrored, directories=paths[::-1], engine="local")
    assert (stopped.exit_code, stopped.differences) == (1, 0)
    assert [(copy.name, copy.behind) for copy in stopped.copies] == [
        (trio[0].name, 0), (trio[2].name, 7),
    ]  # fmt: skip


def test_what_cannot_be_compared(trio: "list[ClusterNode]", tmp_path: Path) -> None:
    """One line says why there is no comparison, and the exit status is 2."""
    from tests.support.cluster.trio import channels

    done = warren(
        "pipeline", "compare-mirrors", "nothing", "--uri", trio[0].uri, "--engine", "local"
    )
    assert (done.returncode, done.stderr) == (2, "warren: no queue 'nothing' in vhost '/'\n")
    with channels(trio[:1]) as (channel,):
        channel.queue_declare("plain", durable=True)
    with pytest.raises(JobError, match="queue 'plain' in vhost '/' has no mirrors"):
        compare_mirrors("plain", uri=trio[0].uri, engine="local")
    with pytest.raises(JobError, match="one directory has one copy: name two or more"):
        compare_mirrors("q", directories=[tmp_path], engine="local")
    with pytest.raises(JobError, match="a directory is named twice"):
        compare_mirrors("q", directories=[tmp_path, tmp_path / "."], engine="local")
    with pytest.raises(JobError, match="name the URI of a node, or the directories"):
        compare_mirrors("q", uri=trio[0].uri, directories=[tmp_path], engine="local")
    with pytest.raises(ToolError, match=f"{tmp_path} is not a data directory"):
        compare_mirrors("q", directories=[tmp_path, tmp_path.parent], engine="local")
    with pytest.raises(JobError, match=f"there is no directory {tmp_path / 'no'}"):
        compare_mirrors("q", uri=trio[0].uri, output=tmp_path / "no" / "x", engine="local")
