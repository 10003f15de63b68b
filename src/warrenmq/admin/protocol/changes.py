"""Request and reply of the admin protocol for figures that have changed, tick by tick.

A session asks again and again, and the node answers with the objects whose figures differ from
the ones that it told this session last. A tick is the sequence of answers up to the first one
without `has_more`; each answer looks at a bounded number of objects, so that no tick, however many
objects there are, holds up the node's clients.
"""

from typing import Annotated, Final

from msgspec import Meta, Struct

from warrenmq.vocabulary.distribution import DURATION_BOUNDS_NS

# Kinds of objects. A node has one object of the kind NODE.
NODE: Final = "node"
QUEUE: Final = "queue"
EXCHANGE: Final = "exchange"
CHANNEL: Final = "channel"
CONNECTION: Final = "connection"

# What clients' messages did, by RabbitMQ's names in `message_stats`.
_TAKEN: Final = (
    "deliver", "deliver_no_ack", "get", "get_no_ack", "get_empty", "redeliver", "ack",
)  # fmt: skip

# Syncs of the journal by how long they took: up to each bound (ns), and longer than all.
SYNCS: Final = (*(f"syncs_to_{bound}" for bound in DURATION_BOUNDS_NS), "syncs_beyond")
# Bytes that clients published, and that stores wrote, by the kinds of `WriteStatus`.
WRITES: Final = (
    "published_bytes", "journal_bytes", "content_bytes", "index_bytes", "rewritten_bytes",
    "compacted_bytes", "checkpoint_bytes",
)  # fmt: skip

# The names of an object's `counters`, which only grow, in order. A new name comes last: nodes of
# earlier versions tell fewer figures.
COUNTERS: Final = {
    NODE: (
        "publish", "confirm", "return_unroutable", "drop_unroutable", *_TAKEN,
        "connection_created", "connection_closed", "channel_created", "channel_closed",
        "queue_declared", "queue_created", "queue_deleted", "recv_oct", "send_oct",
        "disk_reads", "disk_writes", *SYNCS, "synced_bytes", *WRITES,
    ),
    QUEUE: ("publish", *_TAKEN),
    EXCHANGE: ("publish_in", "publish_out"),
    CHANNEL: ("publish", "confirm", "return_unroutable", "drop_unroutable", *_TAKEN),
    CONNECTION: ("recv_oct", "send_oct"),
}  # fmt: skip

# The names of an object's `levels`, which rise and fall, in order. Those of a node that begin with
# `mem_` are bytes: used in all, from which on publishers are blocked, from which on messages leave
# memory, and used by messages. `ram_limit` of a queue is 1 + the target of messages in memory, 0
# while memory has room for all.
LEVELS: Final = {
    NODE: (
        "mem_used", "disk_free", "fd_used", "sockets_used", "connections", "channels",
        "mem_limit", "mem_paging", "mem_messages",
    ),
    QUEUE: (
        "messages_ready", "messages_unacknowledged", "message_bytes", "memory", "consumers",
        "messages_beta", "messages_gamma", "messages_delta", "ram_limit",
    ),
    EXCHANGE: (),
    CHANNEL: ("messages_unacknowledged", "messages_unconfirmed", "messages_uncommitted"),
    CONNECTION: ("channels",),
}  # fmt: skip


class ReadChanges(Struct, tag="read_changes", forbid_unknown_fields=True, frozen=True):
    """The next answer of a tick of one kind. Reply: Changes.

    Users with the tag administrator or monitoring get the objects of all vhosts, others none.
    """

    kind: Annotated[str, Meta(max_length=16)]
    # The node that is asked, "": that of the session. Refused (`unreachable`) without a link to it.
    node: Annotated[str, Meta(max_length=255)] = ""
    # The session's own name where its node passes the request on; others leave it empty.
    session: Annotated[str, Meta(max_length=255)] = ""


class ChangedObject(Struct, frozen=True, array_like=True):
    """The figures of one object.

    Until the node starts again, `id` is that of no other object of the kind. A mirrored queue is
    gone when its master moves away, and has its old id when it comes back.

    Queues and exchanges have a vhost and a name. A channel's and a connection's name is that of
    the listings, its vhost the one that it is open in.

    The queues of a cluster have a `birth`, which tells the lives of one name apart. When a queue's
    master moves to another node, `epoch` rises, and the counters there are others.
    """

    id: int
    vhost: str
    name: str
    counters: list[int]
    levels: list[int]
    birth: int = 0
    epoch: int = 0


class Changes(Struct, tag="changes", frozen=True):
    """Objects of the kind that are new or have changed, and the ids of those that are gone.

    `started_ms` (ms since 1970) is when the node started: counters began at 0 then. At `now_ms`
    the figures were read. The node's first tick for a session tells all objects (`is_first`), and
    nothing of those that an earlier session was told of and that are gone.
    """

    started_ms: int
    now_ms: int
    changed: list[ChangedObject]
    gone: list[int]
    has_more: bool
    is_first: bool = False
    # In answers about the kind NODE: the running nodes of the cluster, this one included.
    nodes: list[str] = []


ChangesRequest = ReadChanges
ChangesReply = Changes
