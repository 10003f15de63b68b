"""The metrics of reader groups and of sinks, one by one: there are few of them."""

from collections.abc import Callable, Iterator
from typing import Final

from warrenmq.admin.protocol.readers import GroupFigures, NodeReaders, SinkFigures
from warrenmq.management.prometheus.metrics import WARREN, Family, Metric, of_each


def _group(name: str, text: str, value: Callable[[GroupFigures], float]) -> Metric[GroupFigures]:
    return Metric(f"reader_group_{name}", "gauge", text, value, WARREN)


def _sink(
    name: str, text: str, value: Callable[[SinkFigures], float | None]
) -> Metric[SinkFigures]:
    return Metric(f"sink_{name}", "gauge", text, value, WARREN)


_GROUPS: Final = (
    _group("held_messages", "Messages that the reader group has reserved", lambda g: g.held),
    _group("lag_messages", "Messages that the reader group has not acked", lambda g: g.lag),
    _group("lag_seconds", "Age of the oldest of these messages", lambda g: g.lag_seconds),
)
_SINKS: Final = (
    _sink("batch", "Number of the last committed batch", lambda s: s.sink.batch),
    _sink("busy", "is 1 while that batch is published", lambda s: float(s.sink.is_busy)),
    _sink(
        "left_messages",
        "Messages of that batch that are not in their queues",
        lambda s: s.sink.messages_left,
    ),
    _sink("stages", "Stages that no commit has named", lambda s: s.sink.stages),
    _sink("staged_messages", "Messages in these stages", lambda s: s.sink.staged_messages),
)


def readers(infix: str, found: NodeReaders, shows: Callable[[str], bool]) -> Iterator[Family]:
    """The groups and sinks of the vhosts that the page `shows`."""
    groups = [((each.vhost, each.group), each) for each in found.groups if shows(each.vhost)]
    yield from of_each(_GROUPS, infix, ("vhost", "group"), groups)
    sinks = [((each.vhost, each.sink.sink), each) for each in found.sinks if shows(each.vhost)]
    yield from of_each(_SINKS, infix, ("vhost", "sink"), sinks)
