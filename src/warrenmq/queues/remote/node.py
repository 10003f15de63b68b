"""Another node of the cluster, and the session with it while a link is up."""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.remote.queue_link import QueueLink, TurnEnd
from warrenmq.queues.remote.session import RemoteSession


class RemoteNode(TurnEnd):
    """The node `name`; `wake` asks for the end of a turn of this node."""

    def __init__(self, name: bytes, wake: Callable[[], None]) -> None:
        self.name: bytes = name
        # None while there is no link: the node is down.
        self.session: RemoteSession | None = None
        # Callbacks of queues, called about every 50 ms while the node is up and they are listed.
        self.waiters: dict[MessageTaker, Callable[[], None]] = {}
        self._wake: Callable[[], None] = wake

    def link_up(self, link: QueueLink) -> None:
        """Use the queues of the node through `link` from now on."""
        self.session = RemoteSession(link, self._wake)

    def link_down(self, now_ms: i64) -> None:
        """End the session: the link is down."""
        session = self.session
        self.session = None
        if session is not None:
            session.end(now_ms)

    def take_frame(self, data: bytes, now_ms: i64) -> None:
        """Handle a frame of events; raises MalformedRecordError."""
        if self.session is not None:
            self.session.take_frame(data, now_ms)

    def end_turn(self, now_ms: i64) -> None:
        if self.session is not None:
            self.session.send()

    def tick(self, now_ms: i64) -> None:
        """Let consumers do what is due with time; called about every 50 ms."""
        if self.session is not None:
            for consumer in list(self.session.consumers.values()):
                consumer.look_after()
            for subscribe in list(self.waiters.values()):
                subscribe()
