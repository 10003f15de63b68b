"""The columns that describe a queue: name, type, meaning and cost of each.

The node computes their values (listings/queues.py); warrenctl offers their names. A name is
RabbitMQ's unless the column is warren's own (`is_own`).
"""

from enum import Enum
from typing import Final, Literal, NamedTuple

# COUNT and BYTES go up and down, TOTAL only grows while the node runs. A queue may have no value
# (None) in a column of any type.
ColumnType = Literal["text", "flag", "number", "count", "bytes", "total", "share", "list", "map"]


class Cost(Enum):
    """The cost of a value; none depends on how many messages the queue has."""

    # The figure is kept up to date anyway.
    KEPT = "kept"
    # A look at the copies of the queue.
    COPIES = "copies"
    # One pass over all channels of the node, whatever the number of queues.
    CHANNELS = "channels"


class QueueColumn(NamedTuple):
    """One column of queues."""

    name: str
    type: ColumnType
    meaning: str
    cost: Cost = Cost.KEPT
    is_own: bool = False


_OF_DEFINITION: Final = (
    QueueColumn("name", "text", "the queue's name"),
    QueueColumn("vhost", "text", "the name of its vhost", is_own=True),
    QueueColumn("id", "number", "tells queues of one name apart", is_own=True),
    QueueColumn("pid", "text", "names the node that the queue lives on"),
    QueueColumn("type", "text", "classic or quorum"),
    QueueColumn(
        "state", "text", "running, paused, down, or how far it is synchronised", Cost.COPIES
    ),
    QueueColumn("paused", "flag", "nothing is delivered, as someone wants it", is_own=True),
    QueueColumn("durable", "flag", "the queue outlives a restart"),
    QueueColumn("auto_delete", "flag", "the queue ends with its last consumer"),
    QueueColumn("exclusive", "flag", "the queue belongs to one connection"),
    QueueColumn("arguments", "map", "the arguments of its declaration"),
    QueueColumn("owner_pid", "text", "the connection of an exclusive queue"),
    QueueColumn("policy", "text", "the name of its policy"),
    QueueColumn("operator_policy", "text", "the name of its operator policy", is_own=True),
    QueueColumn("effective_policy_definition", "map", "what both policies set", is_own=True),
    QueueColumn("mode", "text", "default or lazy", is_own=True),
)
_OF_COPIES: Final = (
    QueueColumn("leader", "text", "the node of the master", Cost.COPIES),
    QueueColumn("members", "list", "the nodes with a living copy", Cost.COPIES),
    QueueColumn("online", "list", "those of `members` that are reached", Cost.COPIES),
    QueueColumn("reason", "text", "why the queue is down", Cost.COPIES, is_own=True),
    QueueColumn(
        "recoverable_slaves", "list", "the nodes that may become master", Cost.COPIES, is_own=True
    ),
    QueueColumn("slave_nodes", "list", "the nodes of the mirrors", Cost.COPIES, is_own=True),
    QueueColumn("slave_pids", "list", "the pids of the mirrors", Cost.COPIES),
    QueueColumn(
        "synchronised_slave_nodes",
        "list",
        "nodes of synchronised mirrors",
        Cost.COPIES,
        is_own=True,
    ),
    QueueColumn("synchronised_slave_pids", "list", "the pids of these mirrors", Cost.COPIES),
)
_OF_CONSUMERS: Final = (
    QueueColumn("consumers", "count", "consumers"),
    QueueColumn("consumer_capacity", "share", "the time in which consumers could take messages"),
    QueueColumn("consumer_utilisation", "share", "another name of `consumer_capacity`"),
    QueueColumn("exclusive_consumer_pid", "text", "the channel of an exclusive consumer"),
    QueueColumn("exclusive_consumer_tag", "text", "the tag of an exclusive consumer"),
)
_OF_MESSAGES: Final = (
    QueueColumn("messages", "count", "messages, ready or unacked"),
    QueueColumn("messages_ready", "count", "messages that wait for a consumer"),
    QueueColumn("messages_unacknowledged", "count", "messages delivered and not acked"),
    QueueColumn(
        "oldest_unacknowledged_seconds",
        "number",
        "for how long the oldest unacked delivery waits at least",
        Cost.CHANNELS,
        is_own=True,
    ),
    QueueColumn("messages_ram", "count", "messages whose content is in memory"),
    QueueColumn("messages_ready_ram", "count", "the ready ones of these"),
    QueueColumn("messages_unacknowledged_ram", "count", "the unacked ones of these"),
    QueueColumn("messages_persistent", "count", "messages that outlive a restart"),
    QueueColumn(
        "messages_paged_out", "count", "ready messages whose content is on disk", is_own=True
    ),
    QueueColumn("head_message_timestamp", "number", "the oldest ready message's timestamp (s)"),
)
_OF_BYTES: Final = (
    QueueColumn("memory", "bytes", "memory of the queue, overhead included"),
    QueueColumn("message_bytes", "bytes", "bodies of all messages"),
    QueueColumn("message_bytes_ready", "bytes", "bodies of ready messages"),
    QueueColumn("message_bytes_unacknowledged", "bytes", "bodies of unacked messages"),
    QueueColumn("message_bytes_persistent", "bytes", "bodies of messages that outlive a restart"),
    QueueColumn("message_bytes_ram", "bytes", "contents in memory"),
    QueueColumn("message_bytes_paged_out", "bytes", "contents of these", is_own=True),
    QueueColumn("disk_reads", "total", "messages that were read from disk"),
    QueueColumn("disk_writes", "total", "messages that were written to disk"),
)
# Ready messages in the parts of the queue, youngest first, and in each form.
_OF_PARTS: Final = (
    *(
        QueueColumn(part, "count", f"ready messages in {part}", is_own=True)
        for part in ("q1", "q2", "delta", "q3", "q4")
    ),
    QueueColumn(
        "alpha", "count", "ready messages with position and content in memory", is_own=True
    ),
    QueueColumn("beta", "count", "ready messages with the position in memory", is_own=True),
    QueueColumn("gamma", "count", "these with the position on disk as well", is_own=True),
    QueueColumn("target_ram_count", "count", "how many contents may be in memory", is_own=True),
)

QUEUE_COLUMNS: Final = {
    column.name: column
    for column in (
        *_OF_DEFINITION,
        *_OF_COPIES,
        *_OF_CONSUMERS,
        *_OF_MESSAGES,
        *_OF_BYTES,
        *_OF_PARTS,
    )
}


def costs_of(columns: list[str]) -> set[Cost]:
    """The costs of a listing with these columns."""
    return {QUEUE_COLUMNS[name].cost for name in columns}
