"""What stores have done over time: syncs, bytes written, memory, and the forms of messages.

Counters are told by interval, and only where the interval before has a sample: nothing says when
that happened which was counted over a gap.
"""

from itertools import pairwise
from typing import Final

from warrenmq.admin.protocol.changes import SYNCS, WRITES
from warrenmq.management.rows import Row
from warrenmq.management.statistics.history import Range
from warrenmq.management.statistics.view import View

_COUNTED: Final = (*SYNCS, "synced_bytes", *WRITES)
_MEMORY: Final = ("mem_used", "mem_messages", "mem_paging", "mem_limit")
_FORMS: Final = ("messages_ready", "messages_beta", "messages_gamma", "messages_delta", "ram_limit")


def intervals_of(node: View, asked: Range) -> list[Row]:
    """The intervals of a range, newest first; each ends at its `timestamp` (Unix ms).

    `syncs` of the journals by duration, their bytes, the bytes written by kind, and the memory
    (bytes) at the end of the interval.
    """
    found = node.series((*_COUNTED, *_MEMORY), asked)
    return [
        _interval(time_ms, time_ms - before_ms, values, earlier)
        for (time_ms, values), (before_ms, earlier) in pairwise(found)
        if time_ms - before_ms == asked.step_s * 1000
    ]


def _interval(time_ms: int, length_ms: int, values: list[int], earlier: list[int]) -> Row:
    counted = [value - before for value, before in zip(values, earlier, strict=True)]
    syncs, writes = len(SYNCS), len(SYNCS) + 1
    return {
        "timestamp": time_ms,
        "length_ms": length_ms,
        "syncs": counted[:syncs],
        "synced_bytes": counted[syncs],
        "writes": dict(zip(WRITES, counted[writes : writes + len(WRITES)], strict=True)),
        "memory": dict(zip(_MEMORY, values[len(_COUNTED) :], strict=True)),
    }


def forms_of(queue: View, asked: Range) -> list[Row]:
    """Ready messages of a queue by form, and the target of messages in memory, newest first.

    `target_ram_count` is None while the queue need not page.
    """
    found = []
    for time_ms, (ready, beta, gamma, delta, ram_limit) in queue.series(_FORMS, asked):
        row: Row = {"timestamp": time_ms, "alpha": max(0, ready - beta - gamma - delta)}
        row |= {"beta": beta, "gamma": gamma, "delta": delta}
        found.append(row | {"target_ram_count": ram_limit - 1 if ram_limit else None})
    return found
