"""The call of one session for the samples of a node, of this one or of another one."""

from __future__ import annotations

from collections.abc import Callable

from warrenmq.admin.clock import Clock
from warrenmq.admin.control.control_host import ControlHost
from warrenmq.admin.control.peers import Peers, ask_other
from warrenmq.admin.protocol.control import ControlReply
from warrenmq.admin.protocol.requests import ErrorReply
from warrenmq.admin.protocol.samples import ReadSamples
from warrenmq.admin.sampling.ring import SampleRing


class SampleCalls:
    """Answers for `ring`, the samples of the node `own_name`, or lets one of `peers` answer."""

    def __init__(
        self,
        own_name: str,
        ring: SampleRing,
        process: ControlHost,
        peers: Peers | None,
        clock: Clock,
        reply: Callable[[ControlReply | ErrorReply], None],
    ) -> None:
        self._own_name = own_name
        self._ring = ring
        self._process = process
        self._peers = peers
        self._clock = clock
        self._reply = reply

    def read(self, request: ReadSamples) -> None:
        """Answer `request`. Raises Refusal."""
        if request.node not in ("", self._own_name):
            ask_other(self._peers, request.node, request, self._reply)
            return
        nodes = [] if self._peers is None else self._peers.cluster.running()
        self._ring.read(request, nodes, self._process, self._clock, self._reply)
