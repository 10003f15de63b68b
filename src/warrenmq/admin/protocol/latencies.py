"""Request and reply of the admin protocol for how long a node takes for what it does.

All counts only grow, and begin at 0 when the node starts.
"""

from msgspec import Struct


class DescribeLatencies(Struct, tag="describe_latencies", forbid_unknown_fields=True, frozen=True):
    """The durations that this node has measured. Reply: NodeLatencies."""


class Spread(Struct, frozen=True):
    """Values by size: `counts` has those up to each of `bounds`, then those above all of them.

    A value is in one count only: the first one whose bound it does not exceed.
    """

    bounds: list[int]
    counts: list[int]
    total: int


class NodeLatencies(Struct, tag="node_latencies", frozen=True):
    """Durations in ns, sizes in bytes."""

    # From publishes to their confirms.
    confirms: Spread
    # Batches of journals, with their large contents and definitions.
    flushes: Spread
    # Writes and syncs of the records of a batch.
    syncs: Spread
    # Sizes of the records of a batch.
    batch_bytes: Spread
    checkpoints: Spread
    compactions: Spread
    # Reads of messages that were paged out.
    reads: Spread
    # Delays of a timer of the event loop.
    loop_delays: Spread
    # From the last sign of life of a dead master to the take-over by a mirror of this node.
    promotions: Spread
