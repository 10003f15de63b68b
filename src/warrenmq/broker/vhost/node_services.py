"""The services of a node: settings, memory, alarms, flow control, ids, names and a wake call.

The node's vhosts and connections use them.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from warrenmq.broker.counters import NodeCounters
from warrenmq.broker.definitions.settings import Settings
from warrenmq.broker.definitions.shared import SharedDefinitions
from warrenmq.broker.event_listener import EventListener
from warrenmq.broker.flow.alarms import Alarms
from warrenmq.broker.flow.disk_flow import DiskFlow
from warrenmq.broker.flow.publish_turns import PublishTurns
from warrenmq.broker.latencies import Latencies
from warrenmq.broker.mirrors import MirrorControl
from warrenmq.broker.vhost.remote.nodes import RemoteNodes
from warrenmq.broker.vhost.remote.slice_carrier import SliceCarrier
from warrenmq.queues.memory.account import MemoryAccount
from warrenmq.queues.queue import Queue
from warrenmq.queues.remote.node import RemoteNode
from warrenmq.queues.remote.queue_link import TurnEnd


class NodeServices:
    """The services of one node; call `wake` when there is something to write or to commit."""

    def __init__(self, settings: Settings, alarms: Alarms, wake: Callable[[], None]) -> None:
        self.settings: Settings = settings
        self.alarms: Alarms = alarms
        self.disk_flow: DiskFlow = DiskFlow()
        self.publish_turns: PublishTurns = PublishTurns(wake)
        self.counters: NodeCounters = NodeCounters()
        self.latencies: Latencies = Latencies()
        self.memory_account: MemoryAccount = MemoryAccount(wake)
        # Queues that the timer visits: the queue, or messages in it, may expire. A dict keeps the
        # order of insertion; the order of a set would depend on memory addresses.
        self.timed_queues: dict[Queue, None] = {}
        self.wake: Callable[[], None] = wake
        # None while nobody wants to know of events.
        self.events: EventListener | None = None
        # None: the node runs alone, and its own metadata has all definitions.
        self.shared: SharedDefinitions | None = None
        self.remote_nodes: RemoteNodes = RemoteNodes(wake)
        # The copies of mirrored queues; None: this node replicates nothing.
        self.mirrors: MirrorControl | None = None
        # None: staged messages go to other nodes as other copies do, perhaps twice after a crash.
        self.slice_carrier: SliceCarrier | None = None

    @property
    def turn_ends(self) -> list[TurnEnd]:
        """The ends of links, which send at the end of each turn; add and remove your own."""
        return self.remote_nodes.turn_ends

    def remote_node(self, name: bytes) -> RemoteNode:
        """The other node `name` of the cluster, down until a link to it is up."""
        return self.remote_nodes.of(name)

    def next_queue_id(self) -> i64:
        """A queue id that no queue of this node ever had."""
        raise RuntimeError("abstract")

    def random_bytes(self, size: int) -> bytes:
        """Bytes by chance, from the node's source."""
        raise RuntimeError("abstract")

    def random_name(self) -> bytes:
        """22 random characters for a server-made name (protocol 5.4)."""
        raise RuntimeError("abstract")
