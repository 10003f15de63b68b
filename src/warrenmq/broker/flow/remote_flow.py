"""Flow control from queues on other nodes back to the sockets that publish to them.

A queue has too many bytes on their way when its node is slow, far, or short of memory or disk: that
node makes room for more only when it has room itself. So has a mirrored queue of this node whose
mirrors are behind. A connection that publishes to such a queue is not read until half of the bytes
are applied. Publishers to other queues of the same node, over the same link, go on.
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.broker.flow.throttle import ThrottleHost
from warrenmq.queues.message_taker import MessageTaker


class RemoteFlow:
    """The connections that wait for queues of other nodes."""

    def __init__(self) -> None:
        self._stopped: dict[MessageTaker, list[ThrottleHost]] = {}

    def on_publish(self, connection: ThrottleHost, queues: list[MessageTaker]) -> None:
        """Stop `connection`, which has published to `queues`, if one has too much on its way."""
        for queue in queues:
            if not queue.has_room() and not connection.throttle.is_flow_stopped:
                self._stopped.setdefault(queue, []).append(connection)
                connection.throttle.stop_flow(connection)

    def release_stopped(self, now_ms: i64) -> None:
        """Resume connections whose queue has room again, or is down; called once a turn."""
        if len(self._stopped) == 0:
            return
        for queue in list(self._stopped):
            if queue.is_drained():
                for connection in self._stopped.pop(queue):
                    connection.throttle.start_flow(connection, now_ms)
