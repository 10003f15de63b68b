"""A watch of groups that puts masters of new queues in force, for tests without messages."""

from warrenmq.broker.definitions.metadata import PutQueue
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.cluster.decisions.follower import Follower
from warrenmq.cluster.groups.group_change import group_of
from warrenmq.cluster.groups.group_host import GroupHost


class NotedGroups(GroupHost):
    """Notes what a follower tells, and has copies where this node is a member."""

    def __init__(self, name: bytes, follower: Follower) -> None:
        self.told: list[tuple[str, bytes]] = []
        self._name = name
        self._follower = follower

    def on_group(self, vhost: Vhost, put: PutQueue) -> None:
        self.told.append(("group", put.name))
        group = group_of(put)
        if group is not None and group.member_of(self._name) is not None:
            self._follower.own_copy(vhost, put)

    def on_removed(self, vhost: Vhost, put: PutQueue) -> None:
        self.told.append(("removed", put.name))

    def set_aside(self, put: PutQueue) -> None:
        self.told.append(("aside", put.name))

    def on_policies(self, vhost: Vhost) -> None:
        self.told.append(("policies", vhost.name))
