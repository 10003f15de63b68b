"""Log lines about a change of the group of a mirrored queue.

The node of the leader tells what became of the copies. Nobody leads a group that is down, so each
node with a copy tells of that. Leader is RabbitMQ's word for a master in its log.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from warrenmq.cluster.groups import transitions
from warrenmq.cluster.groups.group import Group
from warrenmq.vocabulary.names import name_text

_ENDS = {
    transitions.DIED: "has died or is silent",
    transitions.STOPPED: "has stopped",
    transitions.RESTARTED: "has restarted",
    transitions.FORGOTTEN: "was forgotten by the cluster",
}


class GroupLine(NamedTuple):
    """A line of the log."""

    text: str
    level: int = logging.INFO


def lines_of(before: Group, group: Group, here: bytes) -> list[GroupLine]:
    """The lines of the node `here` about the change of a group from `before`."""
    if group.is_down:
        is_news = not before.is_down and here in group.recoverable and here != before.master_node
        return [_down(before, group)] if is_news else []
    if here != group.master_node:
        return []
    lines = [] if group.epoch == before.epoch else _led(before, group, here)
    return lines + _mirrors(before, group)


def _down(before: Group, group: Group) -> GroupLine:
    end = _ENDS.get(group.reason, "is lost")
    node = name_text(before.master_node)
    text = f"The leader on node '{node}' {end}, and the queue is down until a copy takes over"
    return GroupLine(text, logging.WARNING)


def _led(before: Group, group: Group, here: bytes) -> list[GroupLine]:
    """The change of the leader, which is on this node now."""
    node, old = name_text(here), name_text(before.master_node)
    if group.reason == transitions.TRANSFERRED:
        return [GroupLine(f"Node '{node}' leads now: node '{old}' has handed over")]
    end = f"the leader on node '{old}' {_ENDS.get(before.reason, _ENDS[transitions.DIED])}"
    if group.reason == transitions.UNSYNCED:
        text = f"Promoting unsynchronised mirror on node '{node}' to leader: {end}, and no "
        return [
            GroupLine(
                f"{text}copy in sync is left; messages that it lacks are lost", logging.WARNING
            )
        ]
    if group.reason != transitions.PROMOTED:
        return []
    if old == node:
        return [GroupLine(f"Node '{node}' leads again after its restart")]
    return [
        GroupLine(
            f"Promoting mirror on node '{node}' to leader: {end}, and this mirror is the oldest in "
            "sync within reach"
        )
    ]


def _mirrors(before: Group, group: Group) -> list[GroupLine]:
    """The lines about mirrors that came, left, or changed between in and out of sync."""
    lines = [
        GroupLine(f"Dropping queue mirror on node '{name_text(node)}'")
        for node in before.recoverable
        if node not in group.recoverable
    ]
    for mirror in before.mirrors:
        node = mirror.id.node
        name = name_text(node)
        now = group.member_of(node)
        if now is None and node in group.recoverable:
            text = f"The mirror on node '{name}' is gone: its node has stopped, died or is silent"
            lines.append(GroupLine(text, logging.WARNING))
        elif now == mirror and mirror.copy in before.sync and mirror.copy not in group.sync:
            lines.append(
                GroupLine(f"The mirror on node '{name}' is not in sync any more", logging.WARNING)
            )
    for mirror in group.mirrors:
        node = mirror.id.node
        name = name_text(node)
        if node not in before.recoverable:
            lines.append(GroupLine(f"Adding mirror on node '{name}'"))
        elif before.member_of(node) != mirror:
            lines.append(GroupLine(f"The mirror on node '{name}' is back"))
        if mirror.copy in group.sync and mirror.copy not in before.sync:
            lines.append(GroupLine(f"The mirror on node '{name}' is in sync"))
    return lines
