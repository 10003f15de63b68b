"""The calls of one session about the process of a node, here or elsewhere.

They tell its state, its configuration and its log.
"""

from __future__ import annotations

from collections.abc import Callable

from warrenmq.admin.control.control_host import ControlHost
from warrenmq.admin.control.peers import Peers
from warrenmq.admin.definitions.administration import Refusal
from warrenmq.admin.protocol.configuration import DescribeConfiguration
from warrenmq.admin.protocol.control import ControlReply, DescribeControl
from warrenmq.admin.protocol.log import ReadLog
from warrenmq.admin.protocol.requests import ErrorReply
from warrenmq.vocabulary.error_codes import UNREACHABLE

ProcessRequest = DescribeControl | DescribeConfiguration | ReadLog


class ProcessCalls:
    """Answers about the process of the node `own_name`, or of one of the `peers`, through `reply`.

    `peers`: the other nodes that may be asked, None for none. `guard` runs a step, and answers the
    request if that fails.
    """

    def __init__(
        self,
        own_name: str,
        process: ControlHost,
        peers: Peers | None,
        guard: Callable[[Callable[[], None]], None],
        reply: Callable[[ControlReply | ErrorReply], None],
    ) -> None:
        self._own_name = own_name
        self._process = process
        self._peers = peers
        self._guard = guard
        self._reply = reply

    def start(self, request: ProcessRequest) -> None:
        """Carry out `request`. Raises Refusal."""
        if request.node not in ("", self._own_name):
            self._ask(request)
        elif isinstance(request, ReadLog):
            self._reply(self._process.read_log(request))
        elif isinstance(request, DescribeConfiguration):
            self._process.configuration().add_done_callback(
                lambda told: self._guard(lambda: self._reply(told.result()))
            )
        else:
            self._reply(self._process.describe())

    def _ask(self, request: ProcessRequest) -> None:
        if self._peers is None or request.node not in self._peers.cluster.reachable():
            raise Refusal(UNREACHABLE, f"there is no link to a node {request.node}")
        self._peers.ask(request.node, request, self._reply)
