"""The calls of one session that purge and delete queues, here or on another node of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from warrenmq.admin.clock import Clock
from warrenmq.admin.control.peers import Peers
from warrenmq.admin.control.permits import Permits
from warrenmq.admin.definitions.administration import Refusal
from warrenmq.admin.protocol.control import ControlReply, Counted, DeleteQueue, PurgeQueue
from warrenmq.admin.protocol.requests import ErrorReply
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import Change
from warrenmq.broker.definitions.metadata import DeleteQueue as DeleteQueueChange
from warrenmq.broker.definitions.removal_changes import removal_changes
from warrenmq.broker.definitions.rights import QUEUE
from warrenmq.broker.vhost.queue_checks import purge_failure
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.queues.queue import Queue
from warrenmq.vocabulary import error_codes
from warrenmq.vocabulary.names import name_text

# How long another node may take to purge or to delete a queue (ms).
CHANGE_MS: Final = 50_000


class QueueCalls:
    """Purges and deletes queues; each request is answered once, through `reply`.

    `peers`: the other nodes that may be asked, None for none.
    """

    def __init__(
        self,
        broker: Broker,
        permits: Permits,
        peers: Peers | None,
        clock: Clock,
        reply: Callable[[ControlReply | ErrorReply], None],
    ) -> None:
        self._broker = broker
        self._permits = permits
        self._peers = peers
        self._clock = clock
        self._reply = reply

    def start(self, request: PurgeQueue | DeleteQueue) -> None:
        """Carry out `request`. Raises Refusal."""
        if isinstance(request, PurgeQueue):
            self._purge(request)
        else:
            self._delete_queue(request)

    def _purge(self, request: PurgeQueue) -> None:
        vhost = self._permits.expect_vhost(request.vhost)
        refusal = self._permits.user.rights(vhost.name).read_refusal(QUEUE, request.queue)
        if refusal:
            raise Refusal(error_codes.ACCESS_REFUSED, refusal)
        if self._is_passed_on(vhost, request):
            return
        queue = self._queue(vhost, request.queue)
        purge = queue.purge(self._clock.now_ms())

        def done(_now_ms: int) -> None:
            if purge.has_failed:
                self._reply(ErrorReply(error_codes.UNREACHABLE, purge_failure(vhost, queue)))
            else:
                self._reply(Counted(purge.count))

        if purge.is_done:
            done(0)
        else:
            purge.when_done = done

    def _delete_queue(self, request: DeleteQueue) -> None:
        vhost = self._permits.expect_configure(request.vhost, request.queue)
        if self._is_passed_on(vhost, request):
            return
        queue = self._queue(vhost, request.queue)
        text = vhost.queue_text(request.queue)
        if request.if_empty and queue.ready_count > 0:
            raise Refusal(error_codes.PRECONDITION, f"{text} not empty")
        if request.if_unused and len(queue.consumers) > 0:
            raise Refusal(error_codes.PRECONDITION, f"{text} in use")
        count = queue.ready_count
        decider = vhost.decider_of(queue)
        if decider is not None:
            decider.propose(
                vhost.deletion_of(queue),
                lambda failure, _now_ms: self._on_proposed(failure, request, queue, count),
            )
            return

        def done(ok: bool, _now_ms: int) -> None:
            if ok:
                self._reply(Counted(count))
            else:
                text = "the queue is deleted, but that is not stored yet; the broker tries again"
                self._reply(ErrorReply(error_codes.STORAGE_FAILED, text))

        changes = vhost.remove_queue(queue, self._clock.now_ms(), self._permits.user.shown_name)
        shared = self._broker.shared
        if shared is None:
            vhost.commit_with(changes, done, True)
        else:
            vhost.remove_shared(
                shared, changes, lambda failure, _now_ms: self._on_decided(failure, count)
            )

    def _on_proposed(self, failure: str, request: DeleteQueue, queue: Queue, count: int) -> None:
        """Answer, or look again: something else was decided first."""
        if failure or queue.is_deleted:
            self._on_decided(failure, count)
            return
        try:
            self._delete_queue(request)
        except Refusal as refusal:
            self._reply(ErrorReply(refusal.code, refusal.text))

    def _on_decided(self, failure: str, count: int) -> None:
        """Answer: the cluster has decided a deletion, or not in time."""
        self._reply(ErrorReply(error_codes.STORAGE_FAILED, failure) if failure else Counted(count))

    def _is_passed_on(self, vhost: Vhost, request: PurgeQueue | DeleteQueue) -> bool:
        """Pass on a request that concerns a queue of another node.

        Without that node, a queue can be deleted at least, unless only an empty one is meant.
        """
        queue = vhost.remote_queues.get(request.queue)
        if queue is None:
            return False
        if queue.home.session is not None:
            if self._peers is None:
                # Another node passed the request on; since then the queue was declared elsewhere.
                raise Refusal(error_codes.NOT_FOUND, f"no {vhost.queue_text(request.queue)}")
            self._peers.ask(name_text(queue.home.name), request, self._reply, CHANGE_MS)
            return True
        shared = self._broker.shared
        if isinstance(request, PurgeQueue) or request.if_empty or shared is None:
            kind = "durable " if queue.durable else ""
            text = (
                f"home node '{name_text(queue.home.name)}' of {kind}"
                f"{vhost.queue_text(queue.name)} is down or inaccessible"
            )
            raise Refusal(error_codes.UNREACHABLE, text)
        removed = vhost.remove_remote_queue(queue, self._clock.now_ms())
        changes: list[Change] = [DeleteQueueChange(vhost.name, 0, queue.name)]
        changes.extend(removal_changes(vhost.name, removed, with_transient=True))
        shared.remove(changes, lambda failure, _now_ms: self._on_decided(failure, 0))
        return True

    def _queue(self, vhost: Vhost, name: bytes) -> Queue:
        queue = vhost.queues.get(name)
        if queue is None:
            raise Refusal(error_codes.NOT_FOUND, f"no {vhost.queue_text(name)}")
        return queue
