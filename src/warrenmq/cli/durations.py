"""How long a node takes for what its clients wait for, measured while the command waits.

The node counts durations since its start (admin/protocol/latencies.py). The difference of two
answers is what happened in between, so that a slow minute shows however long the node has run.
"""

import time
from typing import Any, Final

import msgspec

from warrenmq.admin.client.client import AdminClient
from warrenmq.admin.protocol.latencies import DescribeLatencies, NodeLatencies, Spread
from warrenmq.cli.output import print_rows

# Field of NodeLatencies, and what it is.
_SHOWN: Final = (
    ("confirms", "publish to confirm"),
    ("flushes", "batch of a journal"),
    ("syncs", "write and sync of its records"),
    ("reads", "read of paged out messages"),
    ("checkpoints", "checkpoint"),
    ("compactions", "compaction"),
    ("loop_delays", "delay of the event loop"),
)
_NS: Final = 1_000_000_000


def measured(client: AdminClient, seconds: float) -> dict[str, Spread]:
    """What the node has measured in the next `seconds`, by field. Raises AdminRefusedError."""
    before = client.request(DescribeLatencies(), NodeLatencies)
    time.sleep(seconds)
    after = client.request(DescribeLatencies(), NodeLatencies)
    return {name: _since(getattr(before, name), getattr(after, name)) for name, _ in _SHOWN}


def _since(before: Spread, after: Spread) -> Spread:
    counts = [new - old for new, old in zip(after.counts, before.counts, strict=True)]
    return Spread(after.bounds, counts, after.total - before.total)


def print_durations(found: dict[str, Spread], seconds: float) -> None:
    """Print a table of durations: how often, the mean, and what half and 99 % stayed within."""
    rows = [[f"in {seconds:g} s", "times", "mean", "half within", "99 % within"]]
    for name, title in _SHOWN:
        spread = found[name]
        count = sum(spread.counts)
        mean = _text(spread.total / count) if count else ""
        rows.append([title, str(count), mean, _within(spread, 0.5), _within(spread, 0.99)])
    print_rows(rows, 1)


def durations_as_json(found: dict[str, Spread]) -> dict[str, Any]:
    """The counts by bounds (ns), as the HTTP API has them."""
    return {name: msgspec.to_builtins(spread) for name, spread in found.items()}


def _within(spread: Spread, share: float) -> str:
    """The lowest bound that so large a share of the durations did not exceed."""
    wanted = share * sum(spread.counts)
    if not wanted:
        return ""
    seen = 0
    for bound, count in zip(spread.bounds, spread.counts, strict=False):
        seen += count
        if seen >= wanted:
            return _text(bound)
    return f"over {_text(spread.bounds[-1])}"


def _text(nanoseconds: float) -> str:
    if nanoseconds < _NS:
        return f"{nanoseconds / 1_000_000:.3g} ms"
    return f"{nanoseconds / _NS:.3g} s"
