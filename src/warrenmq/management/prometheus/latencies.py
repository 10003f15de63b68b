"""The metrics of how long a node takes: histograms, and RabbitMQ's counters of its disk."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from warrenmq.admin.protocol.figures import VhostStatus
from warrenmq.admin.protocol.latencies import NodeLatencies, Spread
from warrenmq.management.prometheus.metrics import RABBITMQ, WARREN, Family, family, histogram

_NS: Final = 1e-9


class _Histogram(NamedTuple):
    """A histogram of the values of `field`, each multiplied by `scale`."""

    name: str
    field: str
    help: str
    scale: float = _NS


_HISTOGRAMS: Final = (
    _Histogram(
        "confirm_seconds",
        "confirms",
        "Time from a publish to its confirm, of publishes that wait for a disk or another node",
    ),
    _Histogram(
        "flush_seconds",
        "flushes",
        "Time of a batch of a journal with its large contents and definitions",
    ),
    _Histogram("fsync_seconds", "syncs", "Time of the write and sync of a batch of a journal"),
    _Histogram("journal_batch_bytes", "batch_bytes", "Size of a batch of a journal in bytes", 1.0),
    _Histogram("checkpoint_seconds", "checkpoints", "Time of the writing of a checkpoint"),
    _Histogram("msg_store_gc_seconds", "compactions", "Time of a compaction of large contents"),
    _Histogram("read_seconds", "reads", "Time of a read of messages that were paged out"),
    _Histogram("event_loop_lag_seconds", "loop_delays", "Delay of a timer of the event loop"),
    _Histogram(
        "mirror_promotion_seconds",
        "promotions",
        "Time from the last sign of life of a master to the take-over by a mirror of this node",
    ),
)


def histograms(infix: str, measured: NodeLatencies) -> Iterator[Family]:
    """The durations that the node has measured."""
    for each in _HISTOGRAMS:
        spread: Spread = getattr(measured, each.field)
        bounds = [bound * each.scale for bound in spread.bounds]
        name = f"{WARREN}_{infix}{each.name}"
        yield histogram(name, each.help, bounds, spread.counts, spread.total * each.scale)


def persister(infix: str, measured: NodeLatencies, vhosts: list[VhostStatus]) -> Iterator[Family]:
    """RabbitMQ's metrics of disk work: syncs, reads of paged-out messages, bytes written."""
    written = sum(vhost.writes.written_bytes for vhost in vhosts if vhost.writes is not None)
    for name, text, value in (
        ("io_sync_ops", "Syncs of journals", sum(measured.syncs.counts)),
        ("io_sync_time_seconds", "Time of these syncs", measured.syncs.total * _NS),
        ("io_read_ops", "Reads of messages that were paged out", sum(measured.reads.counts)),
        ("io_read_time_seconds", "Time of these reads", measured.reads.total * _NS),
        ("io_write_bytes", "Bytes written to disk", written),
    ):
        samples = [((), float(value))]
        yield family(f"{RABBITMQ}_{infix}{name}", "counter", text, (), samples)
