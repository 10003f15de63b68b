"""The control calls of one session: who may ask for what, and what the node does.

Operations on definitions are planned in access_plans.py and carried out by the administration.
Files of their own have the calls about queues, mirrors, connections, listings, the cluster, events.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from warrenmq.admin.changes.passed_sessions import PassedSessions
from warrenmq.admin.clock import Clock
from warrenmq.admin.control.access_plans import AccessPlans
from warrenmq.admin.control.changes import ChangeCalls
from warrenmq.admin.control.cluster import ClusterCalls
from warrenmq.admin.control.connections import ConnectionCalls
from warrenmq.admin.control.control_host import ControlHost
from warrenmq.admin.control.event_queues import EventQueueCalls
from warrenmq.admin.control.listings import ListingCalls
from warrenmq.admin.control.mirrors import MirrorCalls
from warrenmq.admin.control.peers import Peers
from warrenmq.admin.control.permits import Permits
from warrenmq.admin.control.processes import ProcessCalls, ProcessRequest
from warrenmq.admin.control.queues import QueueCalls
from warrenmq.admin.control.samples import SampleCalls
from warrenmq.admin.control.schedules import ScheduleCalls
from warrenmq.admin.control.store_looks import StoreLooks
from warrenmq.admin.control.stores import StoreCalls
from warrenmq.admin.control.totals import TotalsCalls
from warrenmq.admin.control.watching import WatchCalls
from warrenmq.admin.counters import node_counters
from warrenmq.admin.definitions.administration import Administration, Refusal
from warrenmq.admin.definitions.export import export_pieces
from warrenmq.admin.definitions.importing import DefinitionsImport
from warrenmq.admin.dispatch import Dispatch
from warrenmq.admin.events.stream import EventStream
from warrenmq.admin.latencies import node_latencies
from warrenmq.admin.protocol import control
from warrenmq.admin.protocol.changes import ReadChanges
from warrenmq.admin.protocol.cluster import ClusterRequest
from warrenmq.admin.protocol.counters import DescribeCounters
from warrenmq.admin.protocol.latencies import DescribeLatencies
from warrenmq.admin.protocol.mirrors import MirrorRequest
from warrenmq.admin.protocol.requests import ErrorReply
from warrenmq.admin.protocol.samples import ReadSamples
from warrenmq.admin.protocol.schedules import IssueJobTicket, ListSchedules
from warrenmq.admin.protocol.stores import (
    CompactStores,
    DescribeCompactions,
    DescribeFiles,
    DescribeSegments,
)
from warrenmq.admin.protocol.totals import DescribeTotals
from warrenmq.admin.protocol.watching import KeepEvents, WatchRequest
from warrenmq.admin.sampling.ring import SampleRing
from warrenmq.admin.session_user import SessionUser
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import Change
from warrenmq.broker.definitions.tickets import TICKET_S
from warrenmq.vocabulary.error_codes import (
    ACCESS_REFUSED,
    INTERNAL,
    PRECONDITION,
)
from warrenmq.vocabulary.names import name_text

if TYPE_CHECKING:
    from warrenmq.cluster.membership.control import ClusterControl

_log = logging.getLogger("warren.admin")

# Operations on definitions that only a user who may enter the vhost may ask for.
_PARAMETER_REQUESTS = (
    control.SetVhostLimits,
    control.SetPolicy,
    control.ClearPolicy,
    control.SetParameter,
    control.ClearParameter,
)


class ControlCalls:
    """Carries out the control requests of `user`; each is answered once, through `reply`.

    `cluster`: None for a node that runs alone. Requests that another node has passed on
    (`is_passed`) concern this node alone.
    """

    def __init__(
        self,
        broker: Broker,
        administration: Administration,
        node: ControlHost,
        events: EventStream,
        passed_sessions: PassedSessions,
        ring: SampleRing,
        user: SessionUser,
        clock: Clock,
        reply: Callable[[control.ControlReply | ErrorReply], None],
        cluster: ClusterControl | None = None,
        is_passed: bool = False,
    ) -> None:
        self._broker = broker
        self._administration = administration
        self._node = node
        self._permits = Permits(broker, user)
        self._clock = clock
        self._reply = reply
        self._plans = AccessPlans(broker)
        self._import: DefinitionsImport | None = None
        self._watch = WatchCalls(broker, node, events, clock, reply)
        self._cluster = cluster
        peers = None if cluster is None or is_passed else Peers(cluster, user.name, self._guard)
        cluster_calls = ClusterCalls(node, cluster, peers, self._guard, reply)
        queue_calls = QueueCalls(broker, self._permits, peers, clock, reply)
        self._calls: Dispatch[None] = Dispatch()
        self._calls.add_all(WatchRequest, self._watch.start)
        self._calls.add_all(ClusterRequest, cluster_calls.start)
        self._calls.add_all(MirrorRequest, MirrorCalls(broker, self._permits, peers, reply).start)
        self._calls.add_all(control.PurgeQueue | control.DeleteQueue, queue_calls.start)
        self._calls.add(
            control.CloseConnections, ConnectionCalls(broker, self._permits, peers, reply).start
        )
        self._schedules = ScheduleCalls(broker, self._permits, peers, reply)
        self._calls.add(ListSchedules, self._schedules.list_all)
        self._calls.add(IssueJobTicket, self._schedules.issue_ticket)
        store_calls = StoreCalls(broker, node, self._permits, peers, reply)
        self._calls.add(CompactStores, store_calls.compact)
        looks = StoreLooks(node, self._permits, clock, reply)
        self._calls.add(DescribeFiles, looks.files)
        self._calls.add(DescribeCompactions, looks.compactions)
        self._calls.add(DescribeSegments, looks.segments)
        listings = ListingCalls(broker, self._permits, peers, self._later, reply)
        self._calls.add(control.List, listings.start)
        passed = passed_sessions if is_passed else None
        change_calls = ChangeCalls(broker, node, peers, passed, clock, reply)
        self._calls.add(ReadChanges, change_calls.read)
        own_name = broker.settings.node_name
        sample_calls = SampleCalls(own_name, ring, node, peers, clock, reply)
        self._calls.add(ReadSamples, sample_calls.read)
        event_queue_calls = EventQueueCalls(broker, self._permits, clock, reply)
        self._calls.add(KeepEvents, event_queue_calls.keep)
        self._calls.add(DescribeTotals, TotalsCalls(broker, peers, self._later, reply).start)
        process_calls = ProcessCalls(own_name, node, peers, self._guard, reply)
        self._calls.add_all(ProcessRequest, process_calls.start)
        self._add_calls()

    def start(self, request: control.ControlRequest) -> None:
        """Carry out `request`."""
        self._guard(lambda: self._start(request))

    def stop(self) -> None:
        """Cancel the import that is under way, and watch no events: the session has ended."""
        if self._import is not None:
            self._import.cancel()
        self._watch.stop()

    def _later(self, step: Callable[[], None]) -> None:
        """Take the next step of a request in another turn."""
        self._clock.call_soon(lambda: self._guard(step))

    def _guard(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # A bug costs this request, as it costs a connection in AMQP.
            _log.error("internal error", exc_info=error)
            self._reply(ErrorReply(INTERNAL, "internal error; the node's log has the details"))

    def _start(self, request: control.ControlRequest) -> None:
        try:
            self._permits.expect_tag(control.NEEDS[type(request)])
            plan = self._plan(request)
            if plan is not None:
                self._administration.run(plan, self._on_done, self._permits.user.shown_name)
            else:
                call = self._calls.of(request)
                assert call is not None
                call(request)
        except Refusal as refusal:
            self._reply(ErrorReply(refusal.code, refusal.text))

    # -- definitions -------------------------------------------------------------------------------

    def _plan(self, request: control.ControlRequest) -> Callable[[], list[Change]] | None:
        """The plan of an operation on definitions; None for other operations."""
        if isinstance(request, control.ResetNode) and self._cluster is None:
            return lambda: self._plans.reset(self._node)
        scheduled = self._schedules.plan(request)
        if scheduled is not None:
            return scheduled
        plan = self._plans.by_request.of(request)
        if plan is None:
            return None
        if isinstance(request, control.SetPolicy | control.ClearPolicy):
            # A policy of the operator bounds those of the teams, so it is not theirs.
            self._permits.expect_tag(
                control.ADMINISTRATOR if request.kind == "operator_policy" else control.NO_TAG
            )
        if isinstance(request, _PARAMETER_REQUESTS):
            self._permits.expect_vhost(request.vhost)
        if isinstance(request, control.PauseQueue | control.ResumeQueue):
            self._permits.expect_configure(request.vhost, request.queue)
        return lambda: plan(request)

    def _on_done(self, refusal: Refusal | None) -> None:
        if refusal is None:
            self._reply(control.Done())
        else:
            self._reply(ErrorReply(refusal.code, refusal.text))

    # -- everything else ---------------------------------------------------------------------------

    def _add_calls(self) -> None:
        calls = self._calls
        calls.add(control.CheckPassword, self._check_password)
        calls.add(control.ExportDefinitions, self._export)
        calls.add(control.ImportDefinitions, self._import_definitions)
        calls.add(control.GetImport, self._import_definitions)
        calls.add(control.CancelImport, self._import_definitions)
        calls.add(control.ResetNode, self._leave)
        calls.add(control.SetMemoryLimit, self._set_memory_limit)
        calls.add(control.SetDiskLimit, self._set_disk_limit)
        calls.add(control.SetLogLevel, self._set_log_level)
        calls.add(control.RotateLogs, self._rotate_logs)
        calls.add(control.SetListening, self._set_listening)
        calls.add(control.SetRunning, self._set_running)
        calls.add(control.StopNode, self._stop_node)
        calls.add(control.DescribeUser, self._describe_user)
        calls.add(control.IssueTicket, self._issue_ticket)
        calls.add(DescribeCounters, self._describe_counters)
        calls.add(DescribeLatencies, self._describe_latencies)

    def _set_memory_limit(self, request: control.SetMemoryLimit) -> None:
        absolute = -1 if request.absolute is None else request.absolute
        self._broker.set_vm_memory_high_watermark(
            absolute, request.relative or 0.0, self._clock.now_ms()
        )
        self._reply(control.Done())

    def _set_disk_limit(self, request: control.SetDiskLimit) -> None:
        absolute = -1 if request.absolute is None else request.absolute
        self._broker.set_disk_free_limit(absolute, request.relative or 0.0, self._clock.now_ms())
        self._reply(control.Done())

    def _set_log_level(self, request: control.SetLogLevel) -> None:
        self._node.set_log_level(request.level)
        self._reply(control.Done())

    def _rotate_logs(self, _request: control.RotateLogs) -> None:
        self._node.rotate_logs()
        self._reply(control.Done())

    def _set_listening(self, request: control.SetListening) -> None:
        self._node.set_listening(request.is_on)
        self._reply(control.Done())

    def _set_running(self, request: control.SetRunning) -> None:
        self._node.set_running(request.is_on, self._on_running)

    def _stop_node(self, _request: control.StopNode) -> None:
        self._node.stop()
        self._reply(control.Done())

    def _describe_user(self, _request: control.DescribeUser) -> None:
        user, broker = self._permits.user, self._broker
        description = control.UserDescription(
            name=name_text(user.name),
            tags=user.tags,
            vhosts=sorted([name_text(vhost) for vhost in broker.vhosts if user.may_enter(vhost)]),
            is_loopback_only=user.name in broker.access.loopback_users,
            node=broker.settings.node_name,
            cluster_name=broker.cluster_name(),
        )
        self._reply(description)

    def _issue_ticket(self, request: control.IssueTicket) -> None:
        user = self._permits.user
        ticket = self._broker.access.ticket(user.name, request.password.encode())
        if user.is_local or not ticket:
            raise Refusal(ACCESS_REFUSED, f"user '{name_text(user.name)}' authentication failed")
        self._reply(control.Ticket(ticket.decode(), TICKET_S))

    def _describe_counters(self, _request: DescribeCounters) -> None:
        self._reply(node_counters(self._broker))

    def _describe_latencies(self, _request: DescribeLatencies) -> None:
        self._reply(node_latencies(self._broker.latencies))

    def _on_running(self, failure: str) -> None:
        self._on_done(Refusal(PRECONDITION, failure) if failure else None)

    def _leave(self, request: control.ResetNode) -> None:
        """Leave the cluster, then delete everything that the node has."""
        cluster = self._cluster
        assert cluster is not None
        if self._node.is_running:
            raise Refusal(PRECONDITION, "this command requires the broker to be stopped first")

        def on_left(code: str, text: str) -> None:
            if code:
                self._reply(ErrorReply(code, text))
            else:
                self._administration.run(self._plans.empty, on_empty, self._permits.user.shown_name)

        def on_empty(refusal: Refusal | None) -> None:
            if refusal is None:
                cluster.forget_directory()
            self._on_done(refusal)

        cluster.leave(request.is_forced, on_left)

    def _export(self, request: control.ExportDefinitions) -> None:
        vhost = None if request.vhost is None else self._permits.expect_vhost(request.vhost)
        self._join(export_pieces(self._broker, vhost), bytearray())

    def _join(self, pieces: Iterator[bytes], joined: bytearray) -> None:
        """Join one piece a turn, then reply."""
        piece = next(pieces, None)
        if piece is None:
            self._reply(control.Exported(bytes(joined)))
        else:
            joined += piece
            self._later(lambda: self._join(pieces, joined))

    def _import_definitions(
        self, request: control.ImportDefinitions | control.GetImport | control.CancelImport
    ) -> None:
        if isinstance(request, control.ImportDefinitions):
            self._start_import(request)
        if self._import is None:
            raise Refusal(PRECONDITION, "this session has imported no definitions")
        if isinstance(request, control.CancelImport):
            self._import.cancel()
        self._reply(self._import.status())

    def _start_import(self, request: control.ImportDefinitions) -> None:
        if self._import is not None and self._import.is_running():
            raise Refusal(PRECONDITION, "this session imports definitions already")
        self._import = DefinitionsImport(
            self._broker, self._administration, self._clock, request.vhost
        )
        self._import.start(request.json, request.is_dry_run)

    def _check_password(self, request: control.CheckPassword) -> None:
        self._permits.expect_user(request.name)
        name = request.name.encode()
        if not self._broker.access.is_password(name, request.password.encode()):
            raise Refusal(ACCESS_REFUSED, f'user "{request.name}" authentication failed')
        self._reply(control.Done())
