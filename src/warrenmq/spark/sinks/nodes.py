"""The nodes through which a process writes into the sinks of a cluster, and connections to them.

A sink belongs to its cluster: any node commits its batches and tells about it. The rows of a batch
are staged at two nodes. They are the first two of an order that the driver makes and its tasks
take over, so that all tasks stage at the same nodes while these live.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from warrenmq.admin.client.client import (
    AdminClient,
    AdminRefusedError,
    NodeAddress,
    NodeUnreachableError,
    ReplyType,
)
from warrenmq.admin.client.node_addresses import uri_at
from warrenmq.admin.protocol.homes import LocateQueues
from warrenmq.admin.protocol.requests import Request
from warrenmq.spark.nodes import Nodes, Place
from warrenmq.spark.retry import Retry, is_transient
from warrenmq.spark.sinks.options import SinkOptions
from warrenmq.vocabulary.error_codes import BAD_REQUEST

PURPOSE: Final = "spark sink"
# The option that limits all waits, as errors name it.
TIMEOUT_OPTION: Final = "confirmTimeoutMs"
# A node that runs alone: it is at the URI, and keeps all sinks. It needs no name.
_ALONE: Final = Place("", "", 0)


class SinkNodes:
    """The nodes of the cluster that the node at `uri` belongs to, in the order of their use."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._nodes = Nodes(uri, PURPOSE)
        # The nodes that were running when the order was made; empty: nobody has been asked yet.
        self._order: tuple[Place, ...] = ()
        # The node with which the order begins while it runs; "": not known yet.
        self._entry = ""
        # Where each node was when it was seen last.
        self._places: dict[str, Place] = {}
        self._clients: dict[str, AdminClient] = {}

    @property
    def where(self) -> str:
        """host:port of the node of the options, for messages."""
        return NodeAddress(self._uri).where

    def learn(self, order: Sequence[Place]) -> None:
        """Take over the order that the driver has made; it may be empty."""
        if order:
            self._entry = order[0].node
            self._note(tuple(order))

    def find(self) -> tuple[Place, ...]:
        """Ask which nodes run, and put them in order, and return it.

        The first one answered first, as a rule the one at `uri`; the others follow by name, and
        those in maintenance mode at the end. Raises AdminRefusedError and NodeUnreachableError.
        """
        places: list[Place] = []
        try:
            located = self._nodes.ask(LocateQueues())
        except AdminRefusedError as error:
            # A node of an earlier version, which runs alone, does not know the question.
            if error.code != BAD_REQUEST:
                raise
        else:
            places += self._nodes.places.values()
            entry = self._entry = self._entry or located.node
            places.sort(key=lambda place: (place.is_draining, place.node < entry, place.node))
        self._note(tuple(places) or (_ALONE,))
        return self._order

    def connect(self, purpose: str, count: int) -> dict[str, AdminClient]:
        """New clients, by node, of the first `count` nodes that take one, or of fewer.

        Raises AdminRefusedError, and NodeUnreachableError if no node can be reached.
        """
        found: dict[str, AdminClient] = {}
        failure: NodeUnreachableError | None = None
        order = self._order or self.find()
        try:
            for place in order:
                try:
                    found[place.node] = AdminClient(self._address(place), purpose)
                except NodeUnreachableError as error:
                    failure = failure or error
                if len(found) == count:
                    break
        except BaseException:
            for client in found.values():
                client.close()
            raise
        if failure is not None:
            # The nodes are asked again, next time.
            self._order = ()
        if not found:
            assert failure is not None
            raise failure
        return found

    def request(
        self,
        make: Callable[[str], Request],
        expected: type[ReplyType],
        timeout_s: float,
        wait_s: float = 0.0,
        nodes: Sequence[str] = (),
    ) -> ReplyType:
        """The reply of the first of `nodes` (of any node) that gives one to its `make(node)`.

        They are tried again for `timeout_s` while they are away; `wait_s` as for AdminClient.
        `make` is called for each attempt. Raises AdminRefusedError and SourceError.
        """
        with Retry(self.where, timeout_s, TIMEOUT_OPTION) as retry:
            while True:
                retry.attempt()
                try:
                    return self._first_reply(make, expected, wait_s, nodes, retry)
                except (AdminRefusedError, NodeUnreachableError) as error:
                    if isinstance(error, AdminRefusedError) and not is_transient(error):
                        raise
                    retry.failed(error)

    def _first_reply(
        self,
        make: Callable[[str], Request],
        expected: type[ReplyType],
        wait_s: float,
        nodes: Sequence[str],
        retry: Retry,
    ) -> ReplyType:
        """One round of `request`; raises the error of the node that was tried last."""
        failure: AdminRefusedError | NodeUnreachableError | None = None
        for node in nodes or [place.node for place in self._order or self.find()]:
            try:
                client = self._client(node)
                # A node may take its time for the reply; it is not away meanwhile.
                retry.connected()
                return client.request(make(node), expected, wait_s)
            except NodeUnreachableError as error:
                self._clients.pop(node, None)
                failure = error
            except AdminRefusedError as error:
                if not is_transient(error):
                    raise
                failure = error
        # Nodes may come back elsewhere.
        self._order = ()
        assert failure is not None
        raise failure

    def _client(self, node: str) -> AdminClient:
        client = self._clients.get(node)
        if client is None:
            if not self._order:
                self.find()
            place = self._places.get(node)
            if place is None:
                raise NodeUnreachableError(f"node {node} is down")
            client = self._clients[node] = AdminClient(self._address(place), PURPOSE)
        return client

    def _note(self, order: tuple[Place, ...]) -> None:
        self._order = order
        self._places.update({place.node: place for place in order})

    def _address(self, place: Place) -> NodeAddress:
        return NodeAddress(uri_at(self._uri, place.host, place.port) if place.node else self._uri)


# The known nodes by process and URI; see `broker_link.link_to`.
_known: dict[tuple[int, str], SinkNodes] = {}


def sink_nodes(options: SinkOptions) -> SinkNodes:
    """The nodes that this process knows around the URI of `options`."""
    key = (os.getpid(), options.uri)
    nodes = _known.get(key)
    if nodes is None:
        nodes = _known[key] = SinkNodes(options.uri)
    nodes.learn(options.nodes)
    return nodes


def with_nodes(options: SinkOptions) -> SinkOptions:
    """`options` with the nodes that run now, for all tasks of a batch; as they are without any."""
    try:
        return replace(options, nodes=sink_nodes(options).find())
    except (AdminRefusedError, NodeUnreachableError):
        # The tasks find out whether it stays so, and wait.
        return options
