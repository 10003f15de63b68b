"""The frames on the links of a node: which decisions were followed, and remote queues.

FOLLOWED     the revision (8 bytes) of the last decision that the sender has followed
OPERATIONS   clients of the sender use queues of the receiver (`queues/remote/link_records.py`)
EVENTS       what became of these operations
MIRRORS      records of the replicas of mirrored queues (`mirrors/records.py`)
NODE_CALL, NODE_ANSWER      calls between nodes (`links/node_calls.py`)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from warrenmq.cluster.facts import LinkFacts
from warrenmq.cluster.links.frames import CONTROL, DATA
from warrenmq.cluster.links.link import Link, LinkHandler
from warrenmq.cluster.links.node_calls import NODE_ANSWER, NODE_CALL, NodeCalls
from warrenmq.cluster.mirroring import Mirroring
from warrenmq.cluster.mirrors.peers import MIRRORS
from warrenmq.cluster.queue_ends import QueueEnds
from warrenmq.queues.remote.link_records import MalformedRecordError
from warrenmq.queues.remote.queue_link import EVENTS, OPERATIONS, QueueLink

FOLLOWED: Final = 16
_REVISION_BYTES: Final = 8


class FollowedPeers:
    """The decisions that the nodes at the other ends of links have followed."""

    def __init__(self) -> None:
        self._followed: dict[str, int] = {}
        self._watchers: list[tuple[int, Callable[[], None]]] = []

    def when_followed(self, revision: int, callback: Callable[[], None]) -> None:
        """Call `callback` when every reachable node has followed `revision`, now or later."""
        self._watchers.append((revision, callback))
        self._notify()

    def followed_by(self, name: str) -> int:
        """The last decision that the node `name` has followed, 0 if there is no link to it."""
        return self._followed.get(name, 0)

    def put(self, name: str, revision: int) -> None:
        """The node `name`, to which there is a link, has followed `revision`."""
        self._followed[name] = revision
        self._notify()

    def drop(self, name: str) -> None:
        """There is no link to the node `name` any more."""
        self._followed.pop(name, None)
        self._notify()

    def _notify(self) -> None:
        lowest = min(self._followed.values(), default=None)
        due = [each for each in self._watchers if lowest is None or each[0] <= lowest]
        if due:
            self._watchers = [each for each in self._watchers if each not in due]
            for _revision, callback in due:
                callback()


class LinkedQueues(QueueLink):
    """A link, as remote queues use it."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def send(self, kind: int, payload: bytes) -> None:
        self._link.send(DATA, kind, payload)

    def has_room(self) -> bool:
        return self._link.is_writable


class NodeLinks(LinkHandler):
    """Hands the frames of all links to `ends`, `peers`, `calls` and `mirrors`, if there are any.

    `followed` is this node's own revision, `now_ms` tells the time.
    """

    def __init__(
        self,
        ends: QueueEnds,
        peers: FollowedPeers,
        calls: NodeCalls,
        mirrors: Mirroring | None,
        followed: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        self._mirrors = mirrors
        self._ends = ends
        self._peers = peers
        self._calls = calls
        self._followed = followed
        self._now_ms = now_ms
        self._links: dict[str, Link] = {}
        # When each link came up.
        self._up_since_ms: dict[str, int] = {}
        # The revision that the other nodes were last told.
        self._told = 0

    def on_up(self, link: Link) -> None:
        name = link.peer_name
        self._links[name] = link
        self._up_since_ms[name] = self._now_ms()
        # The other node counts as behind until it reports how far it has followed.
        self._peers.put(name, 0)
        self._tell(link, self._followed())
        self._ends.link_up(name, LinkedQueues(link))
        if self._mirrors is not None:
            self._mirrors.link_up(link)
        self._calls.link_up(link)

    def on_frame(self, link: Link, kind: int, payload: bytes) -> None:
        name = link.peer_name
        if self._links.get(name) is not link:
            return
        try:
            if kind == OPERATIONS:
                self._ends.take_operations(name, payload)
            elif kind == EVENTS:
                self._ends.take_events(name, payload)
            elif kind == FOLLOWED and len(payload) == _REVISION_BYTES:
                self._peers.put(name, int.from_bytes(payload, "big"))
            elif kind == MIRRORS and self._mirrors is not None:
                fault = self._mirrors.take_record(name, payload)
                if fault:
                    link.close(fault)
            elif kind == NODE_CALL:
                self._calls.take_call(name, payload)
            elif kind == NODE_ANSWER:
                self._calls.take_answer(name, payload, self._now_ms())
            else:
                link.close(f"a frame of kind {kind} with {len(payload)} bytes is not known")
        except MalformedRecordError as error:
            link.close(str(error))
        except msgspec.DecodeError as error:
            link.close(f"a call between nodes is malformed: {error}")

    def on_down(self, link: Link, reason: str) -> None:
        name = link.peer_name
        if self._links.get(name) is not link:
            return
        del self._links[name]
        self._ends.link_down(name)
        self._peers.drop(name)
        if self._mirrors is not None:
            self._mirrors.link_down(name)
        self._calls.link_down(name)

    def facts(self) -> tuple[LinkFacts, ...]:
        """The links that are up, by the name of the other node."""
        now_ms = self._now_ms()
        return tuple(
            LinkFacts(
                name,
                now_ms - self._up_since_ms[name],
                link.unsent_bytes,
                self._peers.followed_by(name),
            )
            for name, link in sorted(self._links.items())
        )

    def end_turn(self) -> None:
        """Tell the other nodes what this one has followed since the last call."""
        followed = self._followed()
        if followed > self._told:
            self._told = followed
            for link in self._links.values():
                self._tell(link, followed)

    def _tell(self, link: Link, revision: int) -> None:
        link.send(CONTROL, FOLLOWED, revision.to_bytes(_REVISION_BYTES, "big"))
