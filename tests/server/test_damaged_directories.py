"""A start with damage somewhere in the data directory: one thing is set aside, the rest serves."""

import logging
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.brokers.amqp_peer import ChannelClosedError
from tests.support.brokers.node_thread import NodeThread
from tests.support.explored import explored_seeds
from tests.support.stores.full_directory import QUEUES, SETTINGS, make_full_directory
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.requests import GroupList, GroupOpened, ListGroups, OpenGroup
from warrenmq.wire.methods import QueueDeclare, QueueDeclareOk

VHOST = "msg_stores/vhosts/1"
# Files of each kind of which random bytes are damaged.
FILES = (
    f"{VHOST}/journal/1.wal",
    f"{VHOST}/checkpoint",
    f"{VHOST}/store_id",
    f"{VHOST}/msg_store_persistent/0.rdq",
    f"{VHOST}/queues/2/0.idx",
)
# Messages that the reader group has reserved and not acked.
HELD = 9
Counts = dict[bytes, int]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory as a killed node left it; tests must not change it."""
    return make_full_directory(tmp_path_factory.mktemp("full"))


@pytest.fixture(scope="module")
def whole(full: Path, tmp_path_factory: pytest.TempPathFactory) -> Counts:
    """The messages of each queue of the undamaged directory."""
    directory = tmp_path_factory.mktemp("whole")
    shutil.copytree(full, directory / "data")
    return serve(directory)


@pytest.fixture
def data(full: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Path]:
    """A copy to be damaged; nothing in the log of its node may be an unexpected exception."""
    yield shutil.copytree(full, tmp_path / "data")
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


def serve(directory: Path) -> Counts:
    """Start the node of a directory, and take all messages of its queues; returns how many."""
    node = NodeThread(directory, *SETTINGS)
    try:
        with AdminClient(NodeAddress(node.uri)) as client:
            client.request(ListGroups(), GroupList)
        peer = node.peer().open()
        counts: Counts = {}
        for name in QUEUES:
            channel = peer.channel()
            try:
                assert isinstance(channel.call(QueueDeclare(name, True)), QueueDeclareOk)
                counts[name] = len(channel.drain(name))
            except ChannelClosedError as error:
                assert "no queue" in str(error)
        with AdminClient(NodeAddress(node.uri)) as client:
            queues = [name for name in (b"read",) if name in counts]
            if queues:
                client.request(OpenGroup("readers", queues, may_rebind=True), GroupOpened)
        peer.close()
    finally:
        node.stop()
    return counts


def damage(data: Path, *statements: str) -> None:
    """Change rows of the definitions as no node does."""
    with closing(sqlite3.connect(data / "node.sqlite")) as database:
        for statement in statements:
            assert database.execute(statement).rowcount > 0, statement
        database.commit()


def errors(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR)


def test_damaged_rows_without_messages(
    data: Path, whole: Counts, caplog: pytest.LogCaptureFixture
) -> None:
    damage(
        data,
        "UPDATE vhosts SET description = CAST(x'ff' AS TEXT)",
        "UPDATE parameters SET value = '(' WHERE component = 'vhost-limits'",
        "UPDATE parameters SET value = '1' WHERE component = 'policy'",
        "UPDATE bindings SET source = x'' WHERE source = CAST('hash' AS BLOB)",
        "UPDATE sinks SET stages = 'x'",
        "UPDATE reader_groups SET epoch = 1 << 62 WHERE name = CAST('pattern' AS BLOB)",
        "UPDATE reader_group_members SET reserved = 1 << 61",
    )
    counts = serve(data.parent)
    # What the group had reserved is ready.
    assert counts == {**whole, b"read": whole[b"read"] + HELD}
    for line in (
        "skipped vhost-limits 'limits'",
        "skipped the policy 'limit'",
        "the definition of binding to 'plain' is damaged",
        "the definition of sink 'pipe' is damaged",
        "the definition of reader group 'pattern' is damaged",
        "the definition of part of reader group 'readers' is damaged",
    ):
        assert errors(caplog).count(line) == 1, line


def test_damaged_rows_of_queues_and_parts(
    data: Path, whole: Counts, caplog: pytest.LogCaptureFixture
) -> None:
    """Their messages are kept aside: those of an unknown id are not those of a deleted queue."""
    damage(
        data,
        "UPDATE queues SET vhost = x'00' WHERE name = CAST('dead' AS BLOB)",
        "UPDATE queues SET name = CAST('timed' AS BLOB) WHERE name = CAST('lazy' AS BLOB)",
        "UPDATE queue_parts SET number = 9 WHERE owner > 0 AND number = 4",
        "UPDATE queue_parts SET number = -(1 << 60) WHERE owner = 0",
    )
    counts = serve(data.parent)
    left = {name: count for name, count in whole.items() if name not in (b"dead", b"lazy")}
    assert counts == {**left, b"ranked": whole[b"ranked"] * 4 // 5}
    assert errors(caplog).count("is damaged and set aside") == 3
    assert len(list((data / VHOST / "lost+found").glob("queue-*.wal"))) == 4


def test_a_damaged_id_and_numbering(
    data: Path, whole: Counts, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody knows which messages belong to a damaged id: none without a definition are dropped."""
    damage(
        data,
        "UPDATE queues SET id = -1 WHERE name = CAST('dead' AS BLOB)",
        "UPDATE stages SET id = 1 << 40",
        "UPDATE numbering SET next_queue_id = -5",
    )
    counts = serve(data.parent)
    assert counts == {name: count for name, count in whole.items() if name != b"dead"}
    assert len(list((data / VHOST / "lost+found").glob("queue-*.wal"))) == 2


def test_a_segment_that_is_no_file(
    data: Path, whole: Counts, caplog: pytest.LogCaptureFixture
) -> None:
    segment = data / VHOST / "queues/2/0.idx"
    segment.unlink()
    segment.mkdir()
    counts = serve(data.parent)
    assert counts == {**whole, b"plain": whole[b"plain"] // 2}
    assert "queue 'plain'" in errors(caplog)


@pytest.mark.parametrize("seed", [1, 2, *explored_seeds(1)])
def test_damaged_bytes(data: Path, seed: int) -> None:
    """Damage in one file of each kind stops neither a start nor a client."""
    chance = random.Random(seed)
    for name in FILES:
        content = bytearray((data / name).read_bytes())
        size = len(content.rstrip(b"\0"))
        start = chance.randrange(size)
        length = chance.choice([1, 64, size])
        content[start : start + length] = chance.randbytes(len(content[start : start + length]))
        (data / name).write_bytes(content)
    serve(data.parent)
