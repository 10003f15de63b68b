"""How long a node takes for what its clients wait for, and for the work behind it.

Each duration is added once for a batch, a job or a tick, never for a message. The engine has no
clock: the shell notes the time of each event in `now_ns`, and measures what its threads do.
"""

from mypy_extensions import i64

from warrenmq.vocabulary.distribution import DURATION_BOUNDS_NS, SIZE_BOUNDS, Distribution


class Latencies:
    """The distributions of one node since its start; durations in ns, sizes in bytes."""

    def __init__(self) -> None:
        # Time of the event that the node handles, by a clock that never goes back.
        self.now_ns: i64 = 0
        # From the publish to its confirm, of publishes that wait for a disk or another node. All
        # publishes of a frame of confirms count with the time of the oldest one.
        self.confirms: Distribution = Distribution(DURATION_BOUNDS_NS)
        # Whole batches of journals, with their large contents and definitions.
        self.flushes: Distribution = Distribution(DURATION_BOUNDS_NS)
        # Write and sync of the records of a batch.
        self.syncs: Distribution = Distribution(DURATION_BOUNDS_NS)
        # Records of a batch.
        self.batch_bytes: Distribution = Distribution(SIZE_BOUNDS)
        self.checkpoints: Distribution = Distribution(DURATION_BOUNDS_NS)
        self.compactions: Distribution = Distribution(DURATION_BOUNDS_NS)
        # Reads of messages that were paged out.
        self.reads: Distribution = Distribution(DURATION_BOUNDS_NS)
        # Delay of a timer of the event loop.
        self.loop_delays: Distribution = Distribution(DURATION_BOUNDS_NS)
        # From the last sign of life of a dead master to the take-over by a mirror of this node.
        self.promotions: Distribution = Distribution(DURATION_BOUNDS_NS)

    def on_flush(self, flush_ns: i64, sync_ns: i64, record_bytes: i64) -> None:
        """Add a batch that is durable; it may have had no records."""
        self.flushes.add(flush_ns)
        if record_bytes > 0:
            self.syncs.add(sync_ns)
            self.batch_bytes.add(record_bytes)
