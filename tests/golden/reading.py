"""Reads a golden data directory offline and through a node, and sums up its content in JSON."""

import hashlib
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.brokers.process import BrokerProcess
from tests.support.kills.ledger import connect
from tests.support.kills.mixed_vhost import shown
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.requests import GroupList, ListGroups
from warrenmq.admin.protocol.sinks import BatchCommitted, CommitBatch
from warrenmq.offline.check import check_directory
from warrenmq.offline.data_directory import opened
from warrenmq.tables.parts import ReadOptions
from warrenmq.tables.planning import plan
from warrenmq.tables.reading import read
from warrenmq.tables.schemas import COLUMNS, MESSAGES

SETTINGS = ("journal_file_size_limit=1MiB", "msg_store_file_size_limit=64KiB")
# Columns of the content of a message, without its location.
COLUMN_NAMES = (
    "queue_id",
    "seq",
    "enqueued_at",
    "expires_at",
    "redelivered",
    "persistent",
    "size",
    "checksum",
    "exchange_raw",
    "routing_key_raw",
    "properties_raw",
    "body",
)
# Queue whose messages expire 49 days after publishing, the latest time that a client can ask for.
TIMED = b"timed"
# A message: exchange, routing key, properties, body, redelivered.
Known = tuple[bytes, bytes, bytes, bytes, bool]


def unpack(archive: Path, directory: Path) -> Path:
    """Unpack `archive` as the data directory of a node in `directory`; return its path."""
    with tarfile.open(archive) as packed:
        packed.extractall(directory / "data", filter="data")
    return directory / "data"


def digest(messages: list[Known]) -> str:
    """Return the SHA-256 of all messages, in order."""
    found = hashlib.sha256()
    for exchange, key, properties, body, is_redelivered in messages:
        for part in (exchange, key, properties, body, b"\1" if is_redelivered else b"\0"):
            found.update(len(part).to_bytes(4, "big") + part)
    return found.hexdigest()


def read_offline(data: Path) -> dict[str, Any]:
    """Return the summary that the offline tools give of a data directory."""
    checked = check_directory(data)
    assert not checked.problems
    with opened(data) as directory:
        definitions = sorted(repr(row) for row in shown(directory.definitions))
    return {
        "queues": checked.queues,
        "messages": checked.messages,
        "contents": checked.contents,
        "definitions": definitions,
        "rows": _rows(data),
    }


def _rows(data: Path) -> dict[str, Any]:
    schema = pa.schema([(name, COLUMNS[MESSAGES][name]) for name in COLUMN_NAMES])
    rows = [
        tuple(row[name] for name in COLUMN_NAMES)
        for partition in plan(data, MESSAGES, ReadOptions(vhost="/"))
        for batch in read(partition, schema)
        for row in batch.to_pylist()
    ]
    return {"count": len(rows), "sha256": hashlib.sha256(repr(sorted(rows)).encode()).hexdigest()}


def read_online(directory: Path, stage: int, queues: list[str]) -> dict[str, Any]:
    """Start a node on `directory`/data; return its groups and the messages that clients consume.

    Commits the staged batch before it consumes the queues.
    """
    node = BrokerProcess(directory, *SETTINGS)
    node.start()
    try:
        with AdminClient(NodeAddress(node.uri)) as client:
            groups = [
                [
                    group.group,
                    [[m.queue.decode(), m.acked, m.reserved, m.held, m.lag] for m in group.members],
                ]
                for group in client.request(ListGroups(), GroupList).groups
            ]
            repeated = client.request(CommitBatch("pipe", 4, [], True, 30_000), BatchCommitted)
            committed = client.request(
                CommitBatch("pipe", 5, [stage], True, 30_000), BatchCommitted
            )
        found = {}
        for queue in queues:
            if queue.encode() != TIMED:
                messages = contents_of(node, queue.encode())
                found[queue] = {"messages": len(messages), "sha256": digest(messages)}
    finally:
        node.stop()
    return {
        "groups": groups,
        "batches": [[reply.is_repeated, reply.is_moved] for reply in (repeated, committed)],
        "queues": found,
    }


def contents_of(node: BrokerProcess, queue: bytes) -> list[Known]:
    """Consume all messages of a queue of a running node, and return them."""
    peer = connect(node)
    channel = peer.channel()
    found = []
    count = channel.count(queue)
    channel.consume(queue, no_ack=True)
    for _ in range(count):
        item = channel.message()
        method = item.deliver
        found.append((method.exchange, method.routing_key, item.raw, item.body, method.redelivered))
    assert channel.count(queue) == 0
    peer.drop()
    return found
