"""The calls of one session about the copies of mirrored queues, here or on another node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from warrenmq.admin.control.peers import Peers
from warrenmq.admin.control.permits import Permits
from warrenmq.admin.control.queues import CHANGE_MS
from warrenmq.admin.control.stop_losses import lost_if_stops
from warrenmq.admin.definitions.administration import Refusal
from warrenmq.admin.listings.mirrors import SYNCING, state_of, sync_messages, synchronised_nodes
from warrenmq.admin.listings.pids import queue_pid
from warrenmq.admin.listings.queues import ListedQueue
from warrenmq.admin.protocol.control import ControlReply, Counted, Done
from warrenmq.admin.protocol.mirrors import (
    CancelSync,
    DescribeMirrors,
    MasterCounts,
    MasterMove,
    MasterMoves,
    MirrorCopy,
    MirrorRequest,
    MirrorStatus,
    PlanRebalance,
    RebalanceQueues,
    SyncQueue,
)
from warrenmq.admin.protocol.requests import ErrorReply
from warrenmq.broker.broker import Broker
from warrenmq.broker.mirrors import UNKNOWN, CopyFacts, MirrorControl, MirrorFacts, SyncProgress
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.queue import Queue
from warrenmq.vocabulary.error_codes import (
    INVALID,
    NOT_FOUND,
    NOT_MIRRORED,
    PRECONDITION,
    UNREACHABLE,
)
from warrenmq.vocabulary.names import name_text
from warrenmq.vocabulary.patterns.errors import PatternError
from warrenmq.vocabulary.patterns.pattern import compiled


class MirrorCalls:
    """Describes, synchronises and moves the copies of queues; answers each request once.

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

    def start(self, request: MirrorRequest) -> None:
        """Carry out `request`. Raises Refusal."""
        mirrors = self._broker.mirrors
        if isinstance(request, RebalanceQueues | PlanRebalance):
            self._rebalance(request, mirrors)
            return
        vhost = self._permits.expect_vhost(request.vhost)
        queue = self._queue(vhost, request.queue)
        facts = None if mirrors is None else mirrors.facts_of(vhost.name, queue.name)
        if mirrors is None or facts is None:
            if isinstance(request, CancelSync):
                # As in RabbitMQ: nothing is being synchronised.
                self._reply(Counted(0))
                return
            raise Refusal(NOT_MIRRORED, f"{vhost.queue_text(queue.name)} has no mirrors")
        if not isinstance(queue, Queue):
            self._pass_on(vhost, request, facts)
        elif isinstance(request, DescribeMirrors):
            listed = ListedQueue(self._broker, vhost, queue, facts)
            self._reply(_described(listed, facts))
        elif isinstance(request, SyncQueue):
            failure = mirrors.synchronise(vhost.name, queue.name)
            self._reply(ErrorReply(PRECONDITION, failure) if failure else Done())
        else:
            self._reply(Counted(int(mirrors.cancel_sync(vhost.name, queue.name))))

    def _queue(self, vhost: Vhost, name: bytes) -> MessageTaker:
        """The queue, of this node or of another one."""
        queue = vhost.queues.get(name) or vhost.remote_queues.get(name)
        if queue is None:
            raise Refusal(NOT_FOUND, f"no {vhost.queue_text(name)}")
        return queue

    def _pass_on(
        self, vhost: Vhost, request: DescribeMirrors | SyncQueue | CancelSync, facts: MirrorFacts
    ) -> None:
        """Let the master's node answer; without it, describe what every node knows."""
        home = vhost.remote_queues[request.queue].home
        if home.session is not None and self._peers is not None:
            self._peers.ask(name_text(home.name), request, self._reply, CHANGE_MS)
        elif isinstance(request, DescribeMirrors):
            self._reply(_known(vhost, request.queue, facts))
        else:
            text = f"the master of {vhost.queue_text(request.queue)} is down: {facts.reason}"
            raise Refusal(UNREACHABLE, text)

    # -- masters of many queues --------------------------------------------------------------------

    def _rebalance(
        self, request: RebalanceQueues | PlanRebalance, mirrors: MirrorControl | None
    ) -> None:
        if mirrors is None:
            raise Refusal(PRECONDITION, "rebalance is not available: queues have no mirrors")
        try:
            in_vhost, in_queue = compiled(request.vhost_pattern), compiled(request.queue_pattern)
        except PatternError as error:
            raise Refusal(INVALID, f"invalid regular expression: {error}") from None

        def is_meant(vhost: bytes, name: bytes) -> bool:
            if not in_vhost.is_found_in(vhost) or not in_queue.is_found_in(name):
                return False
            if request.kind == "all":
                return True
            queue = self._queue(self._broker.vhosts[vhost], name)
            return queue.settings.traits.is_quorum == (request.kind == "quorum")

        def on_done(failure: str) -> None:
            if failure:
                self._reply(ErrorReply(UNREACHABLE, failure))
            else:
                self._reply(_master_counts(self._broker, mirrors))

        if isinstance(request, PlanRebalance):
            plan = mirrors.plan_rebalance(is_meant)
            self._reply(MasterMoves(plan.masters, [MasterMove(*move) for move in plan.moves]))
        else:
            mirrors.rebalance(is_meant, on_done)


