"""Builds the admin reply with the durations that a node has measured."""

from warrenmq.admin.protocol.latencies import NodeLatencies, Spread
from warrenmq.broker.latencies import Latencies
from warrenmq.vocabulary.distribution import Distribution


def node_latencies(measured: Latencies) -> NodeLatencies:
    """The distributions of the node."""
    return NodeLatencies(
        confirms=_spread(measured.confirms),
        flushes=_spread(measured.flushes),
        syncs=_spread(measured.syncs),
        batch_bytes=_spread(measured.batch_bytes),
        checkpoints=_spread(measured.checkpoints),
        compactions=_spread(measured.compactions),
        reads=_spread(measured.reads),
        loop_delays=_spread(measured.loop_delays),
        promotions=_spread(measured.promotions),
    )


def _spread(values: Distribution) -> Spread:
    return Spread(list(values.bounds), list(values.counts), values.total)
