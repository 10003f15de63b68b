"""The sinks of a cluster, put together from what its nodes tell."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from warrenmq.admin.protocol.sinks import SinkStatus


def joined(told: Mapping[str, Sequence[SinkStatus]]) -> list[SinkStatus]:
    """One status for each sink, by name, from those that each node has told.

    The mover knows what is left of a batch. The others with the stages keep all of its messages to
    the end, so they tell an upper bound while the mover is away. The two nodes of a stage that is
    not committed have the same messages, which count once.
    """
    found: dict[str, list[tuple[str, SinkStatus]]] = {}
    for node, statuses in told.items():
        for status in statuses:
            found.setdefault(status.sink, []).append((node, status))
    return [_joined(each) for _, each in sorted(found.items())]


def _joined(told: list[tuple[str, SinkStatus]]) -> SinkStatus:
    statuses = [status for _, status in told]
    of_mover = [status for node, status in told if status.node == node]
    # A node may not have heard of the last batch yet.
    newest = max(of_mover or statuses, key=lambda each: -1 if each.batch is None else each.batch)
    left = of_mover or statuses
    return replace(
        newest,
        messages_left=max(each.messages_left for each in left),
        stages=max(each.stages for each in statuses),
        staged_messages=max(each.staged_messages for each in statuses),
    )
