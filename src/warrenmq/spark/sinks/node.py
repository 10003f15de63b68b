"""Finds the node of a cluster that keeps a sink.

A sink is kept by the node that it was first written through: that node knows the last batch, and
has the stages. The option `uri` may name another node later, so a sink is looked for on all nodes.
"""

import os

from warrenmq.admin.client.client import (
    AdminClient,
    AdminRefusedError,
    NodeAddress,
    NodeUnreachableError,
)
from warrenmq.admin.client.node_addresses import listener_for, uri_at
from warrenmq.admin.protocol.homes import LocateQueues, QueuesLocated
from warrenmq.admin.protocol.sinks import DescribeSink, SinkStatus
from warrenmq.spark.retry import Retry
from warrenmq.vocabulary.error_codes import BAD_REQUEST, NOT_FOUND

# Sinks that were found, by process, URI and sink.
_known: dict[tuple[int, str, str], str] = {}
# Nodes that run alone, by process and URI: they keep all sinks.
_alone: set[tuple[int, str]] = set()


def uri_of_sink(uri: str, sink: str, timeout_s: float, option: str) -> str:
    """The URI of the node that keeps `sink`; `uri` if it runs alone, or no node knows the sink.

    Waits up to `timeout_s` for nodes that are away; errors name the time-out as `option`. Raises
    AdminRefusedError and SourceError.
    """
    key = os.getpid(), uri, sink
    found = _known.get(key)
    if found is not None or key[:2] in _alone:
        return found or uri
    with Retry(NodeAddress(uri).where, timeout_s, option) as retry:
        while found is None:
            retry.attempt()
            try:
                found = _find(uri, sink)
            except NodeUnreachableError as error:
                retry.failed(error)
    if key[:2] not in _alone:
        _known[key] = found
    return found


def _find(uri: str, sink: str) -> str:
    purpose = f"spark sink {sink}"
    with AdminClient(NodeAddress(uri), purpose) as client:
        try:
            located = client.request(LocateQueues(), QueuesLocated)
        except AdminRefusedError as error:
            if error.code != BAD_REQUEST:
                raise
            # A node of an earlier version, which runs alone, does not know the question.
            located = QueuesLocated("", [], [])
        if not located.nodes:
            _alone.add((os.getpid(), uri))
            return uri
        if _knows(client, sink):
            return uri
    for place in located.nodes:
        listener = listener_for(uri, place)
        if place.node != located.node and listener is not None:
            other = uri_at(uri, *listener)
            with AdminClient(NodeAddress(other), purpose) as client:
                if _knows(client, sink):
                    return other
    return uri


def _knows(client: AdminClient, sink: str) -> bool:
    try:
        client.request(DescribeSink(sink), SinkStatus)
    except AdminRefusedError as error:
        if error.code != NOT_FOUND:
            raise
        return False
    return True
