"""The nodes of a cluster, as a process of Spark knows them, and its connections to them.

A queue of a cluster lives on one node, its home, and its messages come from there. The options name
any one node. It tells the others, and any of them tells where a node is that has come back with
another address. A broker that runs alone names no nodes, and has none of this.

The home of a mirrored queue is its master, and changes. A `QueueLink` follows it; other connections
raise `QueuesMovedError` instead of waiting for a node whose queues are served elsewhere by now.
"""

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from warrenmq.admin.client.client import (
    AdminClient,
    AdminRefusedError,
    NodeAddress,
    NodeUnreachableError,
    ReplyType,
)
from warrenmq.admin.client.node_addresses import listener_for, uri_at
from warrenmq.admin.protocol.homes import LocateQueues, NodePlace, QueuesLocated
from warrenmq.admin.protocol.requests import Request
from warrenmq.spark.broker_link import BrokerLink
from warrenmq.spark.retry import Retry
from warrenmq.vocabulary.error_codes import BAD_REQUEST, MOVED
from warrenmq.vocabulary.names import name_text

_OPTION: Final = "retryTimeoutMs"


class QueuesMovedError(Exception):
    """Another node is the home of a queue by now."""


@dataclass(frozen=True)
class Place:
    """A node of the cluster, and where clients reach it."""

    node: str
    host: str
    port: int


class Homes:
    """The nodes of the cluster that the node at `uri` belongs to, by the ids of their data.

    `retry_timeout_ms` limits each wait for a node that is away.
    """

    def __init__(self, uri: str, purpose: str, retry_timeout_ms: int) -> None:
        self.places: dict[str, Place] = {}
        self._uri = uri
        self._purpose = purpose
        self._retry_timeout_ms = retry_timeout_ms
        # Names of all nodes seen, also of those that are down.
        self._names: dict[str, str] = {}
        self._links: dict[str, BrokerLink] = {}
        # The queues that the request under way to each home is about.
        self._wanted: dict[str, set[bytes]] = {}

    def take(self, nodes: list[NodePlace]) -> None:
        """Note the running nodes, as a node has told them."""
        places: dict[str, Place] = {}
        for each in nodes:
            listener = listener_for(self._uri, each)
            if listener is not None:
                places[each.id] = Place(each.node, *listener)
        self._names.update({home: place.node for home, place in places.items()})
        self.places = places

    def hint(self, home: str, place: Place) -> None:
        """Note where a node was when the driver saw it, unless it is known."""
        if home not in self.places:
            self._names[home] = place.node
            self.places = {**self.places, home: place}

    def locate(self, request: LocateQueues, entry: BrokerLink) -> QueuesLocated:
        """Where the queues are, when the homes of all of them are up.

        `entry` is the connection to the node of the options. Raises AdminRefusedError, and
        SourceError when a home stays down, or all nodes.
        """
        with Retry(NodeAddress(self._uri).where, self._retry_timeout_ms / 1000, _OPTION) as retry:
            while True:
                try:
                    located = self.ask(request) if self.places else self._ask_first(request, entry)
                except NodeUnreachableError as error:
                    retry.failed(error)
                    continue
                running = {place.node for place in located.nodes}
                down = [each for each in located.homes if each.node not in running]
                if not located.nodes or not down:
                    return located
                retry.wait_because(
                    f"queue '{name_text(down[0].queue)}' is down, because its node {down[0].node} is"
                )

    def _ask_first(self, request: LocateQueues, entry: BrokerLink) -> QueuesLocated:
        try:
            located = entry.request(request, QueuesLocated)
        except AdminRefusedError as error:
            if error.code != BAD_REQUEST:
                raise
            # A node of an earlier version, which runs alone, does not know the question.
            return QueuesLocated("", [], [])
        self.take(located.nodes)
        return located

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

    def ask_once(self, home: str, request: Request, expected: type[ReplyType]) -> ReplyType:
        """The answer of the node `home`. Raises AdminRefusedError and NodeUnreachableError."""
        address = self.address(home)
        if address is None:
            raise NodeUnreachableError(f"node {self.name(home)} is down")
        with AdminClient(address, self._purpose) as client:
            return client.request(request, expected)

    def link(self, home: str, queues: Collection[bytes] = ()) -> BrokerLink:
        """The process's connection to the node `home`, for a request about `queues`.

        See `new_link`.
        """
        wanted = self._wanted.setdefault(home, set())
        wanted.clear()
        wanted.update(queues)
        link = self._links.get(home)
        if link is None:
            link = self.new_link(home, self._retry_timeout_ms, lambda: wanted)
            self._links[home] = link
        return link

    def new_link(
        self, home: str, retry_timeout_ms: int, queues: Callable[[], Collection[bytes]]
    ) -> BrokerLink:
        """Another connection to the node `home`, for requests about `queues`.

        It raises QueuesMovedError when the node is away and one of them is served elsewhere.
        """
        return _HomeLink(self, self._uri, home, self._purpose, retry_timeout_ms, queues)

    def queue_link(self, queue: bytes, home: str) -> "QueueLink":
        """A connection to the home of `queue`, which was `home` when the driver saw it."""
        where = f"{NodeAddress(self._uri).where} (queue '{name_text(queue)}')"
        return QueueLink(self, queue, home, Retry(where, self._retry_timeout_ms / 1000, _OPTION))

    def home_of(self, queue: bytes) -> str:
        """The running node that serves `queue` now; "" if none does, or none answers."""
        try:
            found = homes_in(self.ask(LocateQueues([queue])))
        except NodeUnreachableError:
            return ""
        return found.get(queue, "")

    def address(self, home: str) -> NodeAddress | None:
        """Where `home` is; None for a node that is not known to run."""
        place = self.places.get(home)
        return None if place is None else NodeAddress(uri_at(self._uri, place.host, place.port))

    def name(self, home: str) -> str:
        """The name of the node `home`; its id if no node has told its name."""
        return self._names.get(home, home)


