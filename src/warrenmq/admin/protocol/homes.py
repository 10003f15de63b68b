"""Requests and replies of the admin protocol about where queues live: on which node of a cluster.

Readers of a queue talk to its home, the node that has its messages. They learn it from any node.
"""

from typing import Annotated

from msgspec import Meta, Struct

from warrenmq.admin.protocol.fields import ShortStr


class LocateQueues(Struct, tag="locate_queues", forbid_unknown_fields=True, frozen=True):
    """Tell the homes of `queues`, or of all whose whole name `pattern` matches.

    Reply: QueuesLocated. Without both the reply has the nodes only. A pattern matches durable
    queues only.
    """

    queues: list[ShortStr] = []
    pattern: Annotated[str, Meta(max_length=1000)] = ""


class NodePlace(Struct, frozen=True):
    """A running node; `id` is that of its data directory, and never that of another one.

    `listeners` for clients: (protocol, host, port), protocol "amqp" or "amqp/ssl". `is_draining`:
    it is in maintenance mode.
    """

    node: str
    id: str
    listeners: list[tuple[str, str, int]]
    is_draining: bool = False


class QueueHome(Struct, frozen=True):
    """A queue and the name of the node that it lives on, which need not be running."""

    queue: bytes
    node: str


class QueuesLocated(Struct, tag="queues_located", frozen=True):
    """The running nodes, and the homes of the queues that exist, both by name.

    A node that runs alone answers neither: all queues are its own. `node`: who answers.
    """

    node: str
    nodes: list[NodePlace]
    homes: list[QueueHome]
