"""Events about a change of the group of a mirrored queue, told by the node of its master.

Their fields name the queue (`name`) and the node of the copy (`mirror`), or of the new master
(`leader`).
"""

from __future__ import annotations

from warrenmq.cluster.groups.group import Group
from warrenmq.vocabulary.names import name_text

Event = tuple[str, dict[str, str]]


def events_of(queue: bytes, before: Group, group: Group, here: bytes) -> list[Event]:
    """The events of the node `here` about the change of the group of `queue` from `before`.

    None from other nodes than the master's, and none about a group that is down.
    """
    if group.is_down or here != group.master_node:
        return []
    events: list[Event] = []
    if group.epoch != before.epoch:
        led = {"name": name_text(queue), "leader": name_text(here), "reason": group.reason}
        events.append(("mirror.promoted", led))
    old = {member.id.node: member for member in before.mirrors}
    new = {member.id.node: member for member in group.mirrors}

    def tell(event: str, node: bytes) -> None:
        events.append((event, {"name": name_text(queue), "mirror": name_text(node)}))

    for node, mirror in old.items():
        if node not in new:
            # A promoted mirror is not gone.
            if node != here:
                tell("mirror.removed", node)
        elif mirror.copy in before.sync and new[node].copy not in group.sync:
            tell("mirror.unsynchronised", node)
    for node, mirror in new.items():
        if node not in old:
            tell("mirror.added", node)
        if mirror.copy in group.sync and mirror.copy not in before.sync:
            tell("mirror.synchronised", node)
    return events
