"""Request and reply of the admin protocol for sums over all queues and clients.

The figures have the names of the columns of listings. Sizes are in bytes.
"""

from typing import Literal

from msgspec import Struct


class DescribeTotals(
    Struct, tag="describe_totals", forbid_unknown_fields=True, frozen=True, omit_defaults=True
):
    """The sums of this node, or of all nodes that answer. Reply: NodeTotals, after some turns."""

    which: Literal["local", "all"] = "local"


class QueueSums(Struct, frozen=True):
    """Sums over the queues that live on the asked nodes; delta is what forms leave."""

    queues: int
    paused: int
    consumers: int
    messages: int
    messages_ready: int
    messages_unacknowledged: int
    messages_ram: int
    messages_ready_ram: int
    messages_unacknowledged_ram: int
    messages_persistent: int
    messages_paged_out: int
    message_bytes: int
    message_bytes_ready: int
    message_bytes_unacknowledged: int
    message_bytes_ram: int
    message_bytes_persistent: int
    message_bytes_paged_out: int
    memory: int
    alpha: int
    beta: int
    gamma: int


class ClientSums(Struct, frozen=True):
    """Sums over the connections of the asked nodes and their channels."""

    connections: int
    send_pend: int
    channels: int
    # Channels on which clients have published.
    publishers: int
    consumer_count: int
    messages_unacknowledged: int
    messages_unconfirmed: int
    messages_uncommitted: int
    acks_uncommitted: int
    global_prefetch_count: int
    prefetch_count: int


class MirrorSums(Struct, frozen=True):
    """Queues with a master on an asked node and with mirrors, and how many of these there are.

    An unprotected queue has no synchronised mirror.
    """

    queues: int
    mirrors: int
    synchronised: int
    unprotected: int


class VhostSums(Struct, frozen=True):
    """A vhost: its exchanges and queues, of all nodes and down ones too, and sums over the queues.

    The sums are over the queues that live on the asked nodes.
    """

    exchanges: int
    queues: int
    consumers: int
    messages: int
    messages_ready: int
    messages_unacknowledged: int


class NodeTotals(Struct, tag="node_totals", frozen=True):
    """The sums; something that comes or goes while they are taken may be in them or not."""

    queues: QueueSums
    clients: ClientSums
    mirrors: MirrorSums
    # By name.
    vhosts: dict[str, VhostSums]
