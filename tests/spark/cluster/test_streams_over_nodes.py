"""Streams and tables of queues that live on several nodes; the readers are called as Spark does."""

import json
import threading

import pytest

pytest.importorskip("pyspark")

from tests.spark.cluster.over_nodes import DURABLE, declare, make_reader, maker, publish, read
from tests.spark.driving import latest, rows
from tests.spark.micro_batches import (
    AFTER_OFFSET_LOG,
    AFTER_PARTITIONS,
    AFTER_SINK,
    Checkpoint,
    Query,
    drain,
)
from tests.support.awaiting import eventually
from tests.support.cluster.trio import ClusterNode, channels
from tests.support.command_line import warren, warren_json
from warrenmq.spark import broker_link, homes
from warrenmq.spark.retry import SourceError
from warrenmq.spark.source import WarrenDataSource
from warrenmq.spark.streams.lag import lag_of
from warrenmq.spark.streams.offsets import OffsetJson
from warrenmq.spark.streams.reader import WarrenStreamReader


def test_a_stream_reads_queues_of_all_nodes_through_any(trio: list[ClusterNode]) -> None:
    """Batches share their limits among the nodes, and acks reach all of them."""
    declare(trio, "all")
    bodies = publish(trio[2], "all", 0, 30)
    checkpoint = Checkpoint()
    query = Query(make_reader(trio[0], "all"), checkpoint, max_rows=12)
    query.run_batch()
    read_count = len(read(checkpoint))
    assert 1 <= read_count <= 12
    reported = json.dumps(query.reader.reportLatestOffset())
    (lag,) = lag_of({"sources": [{"latestOffset": reported}]})
    # What a late node has reserved already comes with a later batch.
    assert 30 - 12 <= lag.messages <= 30 - read_count
    shown = warren_json("group", "show", "all", "--uri", trio[1].uri)
    assert [member["queue"] for member in shown["members"]] == ["all1", "all2", "all3"]
    assert shown["lag"] == 30
    drain(maker(trio[1], "all"), checkpoint)
    assert read(checkpoint) == bodies
    listed = trio[2].table("list_queues", "name", "messages")
    assert [row for row in listed if row[0].startswith("all")] == [
        ["all1", "0"],
        ["all2", "0"],
        ["all3", "0"],
    ]
    at = ("--uri", trio[2].uri)
    assert warren("group", "delete", "all", *at).returncode == 0
    assert warren("group", "delete", "all", *at).returncode == 1


def test_an_idle_node_delays_no_batch(trio: list[ClusterNode]) -> None:
    """A message of one node comes while the others still poll; theirs comes with a later batch."""
    declare(trio, "idle")
    reader = make_reader(trio[0], "idle", longPollMs="60000")
    start = reader.initialOffset()
    found = []
    for number in range(6):
        bodies = publish(trio[1], "idle", number, 1)
        end = latest(reader, start)
        assert rows(reader, start, end) == bodies
        found += bodies
        start = end
    assert len(found) == 6


def test_a_killed_home_loses_and_doubles_nothing(trio: list[ClusterNode]) -> None:
    """A home is killed within a batch, with the query or without it."""
    declare(trio, "killed")
    make = maker(trio[0], "killed")
    checkpoint = Checkpoint()
    bodies = publish(trio[1], "killed", 0, 60)
    query = Query(make(), checkpoint, max_rows=9)
    query.run_batch()
    for dies in (AFTER_OFFSET_LOG, AFTER_PARTITIONS, None):
        query.run_batch(dies)
        trio[1].kill()
        comes_back = threading.Thread(target=trio[1].start)
        comes_back.start()
        if dies is not None:
            query = Query(make(), checkpoint, max_rows=9)
        # It runs while the node is away.
        query.run_batch()
        comes_back.join()
    bodies += publish(trio[1], "killed", 60, 6)
    drain(make, checkpoint)
    assert read(checkpoint) == bodies


