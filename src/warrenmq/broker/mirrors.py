"""The copies of mirrored queues, as a node knows them and as operators use them.

`Broker.mirrors` is None on a node without replication: no queue has mirrors there. Nodes are named
as texts, since this is for people and programs that list queues.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, NamedTuple

from mypy_extensions import mypyc_attr

# A number that this node does not know.
UNKNOWN: Final = -1


class SyncProgress(NamedTuple):
    """A synchronisation: `messages` of the `total` that a mirror lacked have arrived there.

    The rates are those of the last seconds, in messages and bytes a second; 0 while nothing is
    being sent.
    """

    messages: int
    total: int
    message_rate: float = 0.0
    byte_rate: float = 0.0


class CopyFacts(NamedTuple):
    """One mirror of a queue.

    `is_synced`: whether the recorded set of synchronised copies has it. `is_online`: whether this
    node is that node, or has a link to it. The lag is what the master has and the mirror has not
    made durable yet, and `lag_ms` for how long it has lacked the oldest change; UNKNOWN on nodes
    other than the master's, `lag_ms` also before a synchronisation ends. `sync`: None while the
    mirror is not being synchronised. `sync_bytes`: bytes of all records that this master has sent
    it for synchronisations; UNKNOWN on other nodes.
    """

    node: str
    pid: str
    is_synced: bool
    is_online: bool
    lag_messages: int = UNKNOWN
    lag_bytes: int = UNKNOWN
    sync: SyncProgress | None = None
    sync_bytes: int = UNKNOWN
    lag_ms: int = UNKNOWN


class MirrorFacts(NamedTuple):
    """The copies of a mirrored queue.

    `master`: the node of the master, or the last one. `is_down`: no copy serves the queue, for
    `reason`; otherwise `reason` says why this master is master. `mirrors`: oldest first, without
    the master. `ring`: the nodes in the order of the ring, the master's included. `recoverable`:
    the nodes that have a copy, running or not. `min_sync`: how many synchronised copies, the
    master's included, the queue needs to accept publishes. `promotes_unsynced`: whether a mirror
    that is not synchronised takes over when no other can, be it after a failure or a stop.
    """

    master: str
    is_down: bool
    reason: str
    mirrors: tuple[CopyFacts, ...]
    ring: tuple[str, ...]
    recoverable: tuple[str, ...]
    epoch: int
    version: int
    min_sync: int
    promotes_unsynced: bool


class MasterMove(NamedTuple):
    """A master that is to move from the node `source` to the node `target`."""

    vhost: str
    queue: str
    source: str
    target: str


class MovePlan(NamedTuple):
    """The moves that spread masters evenly, and by node how many masters there are before them."""

    masters: dict[str, int]
    moves: list[MasterMove]


def mirror_pid(node: str, birth: int, version: int) -> str:
    """The pid of a mirror: of the queue with this birth, joined as this version of its group.

    See admin/listings/pids.py for the pids of other things; the kind is 3.
    """
    return f"<{node}.3.{birth}.{version}>"


@mypyc_attr(allow_interpreted_subclasses=True)
class MirrorControl(ABC):
    """Lists the copies of mirrored queues, and synchronises or moves them for operators.

    Callers of `synchronise` and `cancel_sync` have checked that the queue is mirrored, and that
    this node is its master.
    """

    @abstractmethod
    def facts_of(self, vhost: bytes, queue: bytes) -> MirrorFacts | None:
        """The copies of a queue, None if it is not mirrored or does not exist.

        Every node answers for every queue of the cluster, since the groups are known to all.
        """

    @abstractmethod
    def counts_of(self, vhost: bytes, queue: bytes) -> tuple[int, int]:
        """How many mirrors a queue has, and how many of them are in sync; known as by `facts_of`.

        For sums over many queues: (0, 0) also for one that is not mirrored.
        """

    @abstractmethod
    def awaits_master(self, vhost: bytes, queue: bytes) -> bool:
        """Whether a mirrored queue that nobody serves may have a master within some seconds.

        False: no node within reach has a copy that may take over, so clients need not wait.
        """

    @abstractmethod
    def synchronise(self, vhost: bytes, queue: bytes) -> str:
        """Begin to synchronise the mirrors that are not; returns "" or why that is impossible.

        From now on until its end, `facts_of` shows the progress of each.
        """

    @abstractmethod
    def cancel_sync(self, vhost: bytes, queue: bytes) -> bool:
        """Stop the synchronisation of a queue; returns whether there was one."""

    @abstractmethod
    def plan_rebalance(self, is_meant: Callable[[bytes, bytes], bool]) -> MovePlan:
        """What `rebalance` would move now."""

    @abstractmethod
    def rebalance(
        self, is_meant: Callable[[bytes, bytes], bool], done: Callable[[str], None]
    ) -> None:
        """Spread the masters of queues evenly over the nodes; `is_meant(vhost, queue)` chooses.

        `done` is called once, with "" when every master that had to has moved, or with what failed.
        """
