"""Compares a queue of a running node with the backup: row by row, by the checksums of the contents.

The comparison only peeks at the queue. Messages that consumers have taken or not yet acked count as
missing; messages that others have published count as others.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from warrenmq.admin.client.client import (
    AdminClient,
    AdminRefusedError,
    NodeAddress,
    NodeUnreachableError,
)
from warrenmq.admin.protocol.requests import DescribeQueue, Fetched, Peek, QueueDescription
from warrenmq.pipeline.backups.chain import Chain, rows_of_queue
from warrenmq.pipeline.backups.manifest import SEQ_END
from warrenmq.tables.blocks import BlockBatches
from warrenmq.tables.data_files import DATA_SCHEMA

if TYPE_CHECKING:
    from warrenmq.tables.file_scan import Array

_CHECKSUM: Final = pa.schema([DATA_SCHEMA.field("checksum")])
_PEEK_MESSAGES: Final = 10_000
_PEEK_BYTES: Final = 8 << 20


@dataclass(frozen=True)
class CompareTask:
    """The queue that one task compares. `levels`: the ids in the backup, by priority."""

    chain: Chain
    uri: str = field(repr=False)
    name: bytes
    levels: dict[int, int]


class Comparison(msgspec.Struct, frozen=True):
    """The result for one queue: counts of messages, and whether the order matches.

    `found` messages of the backup are in the queue, `missing` ones are not, and `others` are only
    in the queue. `is_in_order`: the found messages have the order of the backup.
    """

    found: int
    missing: int
    others: int
    is_in_order: bool


def compare_queue(task: CompareTask) -> Comparison:
    """In a worker: compare one queue. ValueError when the node does not answer or refuses."""
    try:
        with AdminClient(NodeAddress(task.uri), "warren restore") as client:
            begun = client.request(DescribeQueue(task.name, 0), QueueDescription).levels
            found = [
                compare(_of_backup(task, level), _joined(_peeked(client, task.name, level)))
                for level in sorted({*begun, *task.levels})
            ]
    except (AdminRefusedError, NodeUnreachableError) as error:
        raise ValueError(str(error)) from None
    return Comparison(
        sum(each.found for each in found),
        sum(each.missing for each in found),
        sum(each.others for each in found),
        all(each.is_in_order for each in found),
    )


def compare(wanted: "Array", there: "Array") -> Comparison:
    """Compare two arrays of checksums, each in the order of its messages."""
    if len(wanted) == len(there) and np.array_equal(wanted, there):
        return Comparison(len(wanted), 0, 0, True)
    values, places = np.unique(np.concatenate([wanted, there]), return_inverse=True)
    wanted_counts = np.bincount(places[: len(wanted)], minlength=len(values))
    there_counts = np.bincount(places[len(wanted) :], minlength=len(values))
    found = int(np.minimum(wanted_counts, there_counts).sum())
    # Compare the order only of checksums that occur equally often on both sides: a checksum on one
    # side has no place in an order, and of one with several messages any may be missing.
    known = wanted_counts == there_counts
    is_in_order = np.array_equal(
        wanted[known[places[: len(wanted)]]], there[known[places[len(wanted) :]]]
    )
    return Comparison(found, len(wanted) - found, len(there) - found, is_in_order)


def _of_backup(task: CompareTask, level: int) -> "Array":
    queue_id = task.levels.get(level)
    if queue_id is None:
        return _joined(iter(()))
    return _joined(
        batch.column("checksum")
        for batch in rows_of_queue(task.chain, queue_id, 0, SEQ_END, _CHECKSUM)
    )


def _peeked(client: AdminClient, name: bytes, level: int) -> Iterator[Any]:
    queue = client.request(DescribeQueue(name, level), QueueDescription)
    builder = BlockBatches(_CHECKSUM, "", "")
    start = queue.first_ready
    while start < queue.tail:
        request = Peek(
            name,
            queue.incarnation,
            start,
            queue.tail,
            _PEEK_MESSAGES,
            _PEEK_BYTES,
            level=level,
        )
        fetched = client.request(request, Fetched)
        yield builder.build(fetched.block).column("checksum")
        start = fetched.next


def _joined(columns: Iterator[Any]) -> "Array":
    found = [column.to_numpy(zero_copy_only=False) for column in columns]
    return np.concatenate(found) if found else np.empty(0, np.int64)
