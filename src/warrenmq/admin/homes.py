"""Tells the clients of a session which node of the cluster has which queue."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from warrenmq.admin.protocol.homes import LocateQueues, NodePlace, QueueHome, QueuesLocated
from warrenmq.broker.definitions.rights import QUEUE, Rights
from warrenmq.cluster.records import RunningNode
from warrenmq.queues.readers.group_error import GroupError
from warrenmq.queues.readers.groups import compile_pattern
from warrenmq.vocabulary.error_codes import BAD_REQUEST

if TYPE_CHECKING:
    from warrenmq.cluster.membership.control import ClusterControl

# Interfaces that stand for all addresses of a machine.
_ANY: Final = ("", "0.0.0.0", "::")


def locate(
    queues: Iterable[tuple[bytes, bool, str]],
    node: str,
    cluster: ClusterControl | None,
    rights: Rights,
    request: LocateQueues,
) -> QueuesLocated:
    """The answer of the node `node` to `request`. Raises GroupError for an unusable pattern.

    `queues` has name, durability and home of each, "" for `node` itself. A pattern matches only
    queues that the session, with its `rights`, may read.
    """
    if cluster is None:
        return QueuesLocated(node, [], [])
    try:
        matcher = compile_pattern(request.pattern)
    except ValueError as error:
        raise GroupError(BAD_REQUEST, str(error)) from None
    named = set(request.queues)
    homes: list[QueueHome] = []
    for queue, is_durable, home in queues:
        if queue not in named:
            if not request.pattern or not is_durable:
                continue
            if not matcher.matches(queue.decode("utf-8", "replace")):
                continue
            if rights.read_refusal(QUEUE, queue):
                continue
        homes.append(QueueHome(queue, home or node))
    homes.sort(key=lambda each: each.queue)
    # A node that has announced no listeners yet serves no clients.
    places = [
        _place(name, record)
        for name, record in sorted(cluster.records().items())
        if record.listeners
    ]
    return QueuesLocated(node, places, homes)


def _place(node: str, record: RunningNode) -> NodePlace:
    listeners = [
        (protocol, record.host if interface in _ANY else interface, port)
        for protocol, interface, port in record.listeners
    ]
    return NodePlace(node, record.replica_id, listeners, record.is_draining)
