"""Requests and replies of the admin protocol about the copies of mirrored queues.

`control.py` has the other operations, and says which tag each of them needs. A queue that
is not mirrored is refused with `not_mirrored`, one that does not exist with `not_found`. Any node
of the cluster takes the requests, and passes them on to the queue's master.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from warrenmq.admin.protocol.fields import ShortStr

Name = Annotated[str, Meta(max_length=255)]
Pattern = Annotated[str, Meta(max_length=16_384)]
QueueKind = Literal["all", "classic", "quorum"]


class _Request(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Base of the requests: unknown fields are errors."""


class DescribeMirrors(_Request, tag="describe_mirrors", frozen=True):
    """The copies of a queue. Reply: MirrorStatus."""

    vhost: Name
    queue: ShortStr


class SyncQueue(_Request, tag="sync_queue", frozen=True):
    """Begin to synchronise the mirrors of a queue that are not.

    The reply comes at once; `MirrorStatus.sync_messages` is None again at the end.
    """

    vhost: Name
    queue: ShortStr


class CancelSync(_Request, tag="cancel_sync", frozen=True):
    """Stop the synchronisation of a queue. Reply: Counted, 1 if there was one, else 0.

    A queue that is not mirrored is not refused: it has none.
    """

    vhost: Name
    queue: ShortStr


class _OfMasters(_Request, frozen=True):
    """Masters of mirrored queues, chosen by patterns that are searched for in names.

    Refused (`precondition`) while the node replicates nothing.
    """

    vhost_pattern: Pattern = ".*"
    queue_pattern: Pattern = ".*"
    kind: QueueKind = "all"


class RebalanceQueues(_OfMasters, tag="rebalance_queues", frozen=True):
    """Spread the masters evenly over the nodes. Reply: MasterCounts."""


class PlanRebalance(_OfMasters, tag="plan_rebalance", frozen=True):
    """What RebalanceQueues would do now. Reply: MasterMoves."""


class MirrorCopy(Struct, frozen=True):
    """A mirror of a queue.

    The lag is what the master has and the mirror has not made durable yet, and `lag_ms` for how
    long it has lacked the oldest change; None: the master's node does not answer, or the mirror is
    not in sync. `sync_messages` of `sync_total` missing messages have been copied to it, both None
    while the mirror is not being synchronised. `sync_bytes`: what the master has sent it for
    synchronisations since it is the master, None if that is not known. The rates of the
    synchronisation are those of the last seconds, by second, and `sync_left_ms` is how long it
    takes at this speed; None while nothing is being sent.
    """

    node: str
    pid: str
    is_synchronised: bool
    is_online: bool
    lag_messages: int | None
    lag_bytes: int | None
    sync_messages: int | None
    sync_total: int | None
    sync_bytes: int | None = None
    # Nodes of an earlier version do not say these.
    lag_ms: int | None = None
    sync_message_rate: float | None = None
    sync_byte_rate: float | None = None
    sync_left_ms: int | None = None


class StopLoss(Struct, frozen=True):
    """The loss when a node stops: `messages` are gone for good; None: an unknown number."""

    messages: int | None
    text: str


class MirrorStatus(Struct, tag="mirror_status", frozen=True):
    """The copies of a queue, whose master is on `node`, or was: then `state` is "down".

    `pid` is that of the queue, None while it is down. `state` is "running", "syncing" or "down",
    and `reason` says why the master is master, or why there is none. `messages`: None if the
    queue's node does not answer. The lists of nodes and `mirrors` are oldest first and have no
    master; `ring` has it. `lost_if_stops`: by node, what a stop of it loses at this moment.
    """

    vhost: str
    name: str
    node: str
    pid: str | None
    state: str
    reason: str
    messages: int | None
    sync_messages: int | None
    slave_nodes: list[str]
    synchronised_slave_nodes: list[str]
    recoverable_slaves: list[str]
    mirrors: list[MirrorCopy]
    ring: list[str]
    epoch: int
    version: int
    min_sync: int
    lost_if_stops: dict[str, StopLoss]


class MasterCounts(Struct, tag="master_counts", frozen=True):
    """By node, the masters of quorum queues, and of classic queues with mirrors."""

    quorum: dict[str, int]
    classic: dict[str, int]


class MasterMove(Struct, frozen=True):
    """A master that is to move from the node `source` to the node `target`."""

    vhost: str
    name: str
    source: str
    target: str


class MasterMoves(Struct, tag="master_moves", frozen=True):
    """Moves that spread masters evenly; `masters`: how many each node has before them."""

    masters: dict[str, int]
    moves: list[MasterMove]


MirrorRequest = DescribeMirrors | SyncQueue | CancelSync | RebalanceQueues | PlanRebalance
MirrorReply = MirrorStatus | MasterCounts | MasterMoves
