"""The queues of this node by the numbers under which the clients of another node use them."""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.broker.connection.connection import ConnectionHost
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.cluster.remote.link_events import LinkUnacked
from warrenmq.queues.confirm_source import ConfirmSource
from warrenmq.queues.queue import Queue


class UsedQueue:
    """The queue `name` of `vhost_name` with its `birth`, whether it is there or not."""

    def __init__(self, number: i64, birth: i64, vhost_name: bytes, name: bytes) -> None:
        self.number: i64 = number
        self.vhost_name: bytes = vhost_name
        self.name: bytes = name
        self.birth: i64 = birth
        # None until the vhost was found.
        self.vhost: Vhost | None = None
        # The queue as it was found last.
        self.queue: Queue | None = None
        # Whether a publish since the last AWAIT was refused, or found no queue.
        self.has_refused: bool = False
        # Whether the last publish was refused.
        self.has_refused_last: bool = False
        self.has_failed: bool = False
        # Confirms the last publish since the last AWAIT; None if the queue has no copies.
        self.source: ConfirmSource | None = None
        # Something since the last AWAIT waits for the journal.
        self.is_for_disk: bool = False
        # Bytes of publishes for which the other node does not know yet that there is room again.
        self.applied_bytes: i64 = 0


class UsedQueues:
    """The queues that one link uses; `host` has the vhosts, `unacked` what the link holds."""

    def __init__(self, host: ConnectionHost, unacked: LinkUnacked) -> None:
        self.by_number: dict[int, UsedQueue] = {}
        self._host: ConnectionHost = host
        self._unacked: LinkUnacked = unacked
        # The vhosts that find messages in `unacked`.
        self._vhosts: dict[Vhost, None] = {}

    def find(self, used: UsedQueue) -> Queue | None:
        """The queue; None if it is not there, yet or any more."""
        queue = used.queue
        if queue is not None and not queue.is_deleted and not queue.is_hidden:
            return queue
        used.queue = None
        vhost = self._host.vhosts.get(used.vhost_name)
        if vhost is None:
            return None
        if vhost not in self._vhosts:
            self._vhosts[vhost] = None
            vhost.host.unacked_finders.append(self._unacked.find)
            vhost.host.loss_watchers.append(self._unacked.forget_lost)
        used.vhost = vhost
        queue = vhost.queues.get(used.name)
        if queue is not None and queue.definition.birth == used.birth:
            used.queue = queue
        return used.queue

    def has_moved(self, used: UsedQueue) -> bool:
        """Whether a queue that is not here lives on another node, as far as this one knows."""
        vhost = used.vhost
        known = None if vhost is None else vhost.remote_queues.get(used.name)
        return known is not None and known.definition.birth == used.birth

    def delete(self, queue: Queue, now_ms: i64) -> None:
        """Delete a queue that has lost its last consumer."""
        for vhost in self._vhosts:
            if vhost.queues.get(queue.name) is queue:
                vhost.delete_queue(queue, now_ms)

    def end(self) -> None:
        """Let no vhost look for messages of the link any more."""
        for vhost in self._vhosts:
            vhost.host.unacked_finders.remove(self._unacked.find)
            vhost.host.loss_watchers.remove(self._unacked.forget_lost)
