"""Reader groups and sinks of all nodes of a cluster: each node has those of its own queues."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from warrenmq.admin.client.client import AdminClient, NodeAddress, NodeUnreachableError
from warrenmq.admin.client.node_addresses import listener_for, uri_at
from warrenmq.admin.protocol.homes import LocateQueues, QueuesLocated
from warrenmq.cli.connection import Node, node_client


@contextmanager
def clients_of_all(node: Node, purpose: str) -> Iterator[list[AdminClient]]:
    """A client of `node`, and one of each other running node of its cluster, for `purpose`.

    A node that does not answer is left out, with a warning on standard error; see `node_client`
    for `node` itself.
    """
    with node_client(node, purpose) as first:
        clients = [first]
        located = first.request(LocateQueues(), QueuesLocated)
        try:
            for place in located.nodes:
                listener = listener_for(node.uri, place)
                if place.node == located.node or listener is None:
                    continue
                try:
                    address = NodeAddress(uri_at(node.uri, *listener))
                    clients.append(AdminClient(address, purpose))
                except NodeUnreachableError as error:
                    print(f"warren: without node {place.node}: {error}", file=sys.stderr)
            yield clients
        finally:
            for client in clients[1:]:
                client.close()
