"""What the replicas of a node need of it, and what a master or a mirror needs of its replica."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection

from warrenmq.cluster.groups.group import Group
from warrenmq.cluster.groups.transitions import Transition
from warrenmq.cluster.mirrors.records import MirrorRecord
from warrenmq.cluster.mirrors.replica.in_sync import InSync
from warrenmq.cluster.mirrors.replica.mirror_copy import MirrorCopy
from warrenmq.cluster.mirrors.sync.target import TargetHost
from warrenmq.queues.hand_out_gate import HandOutGate

# Nodes that must not run for a change that was made from this group.
Fence = Callable[[Group], Collection[bytes]]


class ReplicaHost(ABC):
    """The node, as the replica of one queue sees it."""

    @abstractmethod
    def log(self, text: str, event: str) -> None:
        """Log what happens to the queue; see `MirrorLog.write`."""

    # -- other nodes -------------------------------------------------------------------------------

    @abstractmethod
    def now_ms(self) -> int:
        """The time in ms. It never goes back, whatever happens to the clock of the machine."""

    @abstractmethod
    def wake(self) -> None:
        """Ask for the end of a turn, which calls `Replica.end_turn`."""

    @abstractmethod
    def send(self, node: bytes, payload: bytes, is_urgent: bool = False) -> None:
        """Send a record (`records.py`) to `node` after all earlier ones; drop it without a link.

        `is_urgent`: before all others that wait.
        """

    @abstractmethod
    def silence_ms(self, node: bytes) -> int:
        """For how long nothing has been heard of a node, at most; 0 for this node."""

    @abstractmethod
    def is_reachable(self, node: bytes) -> bool:
        """Whether there is a link to a node."""

    @abstractmethod
    def is_dead(self, node: bytes) -> bool:
        """Whether the process of a node is known not to run.

        It refuses connections, or its record in the cluster is gone and it is silent.
        """

    # -- decisions ---------------------------------------------------------------------------------

    @abstractmethod
    def propose(
        self,
        transition: Transition,
        done: Callable[[int], None],
        fence: Fence | None = None,
        is_later: bool = False,
    ) -> None:
        """Propose a change of the queue's group; see `GroupProposer.propose`.

        `is_later`: the change only tidies the group, so it may come after those of other queues.
        """

    @abstractmethod
    def is_draining(self, node: bytes) -> bool:
        """Whether `node` drains: it leads the queue only if no other copy in sync can."""

    @abstractmethod
    def contact_ms(self) -> int:
        """For how long the store of the cluster has answered this node without a break (ms)."""

    @abstractmethod
    def gate(self, nodes: frozenset[bytes], needs_lease: bool) -> HandOutGate:
        """The gate of a master whose mirrors on `nodes` may depose it; see `Gates.gate`."""

    # -- the queue ---------------------------------------------------------------------------------

    @abstractmethod
    def open_copy(self) -> MirrorCopy:
        """This node's copy of the queue, hidden; a new one if it has none of this life."""

    @abstractmethod
    def renew_copy(self, copy: MirrorCopy) -> MirrorCopy:
        """Delete the hidden `copy` with all its messages; the empty one that takes its place."""

    @abstractmethod
    def drop_copy(self) -> None:
        """Delete this node's copy, opened or not: the group has given it up."""

    @abstractmethod
    def take_over(self, copy: MirrorCopy, source: InSync) -> None:
        """Let the copy serve clients from now on; its publishes wait for `source`."""

    @abstractmethod
    def step_down(self, copy: MirrorCopy) -> None:
        """Hide the copy, which has served: all of its messages are ready on return, none unacked.

        Its source refuses everything already.
        """


class RoleHost(TargetHost, ABC):
    """The replica, as its master or its mirror sees it."""

    @abstractmethod
    def send(self, node: bytes, record: MirrorRecord) -> None:
        """Send a record to a node."""

    @abstractmethod
    def propose(
        self,
        subject: object,
        transition: Transition,
        done: Callable[[int], None] | None = None,
        fence: Fence | None = None,
        is_later: bool = False,
    ) -> None:
        """Propose a change of the group, unless one about the same `subject` is under way.

        `is_later`: see `ReplicaHost.propose`.
        """

    @abstractmethod
    def report(self, record: MirrorRecord) -> None:
        """Send a record to the master, if there is one."""

    @abstractmethod
    def reopen(self) -> None:
        """Let another mirror take this one's place, with the copy reopened: it missed something."""

    @abstractmethod
    def begin_anew(self) -> None:
        """Let another mirror take this one's place, with an empty copy.

        The copy stays while the group records it as in sync: it may be the only one that is left.
        """
