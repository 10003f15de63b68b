"""The homes of queues in a cluster, and a Spark process's connections to them.

A queue of a cluster lives on one node, its home, and its messages come from there (nodes.py knows
the nodes). A broker that runs alone names no nodes, and has none of this.

The home of a mirrored queue is its master, and changes. A `QueueLink` follows it; other connections
raise `QueuesMovedError` instead of waiting for a node whose queues are served elsewhere by now.
"""

import os
from collections.abc import Callable, Collection
from typing import Final

from warrenmq.admin.client.client import (
    AdminClient,
    AdminRefusedError,
    NodeAddress,
    NodeUnreachableError,
    ReplyType,
)
from warrenmq.admin.protocol.homes import LocateQueues, QueuesLocated
from warrenmq.admin.protocol.requests import Request
from warrenmq.spark.broker_link import BrokerLink
from warrenmq.spark.nodes import Nodes
from warrenmq.spark.retry import Retry
from warrenmq.vocabulary.error_codes import BAD_REQUEST, MOVED
from warrenmq.vocabulary.names import name_text

_OPTION: Final = "retryTimeoutMs"


class QueuesMovedError(Exception):
    """Another node is the home of a queue by now."""


class Homes(Nodes):
    """The nodes of the cluster that the node at `uri` belongs to, and connections to them.

    `retry_timeout_ms` limits each wait for a node that is away.
    """

    def __init__(self, uri: str, purpose: str, retry_timeout_ms: int) -> None:
        super().__init__(uri, purpose)
        self._retry_timeout_ms = retry_timeout_ms
        self._links: dict[str, BrokerLink] = {}
        # The queues that the request under way to each home is about.
        self._wanted: dict[str, set[bytes]] = {}

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
