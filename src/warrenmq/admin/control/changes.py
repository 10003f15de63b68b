"""The call of one session for figures that have changed, on this node or another one."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from warrenmq.admin.changes.node_walk import NodeWalk
from warrenmq.admin.changes.passed_sessions import PassedSessions
from warrenmq.admin.changes.tick import Ticks
from warrenmq.admin.changes.walk import Walk
from warrenmq.admin.changes.walks import ChannelWalk, ConnectionWalk, ExchangeWalk, QueueWalk
from warrenmq.admin.clock import Clock
from warrenmq.admin.control.control_host import ControlHost
from warrenmq.admin.control.peers import Peers
from warrenmq.admin.definitions.administration import Refusal
from warrenmq.admin.protocol import changes
from warrenmq.admin.protocol.control import ControlReply
from warrenmq.admin.protocol.requests import ErrorReply
from warrenmq.broker.broker import Broker
from warrenmq.vocabulary.error_codes import BAD_REQUEST, UNREACHABLE
from warrenmq.vocabulary.names import name_text


class ChangeCalls:
    """Answers the requests for changes of a session, each once, through `reply`.

    `peers`: the other nodes that may be asked, None for none. `passed`: the ticks of the sessions
    whose requests another node passes on, None for a session with this node.
    """

    def __init__(
        self,
        broker: Broker,
        node: ControlHost,
        peers: Peers | None,
        passed: PassedSessions | None,
        clock: Clock,
        reply: Callable[[ControlReply | ErrorReply], None],
    ) -> None:
        self._broker = broker
        self._node = node
        self._peers = peers
        self._passed = passed
        self._clock = clock
        self._reply = reply
        self._begins: dict[str, Callable[[], Walk]] = {
            changes.NODE: lambda: NodeWalk(broker, node.open_files(), node.open_sockets()),
            changes.QUEUE: lambda: QueueWalk(broker),
            changes.EXCHANGE: lambda: ExchangeWalk(broker),
            changes.CHANNEL: lambda: ChannelWalk(broker),
            changes.CONNECTION: lambda: ConnectionWalk(broker),
        }
        # The ticks of each kind that the session has asked for.
        self._ticks: dict[str, Ticks] = {}
        # The session's name on other nodes; "" until it asks for their objects.
        self._name = ""

    def read(self, request: changes.ReadChanges) -> None:
        """Answer `request`. Raises Refusal."""
        if request.node not in ("", self._broker.settings.node_name):
            self._pass_on(request)
            return
        begin = self._begins.get(request.kind)
        if begin is None:
            raise Refusal(BAD_REQUEST, f"there are no objects of the kind '{request.kind}'")
        now_ms = self._clock.now_ms()
        by_kind = self._ticks
        if self._passed is not None:
            by_kind = self._passed.ticks(request.session, now_ms)
        ticks = by_kind.get(request.kind)
        if ticks is None:
            ticks = by_kind[request.kind] = Ticks(request.kind, begin)
        answer = ticks.answer(self._node.started_ms, now_ms)
        if request.kind == changes.NODE and self._peers is not None:
            answer = msgspec.structs.replace(answer, nodes=self._peers.cluster.running())
        self._reply(answer)

    def _pass_on(self, request: changes.ReadChanges) -> None:
        peers = self._peers
        if peers is None or request.node not in peers.cluster.reachable():
            raise Refusal(UNREACHABLE, f"there is no link to a node {request.node}")
        if not self._name:
            self._name = name_text(self._broker.random_name())
        passed = msgspec.structs.replace(request, node="", session=self._name)
        peers.ask(request.node, passed, self._reply)