def test_a_queue_that_is_down_is_waited_for_and_named(trio: list[ClusterNode]) -> None:
    """A stream that begins without a home says so; a running one continues with the others."""
    declare(trio, "down")
    reader = make_reader(trio[0], "down", retryTimeoutMs="3000")
    start = reader.initialOffset()
    trio[1].kill()
    try:
        bodies = publish(trio[0], "down", 0, 1)
        end = latest(reader, start)
        assert rows(reader, start, end) == bodies
        with pytest.raises(SourceError, match=r"\(retryTimeoutMs\): node n2@"):
            for _ in range(20):
                assert latest(reader, end) == end
        with pytest.raises(SourceError, match=r"\(retryTimeoutMs\):.* node n2@"):
            make_reader(trio[2], "down", retryTimeoutMs="300").initialOffset()
    finally:
        trio[1].start()


def test_a_pattern_reads_what_is_declared_on_any_node(trio: list[ClusterNode]) -> None:
    """A queue joins wherever it is declared; nobody misses a node that has none of them."""
    with channels(trio) as opened:
        opened[0].queue_declare("pattern1", durable=True)
    reader = make_reader(trio[0], "pattern", queuesPattern="pattern.*", longPollMs="2000")
    start = reader.initialOffset()
    trio[2].kill()
    try:
        bodies = publish(trio[0], "pattern", 0, 1)
        end = latest(reader, start)
        assert rows(reader, start, end) == bodies
        with channels(trio[1:2]) as (channel,):
            channel.queue_declare("pattern2", durable=True)
        bodies = publish(trio[0], "pattern", 1, 1)
        end, found = _next_rows(reader, end)
        assert found == bodies
    finally:
        trio[2].start()
    with channels(trio[2:]) as (channel,):
        channel.queue_declare("pattern3", durable=True)
    bodies = publish(trio[0], "pattern", 2, 1)
    end, found = _next_rows(reader, end)
    assert found == bodies


def _next_rows(reader: WarrenStreamReader, start: OffsetJson) -> tuple[OffsetJson, list[bytes]]:
    """End and bodies of the next batch that has any; a queue may take a poll to join."""
    end = start
    found: list[bytes] = []
    while not found:
        start, end = end, latest(reader, end)
        found = rows(reader, start, end)
    return end, found


def test_a_queue_declared_anew_on_another_node_is_data_loss(trio: list[ClusterNode]) -> None:
    """Without a checkpoint the old home refuses; with one the query does. Accepted, it goes on."""
    declare(trio, "moved")
    checkpoint = Checkpoint()
    publish(trio[0], "moved", 0, 3)
    query = Query(make_reader(trio[0], "moved"), checkpoint)
    query.run_batch()
    with channels(trio[:1]) as (channel,):
        channel.queue_delete("moved2")
        channel.queue_declare("moved2", durable=True)
    bodies = publish(trio[0], "moved", 3, 3)
    for reader in (query.reader, make_reader(trio[2], "moved")):
        with pytest.raises(SourceError, match=r"data loss.*moved2"):
            reader.latestOffset(query.offset(1), reader.getDefaultReadLimit())
    drain(maker(trio[2], "moved", failOnDataLoss="false"), checkpoint)
    assert read(checkpoint)[-3:] == bodies


def test_a_group_leaves_queues_that_are_no_longer_named(trio: list[ClusterNode]) -> None:
    """Messages that were reserved at a home without other queues of the group are ready again."""
    declare(trio, "left")
    publish(trio[0], "left", 0, 3)
    reader = make_reader(trio[0], "left")
    latest(reader, reader.initialOffset())
    make_reader(trio[0], "left", queues="left1").initialOffset()
    listed = trio[0].table("list_queues", "name", "messages_ready", "messages_unacknowledged")
    assert [row for row in listed if row[0].startswith("left")] == [
        ["left1", "0", "1"],
        ["left2", "1", "0"],
        ["left3", "1", "0"],
    ]
    with pytest.raises(SourceError, match="no queue 'nowhere'"):
        make_reader(trio[0], "left", queues="left1,left2,nowhere").initialOffset()


@pytest.mark.parametrize("had_homes", [False, True])
def test_a_checkpoint_of_an_earlier_version_is_resumed(
    trio: list[ClusterNode], had_homes: bool
) -> None:
    """Its queues have numbers of their nodes, and the nodes if these were in a cluster already."""
    name = f"older{had_homes}"
    declare(trio, name)
    bodies = publish(trio[0], name, 0, 6)
    checkpoint = Checkpoint()
    query = Query(make_reader(trio[0], name), checkpoint, max_rows=3)
    query.run_batch()
    (text,) = checkpoint.offsets
    for old, key in query.reader._group._by_old_key.items():
        if bool(old.home) == had_homes:
            place = f"@{old.home}" if old.home else ""
            text = text.replace(
                f"{key.name}#b{key.incarnation}", f"{old.name}#{old.incarnation}{place}"
            )
    assert "#b" not in text and ("@" in text) == had_homes
    checkpoint.offsets = [text]
    drain(maker(trio[1], name), checkpoint)
    assert read(checkpoint) == bodies


