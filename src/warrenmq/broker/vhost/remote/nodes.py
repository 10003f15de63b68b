"""The other nodes of a cluster, as this one knows them: their sessions, and what waits for them."""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from warrenmq.broker.flow.remote_flow import RemoteFlow
from warrenmq.queues.remote.node import RemoteNode
from warrenmq.queues.remote.queue_link import TurnEnd


class RemoteNodes:
    """The other nodes by name; each calls `wake` when it has something to send."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.by_name: dict[bytes, RemoteNode] = {}
        # The ends of links that gather what they send until the end of a turn.
        self.turn_ends: list[TurnEnd] = []
        # Publishers that wait for queues of other nodes.
        self.flow: RemoteFlow = RemoteFlow()
        # Each looks about every 50 ms whether a queue has a master again; True: it waits no more.
        self.master_waits: list[Callable[[int], bool]] = []
        self._wake: Callable[[], None] = wake

    def of(self, name: bytes) -> RemoteNode:
        """The other node `name`, down until a link to it is up."""
        node = self.by_name.get(name)
        if node is None:
            node = RemoteNode(name, self._wake)
            self.by_name[name] = node
            self.turn_ends.append(node)
        return node

    def end_turn(self, now_ms: i64) -> None:
        """Resume stopped publishers, and send what has gathered."""
        self.flow.release_stopped(now_ms)
        for end in self.turn_ends:
            end.end_turn(now_ms)

    def tick(self, now_ms: i64) -> None:
        """Let users of other nodes' queues do what is due with time, about every 50 ms."""
        for node in self.by_name.values():
            node.tick(now_ms)
        if len(self.master_waits) > 0:
            waits = self.master_waits
            self.master_waits = []
            for is_over in waits:
                if not is_over(now_ms):
                    self.master_waits.append(is_over)
