"""The nodes of a cluster, as a process of Spark knows them.

The options name any one node. It tells the others, and any of them tells where a node is that has
come back with another address. A broker that runs alone names no nodes.
"""

from dataclasses import dataclass

from warrenmq.admin.client.client import AdminClient, NodeAddress, NodeUnreachableError
from warrenmq.admin.client.node_addresses import listener_for, uri_at
from warrenmq.admin.protocol.homes import LocateQueues, NodePlace, QueuesLocated


@dataclass(frozen=True)
class Place:
    """A node of the cluster, and where clients reach it."""

    node: str
    host: str
    port: int
    is_draining: bool = False


class Nodes:
    """The nodes of the cluster that the node at `uri` belongs to, by the ids of their data."""

    def __init__(self, uri: str, purpose: str) -> None:
        # The running nodes, by name, as a node has told them last.
        self.places: dict[str, Place] = {}
        self._uri = uri
        self._purpose = purpose
        # Names of all nodes seen, also of those that are down.
        self._names: dict[str, str] = {}

    def take(self, nodes: list[NodePlace]) -> None:
        """Note the running nodes, as a node has told them."""
        places: dict[str, Place] = {}
        for each in nodes:
            listener = listener_for(self._uri, each)
            if listener is not None:
                places[each.id] = Place(each.node, *listener, each.is_draining)
        self._names.update({home: place.node for home, place in places.items()})
        self.places = places

    def hint(self, home: str, place: Place) -> None:
        """Note where a node was when the driver saw it, unless it is known."""
        if home not in self.places:
            self._names[home] = place.node
            self.places = {**self.places, home: place}

    def ask(self, request: LocateQueues) -> QueuesLocated:
        """The answer of the first node that answers at once, and its nodes noted.

        Raises AdminRefusedError, and NodeUnreachableError if none answers.
        """
        failure: NodeUnreachableError | None = None
        others = [uri_at(self._uri, each.host, each.port) for each in self.places.values()]
        for uri in (self._uri, *others):
            try:
                with AdminClient(NodeAddress(uri), self._purpose) as client:
                    located = client.request(request, QueuesLocated)
            except NodeUnreachableError as error:
                failure = failure or error
            else:
                self.take(located.nodes)
                return located
        assert failure is not None
        raise failure

    def address(self, home: str) -> NodeAddress | None:
        """Where `home` is; None for a node that is not known to run."""
        place = self.places.get(home)
        return None if place is None else NodeAddress(uri_at(self._uri, place.host, place.port))

    def name(self, home: str) -> str:
        """The name of the node `home`; its id if no node has told its name."""
        return self._names.get(home, home)