def _master_counts(broker: Broker, mirrors: MirrorControl) -> MasterCounts:
    """The masters of all mirrored queues."""
    quorum: Counter[str] = Counter()
    classic: Counter[str] = Counter()
    for vhost in broker.vhosts.values():
        for queue in [*vhost.queues.values(), *vhost.remote_queues.values()]:
            facts = mirrors.facts_of(vhost.name, queue.name)
            if facts is not None:
                # A node that has masters of one kind is in both counts.
                is_quorum = queue.settings.traits.is_quorum
                quorum[facts.master] += is_quorum
                classic[facts.master] += not is_quorum
    return MasterCounts(dict(sorted(quorum.items())), dict(sorted(classic.items())))


# -- descriptions ----------------------------------------------------------------------------------


def _described(listed: ListedQueue, facts: MirrorFacts) -> MirrorStatus:
    """The copies of a queue whose master is here."""
    queue = listed.queue
    messages = queue.ready_count + queue.unacked_count
    transient = messages - listed.persistent_count()
    return _status(
        listed.vhost, queue.name, facts, queue_pid(listed.broker, queue), messages, transient
    )


def _known(vhost: Vhost, name: bytes, facts: MirrorFacts) -> MirrorStatus:
    """The copies of a queue whose master this node does not reach."""
    return _status(vhost, name, facts._replace(is_down=True), None, None, 0)


def _status(
    vhost: Vhost,
    name: bytes,
    facts: MirrorFacts,
    pid: str | None,
    messages: int | None,
    transient: int,
) -> MirrorStatus:
    state = state_of(facts)
    return MirrorStatus(
        vhost=name_text(vhost.name),
        name=name_text(name),
        node=facts.master,
        pid=pid,
        state=state if isinstance(state, str) else SYNCING,
        reason=facts.reason,
        messages=messages,
        sync_messages=sync_messages(facts),
        slave_nodes=[copy.node for copy in facts.mirrors],
        synchronised_slave_nodes=synchronised_nodes(facts),
        recoverable_slaves=list(facts.recoverable),
        mirrors=[_copy(copy) for copy in facts.mirrors],
        ring=list(facts.ring),
        epoch=facts.epoch,
        version=facts.version,
        min_sync=facts.min_sync,
        lost_if_stops=lost_if_stops(facts, messages or 0, transient),
    )


def _copy(copy: CopyFacts) -> MirrorCopy:
    progress = copy.sync
    sending = progress if progress is not None and progress.message_rate > 0 else None
    return MirrorCopy(
        node=copy.node,
        pid=copy.pid,
        is_synchronised=copy.is_synced,
        is_online=copy.is_online,
        lag_messages=_number(copy.lag_messages),
        lag_bytes=_number(copy.lag_bytes),
        sync_messages=None if progress is None else progress.messages,
        sync_total=None if progress is None else progress.total,
        sync_bytes=_number(copy.sync_bytes),
        lag_ms=_number(copy.lag_ms),
        sync_message_rate=None if sending is None else sending.message_rate,
        sync_byte_rate=None if sending is None else sending.byte_rate,
        sync_left_ms=None if sending is None else _left_ms(sending),
    )


def _left_ms(sending: SyncProgress) -> int:
    """How long a synchronisation takes yet at the speed of now."""
    return round((sending.total - sending.messages) * 1000 / sending.message_rate)


def _number(value: int) -> int | None:
    return None if value == UNKNOWN else value
