"""Commits the staged rows of a batch, through any node that has all of them, and drops stages.

The same request may go to one node after the other: each knows the last batch of the sink, and
answers that the batch is done already.
"""

import time
from collections.abc import Sequence
from enum import Enum
from typing import Final

from warrenmq.admin.client.client import AdminRefusedError
from warrenmq.admin.protocol import sinks
from warrenmq.spark.retry import SourceError
from warrenmq.spark.sinks.nodes import sink_nodes
from warrenmq.spark.sinks.options import SinkOptions
from warrenmq.spark.sinks.staging import StagedRows, text_of
from warrenmq.spark.waits import Wait

_WAIT_MS: Final = 10_000


class Committed(Enum):
    """By whom a batch was committed."""

    NOW = "by this call"
    BEFORE = "by an earlier call"
    # A request of this call got no answer, and the next one was answered that it is done.
    EITHER = "by this call or an earlier one"


def commit(
    options: SinkOptions,
    sink: str,
    batch: int,
    parts: Sequence[object],
    is_awaited: bool,
    after: int | None = None,
) -> Committed:
    """Publish the staged messages exactly once, however often it is called.

    With `is_awaited` it returns after the messages are in their queues. With `after` the broker
    commits only if the sink's last batch is `after` (-1: no batch yet). Raises SourceError when the
    broker refuses the batch or does not move it in time.
    """
    stages = stages_by_node(parts)
    attempts = 0
    wait_ms = 0

    def request(node: str) -> sinks.CommitBatch:
        nonlocal attempts
        attempts += 1
        return sinks.CommitBatch(
            sink,
            batch,
            stages.get(node, []),
            options.is_mandatory,
            wait_ms,
            after,
            options.away_timeout_ms,
            [sinks.StageCopies(other, ids) for other, ids in stages.items() if other != node],
        )

    away_s = options.away_timeout_ms / 1000
    deadline = time.monotonic() + options.confirm_timeout_ms / 1000
    by: Committed | None = None
    nodes = sink_nodes(options)
    wait = Wait(f"batch {batch} of sink '{sink}' to be in its queues") if is_awaited else None
    try:
        while True:
            if is_awaited:
                left_ms = max(0, round((deadline - time.monotonic()) * 1000))
                wait_ms = min(left_ms, _WAIT_MS)
            reply = nodes.request(
                request, sinks.BatchCommitted, away_s, away_s + wait_ms / 1000, list(stages)
            )
            if by is None:
                # Only the first reply counts: the requests that follow repeat the commit
                # themselves.
                by = Committed.NOW
                if reply.is_repeated:
                    by = Committed.BEFORE if attempts == 1 else Committed.EITHER
            if reply.is_moved or not is_awaited:
                return by
            if wait is not None:
                wait.reason = reply.shortage
            if time.monotonic() > deadline:
                because = f": {reply.shortage}" if reply.shortage else ""
                raise SourceError(
                    f"batch {batch} of sink '{sink}' is committed, and not yet in its queues after "
                    f"{options.confirm_timeout_ms} ms (confirmTimeoutMs){because}; the broker goes on with it"
                )
    except AdminRefusedError as error:
        raise SourceError(
            f"batch {batch} of sink '{sink}' was refused: {text_of(error, options)}"
        ) from None
    finally:
        if wait is not None:
            wait.end()


def abort(options: SinkOptions, parts: Sequence[object]) -> None:
    """Drop the stages of the tasks. A node that is away drops them itself after an hour."""
    found = [part for part in parts if isinstance(part, StagedRows)]
    for node in sorted({node for part in found for node in part.stages}):
        request = sinks.AbortStages([part.stages[node] for part in found if node in part.stages])
        try:
            sink_nodes(options).request(lambda _: request, sinks.StagesAborted, 0, 0, [node])  # noqa: B023 - called at once
        except (AdminRefusedError, SourceError):
            continue


def stages_by_node(parts: Sequence[object]) -> dict[str, list[int]]:
    """Ids of the tasks' stages, in the order of partitions, at each node that has all rows.

    Empty when there are no rows. Raises SourceError when there are, and no node has them all.
    """
    found = sorted(
        [part for part in parts if isinstance(part, StagedRows) and part.stages],
        key=lambda part: part.partition,
    )
    if not found:
        return {}
    # In the order of the first task: the node of the options comes first.
    whole = [node for node in found[0].stages if all(node in part.stages for part in found)]
    if not whole:
        some = sorted({node for part in found for node in part.stages})
        raise SourceError(
            "no node has all rows of the batch, and nothing of it is published: while it was "
            f"staged, nodes went away ({', '.join(some)} have some of its rows). Run it again"
        )
    return {node: [part.stages[node] for part in found] for node in whole}
