"""Sessions in a vhost with the nodes of a cluster: reader groups, sinks and messages of a queue are
known to the node that the queue lives on alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from warrenmq.admin.client.client import NodeAddress
from warrenmq.admin.client.node_addresses import listener_for, uri_at
from warrenmq.admin.protocol.homes import LocateQueues, NodePlace, QueuesLocated
from warrenmq.management.errors import HttpRefusal
from warrenmq.management.sessions import Call, Caller

# The form of the addresses of other nodes; a session logs in with the caller's user.
_URI = "amqp://localhost"


@contextmanager
def session_at_home(caller: Caller, vhost: str, queue: str) -> Iterator[Call]:
    """A session with the node of a queue; with the asked one if no such queue is known.

    Raises HttpRefusal.
    """
    name = queue.encode()
    with caller.session(vhost) as call:
        located = call(LocateQueues(queues=[name]), QueuesLocated)
        homes = {home.queue: home.node for home in located.homes}
        home = homes.get(name, located.node)
        if home == located.node:
            yield call
            return
    for place in located.nodes:
        if place.node == home:
            with caller.session_at(_address(place), vhost) as call:
                yield call
            return
    raise HttpRefusal(503, "service_unavailable", f"node {home}, which has the queue, is down")


def sessions_of_all(caller: Caller, vhost: str) -> Iterator[Call]:
    """A session with each running node, one after another. Raises HttpRefusal."""
    with caller.session(vhost) as call:
        located = call(LocateQueues(), QueuesLocated)
        yield call
    for place in located.nodes:
        if place.node != located.node:
            with caller.session_at(_address(place), vhost) as call:
                yield call


def _address(place: NodePlace) -> NodeAddress:
    listener = listener_for(_URI, place)
    if listener is None:
        text = f"node {place.node} has no AMQP listener without TLS"
        raise HttpRefusal(503, "service_unavailable", text)
    return NodeAddress(uri_at(_URI, *listener))
