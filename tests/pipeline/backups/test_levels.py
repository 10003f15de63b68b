"""Priority queues and delayed messages: a store has both under ids that no queue's name has.

Each level of a priority queue has an id of its own in the store, and so has each bucket of delayed
messages.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.pipeline.test_verify import must_agree
from tests.support.awaiting import eventually
from tests.support.brokers.amqp_frames import table
from tests.support.brokers.process import BrokerProcess
from tests.support.kills.mixed_vhost import (
    LEVELS,
    LEVELS_MAX,
    SETTINGS,
    Expected,
    contents_of,
    level_of,
    new_vhost,
)
from tests.support.spark.inline import InlineSpark
from tests.support.stores.made_backups import Backups, run_backup, run_restore
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.figures import DescribeNode, NodeStatus
from warrenmq.offline.check import check_directory
from warrenmq.offline.report import report_directory
from warrenmq.pipeline import restore_live
from warrenmq.pipeline.places import LocalPlace
from warrenmq.pipeline.replays.local import choose
from warrenmq.tables.data_files import DATA_SCHEMA
from warrenmq.tables.parts import ReadOptions
from warrenmq.tables.planning import plan
from warrenmq.tables.queue_states import vhost_state
from warrenmq.tables.reading import read
from warrenmq.tables.schemas import schema_of
from warrenmq.wire.properties import Properties

pytestmark = [pytest.mark.kill, pytest.mark.timeout(240)]

HOUR_MS = 3_600_000
DELAYED = 4


def rows_of(directory: Path, name: str, options: ReadOptions) -> list[dict[str, Any]]:
    schema = DATA_SCHEMA if name == "messages" else schema_of(name)
    return [
        row
        for partition in plan(directory, name, options)
        for batch in read(partition, schema)
        for row in batch.to_pylist()
    ]


def test_the_levels_of_a_queue_have_its_name(backups: Backups) -> None:
    """Tables have the messages of all levels as those of the queue, and so have reports."""
    expected = backups.last[LEVELS]
    only = ReadOptions(vhost="/", queues=(LEVELS.decode(),))
    rows = rows_of(backups.data, "messages", only)
    assert Counter(row["body"] for row in rows) == Counter(body for *_, body in expected)
    assert len({row["queue_id"] for row in rows}) == LEVELS_MAX + 1
    # Each level numbers its messages; the ids tell them apart.
    assert len({row["seq"] for row in rows}) < len(rows)
    assert len({(row["queue_id"], row["seq"]) for row in rows}) == len(rows)
    alive = [row for row in rows_of(backups.data, "positions", only) if row["state"] == "alive"]
    assert len(alive) == len(rows)
    (vhost,) = report_directory(backups.data)
    assert [row.messages for row in vhost.queues if row.name == LEVELS.decode()] == [len(rows)]
    assert len(vhost.queues) == len(backups.last)
    assert must_agree(backups.data).queues == len(backups.last)
    manifest = backups.results["stopped"]
    assert manifest.queues == len(backups.last)


def test_a_replay_keeps_the_order_of_each_priority(backups: Backups) -> None:
    chosen = choose([LocalPlace(backups.stopped)], None, None)
    bodies: dict[int, list[bytes]] = {}
    expected: dict[int, list[bytes]] = {}
    for row in chosen.to_pylist():
        if row["queue"] == LEVELS.decode():
            level = level_of((b"", b"", row["properties_raw"], b""))
            bodies.setdefault(level, []).append(row["body"])
    for message in backups.last[LEVELS]:
        expected.setdefault(level_of(message), []).append(message[3])
    assert bodies == expected


def delay(ms: int, delivery_mode: int = 2) -> bytes:
    return Properties(delivery_mode=delivery_mode, headers=table(x__delay=ms)).encode()


def test_delayed_messages_wait_on_in_a_restored_directory(tmp_path: Path) -> None:
    """A backup has them, transient ones too; a running node gets the others only, and it is told.

    One that was due meanwhile is delivered at once.
    """
    node = BrokerProcess(tmp_path / "node", *SETTINGS)
    node.start()
    try:
        vhost = new_vhost(node)
        vhost.declare(b"due")
        kind = table(x__delayed__type="fanout")
        vhost.channel.exchange(b"later", b"x-delayed-message", durable=True, arguments=kind)
        vhost.channel.bind(b"due", b"later")
        for number in range(DELAYED):
            properties = delay((number + 1) * 3 * HOUR_MS, 2 - number % 2)
            vhost.publish(b"key", 10 ** (2 + number), properties, b"later", queues=())
        vhost.sync()
        vhost.publish(b"soon", 7, delay(2000), b"later", queues=())
        vhost.confirms.drain()
    finally:
        node.kill()
    data = node.directory / "data"
    result = run_backup(data, tmp_path / "backup")
    ticks = len(vhost.queues[b"ticks"])
    assert (result.messages, result.lost, result.queues) == (ticks + DELAYED + 1, 0, 2)
    (tmp_path / "restored").mkdir()
    run_restore(tmp_path / "backup", tmp_path / "restored/data")
    found = [exact_rows(each) for each in (data, tmp_path / "restored/data")]
    assert found[0] == found[1] and len(found[0]) == result.messages
    assert check_directory(tmp_path / "restored/data").problems == []

    restored = BrokerProcess(tmp_path / "restored", *SETTINGS)
    restored.start()
    try:
        found_due: list[Expected] = []

        def is_delivered() -> bool:
            found_due.extend(contents_of(restored, [b"due"])[b"due"])
            return len(found_due) > 0

        eventually(is_delivered, "the message that was due")
        assert [key for _, key, _, _ in found_due] == [b"soon"]
        # It leaves its bucket when its delivery is on disk.
        eventually(lambda: delayed_at(restored) == DELAYED, "the others wait on")
    finally:
        restored.kill()

    other = BrokerProcess(tmp_path / "other", *SETTINGS)
    other.start()
    try:
        spark: Any = InlineSpark()
        live = restore_live(tmp_path / "backup", other.uri, spark=spark)
        assert live.messages + live.delayed == result.messages and live.delayed >= DELAYED
        assert (live.differences, live.exit_code) == ([], 1)
        assert contents_of(other, [b"ticks"])[b"ticks"] == vhost.queues[b"ticks"]
    finally:
        other.kill()


def exact_rows(directory: Path) -> list[dict[str, Any]]:
    """The messages of all queues, levels and buckets, without their places in files."""
    ids = tuple(vhost_state(directory, "/").queues)
    rows = rows_of(directory, "messages", ReadOptions(queue_ids=ids))
    left_out = ("content_id", "references")
    rows = [{name: row[name] for name in row if name not in left_out} for row in rows]
    return sorted(rows, key=lambda row: (row["queue_id"], row["seq"]))


def delayed_at(node: BrokerProcess) -> int:
    with AdminClient(NodeAddress(node.uri)) as client:
        (vhost,) = client.request(DescribeNode(), NodeStatus).vhosts
        return vhost.delayed
