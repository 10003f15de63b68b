"""Answers which reader groups and sinks a node has, in all vhosts, and how far each of them is."""

from collections.abc import Callable

from warrenmq.admin.clock import Clock
from warrenmq.admin.node import AdminNode, AdminVhost
from warrenmq.admin.protocol.readers import GroupFigures, NodeReaders, SinkFigures
from warrenmq.admin.readers.ages import when_ages_known
from warrenmq.admin.status import group_status, sink_names, sink_status
from warrenmq.vocabulary.names import name_text


def describe_readers(node: AdminNode, clock: Clock, reply: Callable[[NodeReaders], None]) -> None:
    """Call `reply` when the age of each group's oldest message is known."""
    vhosts = node.all_vhosts()

    def answer() -> None:
        now_ms = clock.now_ms()
        reply(
            NodeReaders(
                [each for vhost in vhosts for each in _groups(vhost, now_ms)],
                [each for vhost in vhosts for each in _sinks(vhost)],
            )
        )

    groups = [group for vhost in vhosts for group in vhost.reader_groups.shown()]
    when_ages_known(groups, clock, answer)


def _groups(vhost: AdminVhost, now_ms: int) -> list[GroupFigures]:
    found = [group_status(group, now_ms) for group in vhost.reader_groups.shown()]
    return [
        GroupFigures(name_text(vhost.name), each.group, each.held, each.lag, each.lag_seconds)
        for each in found
    ]


def _sinks(vhost: AdminVhost) -> list[SinkFigures]:
    staging = vhost.staging
    return [
        SinkFigures(name_text(vhost.name), sink_status(staging, name))
        for name in sink_names(staging)
    ]
