"""A copy of a queue as the data directory of a node has it, read without the node."""

import zlib
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from simulator.checker.events import CopyMessage, CopyReport
from warrenmq.tables.parts import ReadOptions
from warrenmq.tables.planning import plan
from warrenmq.tables.reading import read
from warrenmq.tables.schemas import COLUMNS, MESSAGES

_COLUMNS = ("seq", "message_id", "body", "redelivered")


def copy_report(directory: Path, queue: str, node: str, at_us: int) -> CopyReport:
    """The messages of `queue` in the directory of a node that does not run, in order."""
    schema = pa.schema([(name, COLUMNS[MESSAGES][name]) for name in _COLUMNS])
    messages = [
        CopyMessage(row["seq"], row["message_id"], zlib.crc32(row["body"]), row["redelivered"])
        for partition in plan(directory, MESSAGES, ReadOptions(queues=(queue,)))
        for batch in read(partition, schema)
        for row in batch.to_pylist()
    ]
    messages.sort(key=lambda message: message.seq)
    return CopyReport(at_us, 1, queue, node, True, tuple(messages))


def compare_command(queue: str, names: Sequence[str]) -> list[str]:
    """The words behind `warren` that compare the copies of `queue` in the directories `names`."""
    directories = [word for name in names for word in ("--directory", name)]
    return ["pipeline", "compare-mirrors", queue, *directories]
