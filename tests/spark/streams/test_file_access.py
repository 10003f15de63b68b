"""Tests slices from the node's files: the same rows as over the network, which is the fallback."""

import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.spark.driving import latest
from tests.support.brokers.amqp_frames import PERSISTENT, table
from tests.support.brokers.node_thread import NodeThread
from warrenmq.admin.client.client import AdminClient
from warrenmq.admin.protocol.requests import Fetch, Reply, Request
from warrenmq.spark.source import WarrenDataSource
from warrenmq.spark.streams import file_access
from warrenmq.spark.streams.offsets import OffsetJson
from warrenmq.spark.streams.reader import GroupPartition, WarrenStreamReader

COUNT = 500
Row = dict[str, object]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeThread]:
    """A node with two queues: one has all messages in its index, one uses content files."""
    node = NodeThread(tmp_path)
    channel = node.peer().open().channel()
    channel.confirm_select()
    for queue, size, count in ((b"small", 10, COUNT), (b"large", 10_000, 5)):
        channel.declare(queue, durable=True, arguments=table(x__queue__mode="lazy"))
        for number in range(count):
            channel.publish(queue, b"%0*d" % (size, number), PERSISTENT)
    channel.confirms(COUNT + 5)
    yield node
    node.stop()


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> list[Fetch]:
    """The fetch requests for messages, without those that only ask for the id of the store."""
    seen: list[Fetch] = []
    request_of: Callable[..., Reply] = AdminClient.request

    def request(self: AdminClient, request: Request, *arguments: object) -> Reply:
        if isinstance(request, Fetch) and request.max_messages > 1:
            seen.append(request)
        return request_of(self, request, *arguments)

    monkeypatch.setattr(AdminClient, "request", request)
    return seen


def make(node: NodeThread, **options: str) -> WarrenStreamReader:
    given = {"uri": node.uri, "queuesPattern": "small|large", "group": "g", "longPollMs": "0"}
    source = WarrenDataSource(options=given | options)
    reader = source.streamReader(schema=source.schema())
    assert isinstance(reader, WarrenStreamReader)
    return reader


def rows(reader: WarrenStreamReader, start: OffsetJson, end: OffsetJson) -> list[Row]:
    found: list[Row] = []
    for partition in reader.partitions(start, end):
        worker = pickle.loads(pickle.dumps(reader))
        for batch in worker.read(pickle.loads(pickle.dumps(partition))):
            found += batch.to_pylist()
    return found


def test_files_and_network_give_the_same_rows(node: NodeThread, fetches: list[Fetch]) -> None:
    """Files give the same rows; only slices without files are fetched: here of large messages."""
    reader = make(node, access="network")
    initial = reader.initialOffset()
    end = latest(reader, initial, 10_000)
    expected = rows(reader, initial, end)
    assert len(expected) == COUNT + 5
    for access in ("files", "auto"):
        fetches.clear()
        assert rows(make(node, access=access), initial, end) == expected
        assert sum(fetch.end - fetch.start for fetch in fetches) <= 6


def test_files_that_do_not_serve_are_no_error(
    node: NodeThread, fetches: list[Fetch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of another store, a changed file and a missing file make the task fetch the slice."""
    reader = make(node, access="files")
    initial = reader.initialOffset()
    end = latest(reader, initial, 10_000)
    expected = rows(reader, initial, end)
    paths = {
        file[0]
        for partition in reader.partitions(initial, end)
        if isinstance(partition, GroupPartition)
        for part in partition.slices
        if part.files is not None
        for file in part.files.files
    }
    assert paths
    with monkeypatch.context() as patch:
        patch.setattr(
            "warrenmq.spark.streams.reader.store_id_of", lambda block: b"another store..!"
        )
        fetches.clear()
        assert rows(reader, initial, end) == expected
        assert sum(fetch.end - fetch.start for fetch in fetches) > COUNT
    partitions = reader.partitions(initial, end)
    for path in paths:
        data = bytearray(Path(path).read_bytes())
        data[len(data) // 2] ^= 1
        os.rename(path, f"{path}.away")
        Path(path).write_bytes(data)
    assert [
        row for part in partitions for batch in reader.read(part) for row in batch.to_pylist()
    ] == expected
    for path in paths:
        os.unlink(path)
    assert [
        row for part in partitions for batch in reader.read(part) for row in batch.to_pylist()
    ] == expected
    for path in paths:
        os.rename(f"{path}.away", path)


def test_names_of_this_machine_are_known() -> None:
    """Addresses of this machine are recognized by binding to them."""
    assert file_access.is_this_machine("127.0.0.1")
    assert file_access.is_this_machine("localhost")
    # This address is reserved for documentation, so no machine has it.
    assert not file_access.is_this_machine("203.0.113.7")
    assert not file_access.is_this_machine("no-such-name.invalid")
