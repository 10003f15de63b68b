"""Who puts the groups of mirrored queues in force on this node."""

from __future__ import annotations

from abc import ABC, abstractmethod

from warrenmq.broker.definitions.metadata import PutQueue
from warrenmq.broker.vhost.vhost import Vhost


class GroupHost(ABC):
    """Hears of every change of a group that this node follows, in the order of decisions.

    A mirrored queue is a `RemoteQueue` of its master's node in every vhost, also on that node,
    until the host replaces it. So bindings have an end, and publishes are refused, while no copy
    of this node is in force.
    """

    @abstractmethod
    def on_group(self, vhost: Vhost, put: PutQueue) -> None:
        """Follow the group of the queue `put`: it is new, has changed, or is there at the start.

        An empty group means that the queue is mirrored no more, and only `put.node` has it. A new
        queue whose master is here is to be in force on return, as who declares it looks for it.
        """

    @abstractmethod
    def on_removed(self, vhost: Vhost, put: PutQueue) -> None:
        """Let go of the mirrored queue `put`, which the cluster has deleted.

        Called while this node still has its copy. On the node that deleted it, that is gone.
        """

    @abstractmethod
    def set_aside(self, put: PutQueue) -> None:
        """Follow the group of the queue `put` no more in this run: that has failed unexpectedly."""

    @abstractmethod
    def on_policies(self, vhost: Vhost) -> None:
        """Take note that a policy of `vhost` has changed: groups may have to follow."""
