"""The calls of one session that close connections, to this node or to others of the cluster."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from warrenmq.admin.control.peers import Answer, Peers
from warrenmq.admin.control.permits import Permits
from warrenmq.admin.definitions.administration import Refusal
from warrenmq.admin.listings.pids import connection_pid
from warrenmq.admin.protocol.control import ADMINISTRATOR, CloseConnections, ControlReply, Counted
from warrenmq.admin.protocol.pids import node_of_pid
from warrenmq.admin.protocol.requests import ErrorReply
from warrenmq.broker.broker import Broker
from warrenmq.broker.connection.connection import Connection
from warrenmq.broker.connection.states import CLOSING
from warrenmq.vocabulary.error_codes import ACCESS_REFUSED, NOT_FOUND, UNREACHABLE
from warrenmq.vocabulary.names import name_text
from warrenmq.wire.errors import CONNECTION_FORCED, ConnectionException


class ConnectionCalls:
    """Closes connections; each request is answered once, through `reply`.

    `peers`: the other nodes that may be asked, None for none.
    """

    def __init__(
        self,
        broker: Broker,
        permits: Permits,
        peers: Peers | None,
        reply: Callable[[ControlReply | ErrorReply], None],
    ) -> None:
        self._broker = broker
        self._permits = permits
        self._peers = peers
        self._reply = reply

    def start(self, request: CloseConnections) -> None:
        """Carry out `request`. Raises Refusal."""
        if not self._permits.user.has_tag(ADMINISTRATOR):
            request = self._of_own(request)
        if request.pid is not None and self._peers is not None:
            node = node_of_pid(request.pid)
            cluster = self._peers.cluster
            if node in cluster.reachable():
                self._peers.ask(node, request, self._reply)
                return
            if node in cluster.running() and node != self._broker.settings.node_name:
                raise Refusal(UNREACHABLE, f"there is no link to node {node}")
        count = self._close_own(request)
        if request.is_everywhere and self._peers is not None and request.pid is None:
            self._close_elsewhere(request, count, self._peers.cluster.reachable())
        else:
            self._reply(Counted(count))

    def _of_own(self, request: CloseConnections) -> CloseConnections:
        """The request, for connections of the session's user only. Raises Refusal."""
        own = name_text(self._permits.user.name)
        if request.user not in (None, own):
            raise Refusal(ACCESS_REFUSED, "connections of others are for administrators")
        return msgspec.structs.replace(request, user=own)

    def _close_own(self, request: CloseConnections) -> int:
        found = [
            each
            for each in self._broker.connections
            if each.state < CLOSING and self._is_chosen(each, request)
        ]
        if request.limit:
            found = found[: request.limit]
        if request.pid is not None and not found:
            raise Refusal(NOT_FOUND, f"no connection {request.pid}")
        for connection in found:
            connection.fail(ConnectionException(CONNECTION_FORCED, request.reason))
            connection.touch()
        return len(found)

    def _close_elsewhere(self, request: CloseConnections, count: int, nodes: list[str]) -> None:
        """Let `nodes` close connections, one node after another, up to the limit."""
        if not nodes or (request.limit and count >= request.limit):
            self._reply(Counted(count))
            return
        assert self._peers is not None
        rest = request.limit - count if request.limit else 0

        def on_answer(answer: Answer) -> None:
            if isinstance(answer, Counted):
                self._close_elsewhere(request, count + answer.count, nodes[1:])
            else:
                self._reply(answer)

        self._peers.ask(
            nodes[0], msgspec.structs.replace(request, limit=rest, is_everywhere=False), on_answer
        )

    def _is_chosen(self, connection: Connection, request: CloseConnections) -> bool:
        vhost = connection.vhost
        name = b"" if vhost is None else vhost.name
        return (
            (request.pid is None or connection_pid(self._broker, connection) == request.pid)
            and (request.vhost is None or name == request.vhost.encode())
            and (request.user is None or connection.client.user_name == request.user.encode())
        )