class _HomeLink(BrokerLink):
    """A connection to a node of a cluster; looks for the node where the others say it is."""

    def __init__(
        self,
        homes: Homes,
        uri: str,
        home: str,
        purpose: str,
        retry_timeout_ms: int,
        queues: Callable[[], Collection[bytes]],
    ) -> None:
        self._homes = homes
        self._home = home
        self._queues = queues
        address = homes.address(home) or NodeAddress(uri)
        where = f"{address.where} (node {homes.name(home)})"
        super().__init__(address, purpose, retry_timeout_ms, _OPTION, where)

    def _connect(self) -> AdminClient:
        homes, home = self._homes, self._home
        known = homes.address(home)
        try:
            if known is not None:
                return AdminClient(known, self._purpose)
        except NodeUnreachableError as error:
            failure = NodeUnreachableError(f"node {homes.name(home)}: {error}")
        wanted = self._queues()
        located = homes.ask(LocateQueues(list(wanted)))
        found = homes_in(located)
        for queue in wanted:
            if found.get(queue, home) != home:
                raise QueuesMovedError(
                    f"queue '{name_text(queue)}' has moved from node {homes.name(home)}"
                )
        address = homes.address(home)
        if address is None:
            raise NodeUnreachableError(f"node {homes.name(home)} is down")
        if known is not None and known.where == address.where:
            raise failure
        return AdminClient(address, self._purpose)


class QueueLink:
    """A connection to the home of one queue, which it follows to another node."""

    def __init__(self, homes: Homes, queue: bytes, home: str, retry: Retry) -> None:
        self.home = home
        self._homes = homes
        self._queue = queue
        self._retry = retry

    def request(
        self, request: Request, expected: type[ReplyType], wait_s: float = 0.0
    ) -> ReplyType:
        """The reply of the home; see `BrokerLink.request`."""
        homes = self._homes
        with self._retry as retry:
            while True:
                try:
                    return homes.link(self.home, [self._queue]).request(request, expected, wait_s)
                except QueuesMovedError as error:
                    reason = str(error)
                except AdminRefusedError as error:
                    if error.code != MOVED:
                        raise
                    reason = error.text
                retry.wait_because(reason)
                self.home = homes.home_of(self._queue) or self.home


def homes_in(located: QueuesLocated) -> dict[bytes, str]:
    """The ids of the running nodes that have the queues of `located`, by queue."""
    ids = {place.node: place.id for place in located.nodes}
    return {each.queue: ids[each.node] for each in located.homes if each.node in ids}


# The known homes by process, URI, purpose and timeout (ms); see `broker_link.link_to`.
_known: dict[tuple[int, str, str, int], Homes] = {}


def homes_of(uri: str, purpose: str, retry_timeout_ms: int) -> Homes:
    """The homes that this process knows around the node at `uri`."""
    key = (os.getpid(), uri, purpose, retry_timeout_ms)
    homes = _known.get(key)
    if homes is None:
        homes = _known[key] = Homes(uri, purpose, retry_timeout_ms)
    return homes
