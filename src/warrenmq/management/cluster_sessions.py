"""Sessions in a vhost with the nodes of a cluster: reader groups and messages of a queue are known
to the node that the queue lives on alone, and stages to the nodes that have them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from warrenmq.admin.client.client import NodeAddress
from warrenmq.admin.client.node_addresses import listener_for, uri_at
from warrenmq.admin.protocol.homes import LocateQueues, NodePlace, QueuesLocated
from warrenmq.management.errors import HttpRefusal
from warrenmq.management.sessions import Call, Caller

Answer = TypeVar("Answer")

# The form of the addresses of other nodes; a session logs in with the caller's user.
_URI = "amqp://localhost"
# The status of a reply when a node does not answer.
_SILENT = 503


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
    raise HttpRefusal(_SILENT, "service_unavailable", f"node {home}, which has the queue, is down")


def ask_all(
    caller: Caller, vhost: str, ask: Callable[[Call], Answer], is_partial: bool = False
) -> dict[str, Answer]:
    """What `ask` gets in a session with each running node, one after another, by node.

    Raises HttpRefusal for a node that does not answer; `is_partial`: such a node is left out.
    """
    with caller.session(vhost) as call:
        located = call(LocateQueues(), QueuesLocated)
        answers = {located.node: ask(call)}
    for place in located.nodes:
        if place.node != located.node:
            address = _address(place)
            try:
                with caller.session_at(address, vhost) as call:
                    answers[place.node] = ask(call)
            except HttpRefusal as refused:
                if not is_partial or refused.status != _SILENT:
                    raise
    return answers


def _address(place: NodePlace) -> NodeAddress:
    listener = listener_for(_URI, place)
    if listener is None:
        text = f"node {place.node} has no AMQP listener without TLS"
        raise HttpRefusal(_SILENT, "service_unavailable", text)
    return NodeAddress(uri_at(_URI, *listener))
