"""The call of one session for figures that have changed."""

from __future__ import annotations

from collections.abc import Callable

from warrenmq.admin.changes.node_walk import NodeWalk
from warrenmq.admin.changes.tick import Ticks
from warrenmq.admin.changes.walk import Walk
from warrenmq.admin.changes.walks import ChannelWalk, ConnectionWalk, ExchangeWalk, QueueWalk
from warrenmq.admin.clock import Clock
from warrenmq.admin.control.control_host import ControlHost
from warrenmq.admin.definitions.administration import Refusal
from warrenmq.admin.protocol import changes
from warrenmq.broker.broker import Broker
from warrenmq.vocabulary.error_codes import BAD_REQUEST


class ChangeCalls:
    """Answers the requests for changes of a session, and keeps what it was told with them."""

    def __init__(
        self,
        broker: Broker,
        node: ControlHost,
        clock: Clock,
        reply: Callable[[changes.Changes], None],
    ) -> None:
        self._node = node
        self._clock = clock
        self._reply = reply
        self._begins: dict[str, Callable[[], Walk]] = {
            changes.NODE: lambda: NodeWalk(broker, node.open_files(), node.open_sockets()),
            changes.QUEUE: lambda: QueueWalk(broker),
            changes.EXCHANGE: lambda: ExchangeWalk(broker),
            changes.CHANNEL: lambda: ChannelWalk(broker),
            changes.CONNECTION: lambda: ConnectionWalk(broker),
        }
        # Of the kinds that the session has asked for.
        self._ticks: dict[str, Ticks] = {}

    def read(self, request: changes.ReadChanges) -> None:
        """Answer `request`. Raises Refusal."""
        begin = self._begins.get(request.kind)
        if begin is None:
            raise Refusal(BAD_REQUEST, f"there are no objects of the kind '{request.kind}'")
        ticks = self._ticks.get(request.kind)
        if ticks is None:
            ticks = self._ticks[request.kind] = Ticks(request.kind, begin)
        self._reply(ticks.answer(self._node.started_ms, self._clock.now_ms()))
