"""Groups and sinks of a cluster: each node knows the groups of its queues, and its stages."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from warrenmq.admin.client.client import AdminClient, NodeAddress, NodeUnreachableError
from warrenmq.admin.client.node_addresses import listener_for, uri_at
from warrenmq.admin.protocol.homes import LocateQueues, QueuesLocated
from warrenmq.cli.connection import Node, node_client


@contextmanager
def clients_of_all(node: Node, purpose: str) -> Iterator[dict[str, AdminClient]]:
    """Clients of `node` and of each other running node of its cluster, by name, for `purpose`.

    A node that does not answer is left out, with a warning on standard error; see `node_client`
    for `node` itself.
    """
    with node_client(node, purpose) as first:
        located = first.request(LocateQueues(), QueuesLocated)
        clients = {located.node: first}
        try:
            for place in located.nodes:
                listener = listener_for(node.uri, place)
                if place.node == located.node or listener is None:
                    continue
                try:
                    address = NodeAddress(uri_at(node.uri, *listener))
                    clients[place.node] = AdminClient(address, purpose)
                except NodeUnreachableError as error:
                    print(f"warren: without node {place.node}: {error}", file=sys.stderr)
            yield clients
        finally:
            for client in clients.values():
                client.close()