@pytest.mark.parametrize(
    "queues", [{"queues": "table1,table2,table3"}, {"queuesPattern": "table."}]
)
def test_a_table_has_the_messages_of_all_nodes(
    trio: list[ClusterNode], queues: dict[str, str]
) -> None:
    """A batch read through one node has the messages of all of them."""
    declare(trio, "table")
    with channels(trio[:1]) as (channel,):
        for number in range(3):
            channel.queue_purge(f"table{number + 1}")
    bodies = publish(trio[0], "table", 0, 9)
    source = WarrenDataSource(options={"uri": trio[1].uri} | queues)
    reader = source.reader(source.schema())
    found = [
        body
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for body in batch.column("body").to_pylist()
    ]
    assert sorted(found) == sorted(bodies)


MIRRORED = json.dumps({"ha-mode": "all", "ha-sync-mode": "automatic"})


def await_mirrors(node: ClusterNode, prefix: str) -> None:
    """Return when each queue of the prefix has two mirrors in sync."""

    def are_in_sync() -> bool:
        listed = node.table("list_queues", "name", "synchronised_slave_pids")
        mirrors = [row[1] for row in listed if row[0].startswith(prefix)]
        return len(mirrors) >= 3 and all(pids.count("<") == 2 for pids in mirrors)

    eventually(are_in_sync, "the mirrors are in sync", 0.1)


def test_a_stream_follows_mirrored_queues_to_their_next_masters(trio: list[ClusterNode]) -> None:
    """Masters are killed in each part of a batch; it goes on, or is repeated, without them."""
    assert trio[0].ctl("set_policy", "mirrored", "^mirror", MIRRORED).code == 0
    declare(trio, "mirror")
    bodies = publish(trio[0], "mirror", 0, 90)
    # A batch read, which is planned now and reads when the home of the queue is dead, which is the
    # node of the options.
    with channels(trio[:1]) as (channel,):
        channel.queue_declare("mirrortable", durable=True)
        channel.basic_publish("", "mirrortable", b"row", DURABLE)
    await_mirrors(trio[0], "mirror")
    source = WarrenDataSource(options={"uri": trio[0].uri, "queues": "mirrortable"})
    table = source.reader(source.schema())
    planned = table.partitions()
    checkpoint = Checkpoint()
    query = Query(make_reader(trio[2], "mirror"), checkpoint, max_rows=9)
    query.run_batch()
    assert all("#b" in key for key in json.loads(checkpoint.offsets[0])["pos"])
    for number, (dies, is_new) in enumerate(
        [(AFTER_OFFSET_LOG, False), (AFTER_PARTITIONS, True), (None, False), (AFTER_SINK, True)]
    ):
        query.run_batch(dies)
        victim, other = trio[number % 3], trio[(number + 1) % 3]
        victim.kill()
        if is_new:
            query = Query(make_reader(other, "mirror"), checkpoint, max_rows=9)
        query.run_batch()
        query.run_batch()
        if number == 0:
            # A new worker knows what the driver tells it.
            homes._known.clear()
            broker_link._links.clear()
            batches = [batch for each in planned for batch in table.read(each)]
            assert [batch.column("body").to_pylist() for batch in batches] == [[b"row"]]
        bodies += publish(other, "mirror", len(bodies), 6)
        victim.start()
        await_mirrors(other, "mirror")
    drain(maker(trio[1], "mirror"), checkpoint)
    assert read(checkpoint) == bodies
    listed = trio[2].table("list_queues", "name", "messages")
    mirrored = {"mirror1", "mirror2", "mirror3", "mirrortable"}
    left = {row[0]: row[1] for row in listed if row[0] in mirrored}
    assert left == {"mirror1": "0", "mirror2": "0", "mirror3": "0", "mirrortable": "1"}
    assert trio[0].ctl("clear_policy", "mirrored").code == 0
