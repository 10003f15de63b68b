"""A slice read from the node's files equals the node's answer, or the reader rejects the files."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from tests.support.brokers.amqp_frames import PERSISTENT, table
from tests.support.brokers.node_thread import NodeThread
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.requests import (
    Fetch,
    Fetched,
    GroupOpened,
    OpenGroup,
    PlanRange,
    RangePlan,
    Reserve,
    Reserved,
    Slice,
)
from warrenmq.tables.blocks import BlockBatches
from warrenmq.tables.columns import MESSAGE_COLUMNS
from warrenmq.tables.slice_files import SliceInFiles, SliceReader

SCHEMA = pa.schema(list(MESSAGE_COLUMNS.items()))
COUNT = 600
SLICE = 100


class Reading:
    """A group that has reserved all messages of the queue `q` of a node."""

    def __init__(self, node: NodeThread) -> None:
        self.client = AdminClient(NodeAddress(node.uri), "a test")
        self.group = self.client.request(OpenGroup("g", [b"q"]), GroupOpened)
        many = 1 << 40
        (self.range,) = self.client.request(
            Reserve("g", self.group.epoch, {}, many, many), Reserved
        ).members

    def plan(self) -> list[Slice]:
        epoch, incarnation = self.group.epoch, self.range.incarnation
        request = PlanRange("g", epoch, incarnation, 0, self.range.end, SLICE, with_files=True)
        return self.client.request(request, RangePlan).slices

    def fetched(self, part: Slice) -> pa.Table:
        epoch, incarnation = self.group.epoch, self.range.incarnation
        request = Fetch("g", epoch, incarnation, part.start, part.end, 100_000, 1 << 26)
        block = self.client.request(request, Fetched).block
        return pa.Table.from_batches([BlockBatches(SCHEMA, "/", "q").build(block)])


def from_files(part: Slice) -> pa.Table | None:
    files = [(file.path, file.first_byte, file.end_byte) for file in part.files]
    described = SliceInFiles(
        files, part.runs, part.message_count, part.is_redelivered, part.queue_id
    )
    batches = SliceReader(SCHEMA, "/", "q").read(described)
    return None if batches is None else pa.Table.from_batches(batches, SCHEMA)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeThread]:
    """A node with the lazy queue `q` of COUNT messages."""
    node = NodeThread(tmp_path)
    fill(node, 10)
    yield node
    node.stop()


def fill(node: NodeThread, size: int, count: int = COUNT) -> None:
    channel = node.peer().open().channel()
    channel.confirm_select()
    channel.declare(b"q", durable=True, arguments=table(x__queue__mode="lazy"))
    for number in range(count):
        channel.publish(b"q", b"%0*d" % (size, number), PERSISTENT)
    channel.confirms(count)


def test_slices_from_files_and_from_the_node_are_the_same(node: NodeThread) -> None:
    """Files and node give equal slices, with gaps, before and after an append to the file."""
    channel = node.peer().open().channel()
    for _ in range(7):
        channel.get(b"q", no_ack=True)
    reading = Reading(node)
    slices = reading.plan()
    assert sum(part.message_count for part in slices) == COUNT - 7
    for part in slices:
        assert part.files, part
        assert from_files(part) == reading.fetched(part)
    fill(node, 10)
    for part in slices:
        assert from_files(part) == reading.fetched(part)


def test_what_is_redelivered_is_so_from_the_files_too(tmp_path: Path) -> None:
    """Redelivered messages are marked from files too: a partly redelivered slice names no files.

    After a start all messages up to the last delivered one count as redelivered; their records were
    written before.
    """
    node = NodeThread(tmp_path)
    fill(node, 10)
    channel = node.peer().open().channel()
    for _ in range(3):
        channel.get(b"q")
    node.stop()
    node = NodeThread(tmp_path)
    reading = Reading(node)
    first, *rest = reading.plan()
    # The slice mixes redelivered messages with others, so it has no files.
    assert first.files == []
    for part in rest:
        assert from_files(part) == reading.fetched(part)
    node.stop()


def test_slices_from_logs_and_from_the_node_are_the_same(tmp_path: Path) -> None:
    """Contents in journal files are read from these, among records of other queues."""
    node = NodeThread(tmp_path, "journal_file_size_limit=1048576")
    channel = node.peer().open().channel()
    channel.declare(b"other", durable=True)
    for _ in range(4):
        channel.publish(b"other", b"x" * 1000, PERSISTENT)
        fill(node, 1000, 1000)
    reading = Reading(node)
    slices = reading.plan()
    in_logs = [part for part in slices if any(each.path.endswith(".wal") for each in part.files)]
    assert len(in_logs) > 10
    for part in slices:
        if part.files:
            assert from_files(part) == reading.fetched(part)
    node.stop()


def test_contents_elsewhere_are_not_read_from_segments(tmp_path: Path) -> None:
    node = NodeThread(tmp_path)
    fill(node, 10_000, 20)
    assert [part.files for part in Reading(node).plan()] == [[]]
    node.stop()


def test_a_file_that_is_not_as_it_was_planned_is_not_believed(node: NodeThread) -> None:
    """A planned file that is missing, short, changed, or has other messages is rejected."""
    part = Reading(node).plan()[1]
    assert from_files(part) is not None
    path = Path(part.files[0].path)
    data = path.read_bytes()
    middle = (part.files[0].first_byte + part.files[0].end_byte) // 2
    copies = {
        "short": data[: part.files[0].end_byte - 1],
        "header": b"x" + data[1:],
        "flipped": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        "shifted": data[:40]
        + data[part.files[0].first_byte :]
        + data[40 : part.files[0].first_byte],
    }
    for name, changed in copies.items():
        copy = path.parent.parent / name
        copy.write_bytes(changed)
        files = [(str(copy), part.files[0].first_byte, part.files[0].end_byte)]
        described = SliceInFiles(files, part.runs, part.message_count, False, part.queue_id)
        assert SliceReader(SCHEMA, "/", "q").read(described) is None, name
        copy.unlink()
    for files, runs, count in (
        ([("/nowhere", 40, 100)], part.runs, part.message_count),
        ([(str(path), 40, 1 << 40)], part.runs, part.message_count),
        (
            [(str(path), part.files[0].first_byte, part.files[0].end_byte)],
            part.runs,
            part.message_count + 1,
        ),
    ):
        described = SliceInFiles(files, runs, count, False, part.queue_id)
        assert SliceReader(SCHEMA, "/", "q").read(described) is None
