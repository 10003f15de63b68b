"""The control calls of one session: who may ask for what, and what the node does.

Operations on definitions are planned in access_plans.py and carried out by the administration.
Files of their own have the calls about queues, mirrors, connections, listings, the cluster, events.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from warrenmq.admin.clock import Clock
from warrenmq.admin.control.access_plans import AccessPlans
from warrenmq.admin.control.cluster import ClusterCalls
from warrenmq.admin.control.connections import ConnectionCalls
from warrenmq.admin.control.control_host import ControlHost
from warrenmq.admin.control.listings import ListingCalls
from warrenmq.admin.control.mirrors import MirrorCalls
from warrenmq.admin.control.peers import Peers
from warrenmq.admin.control.permits import Permits
from warrenmq.admin.control.queues import QueueCalls
from warrenmq.admin.control.watching import WatchCalls
from warrenmq.admin.definitions.administration import Administration, Refusal
from warrenmq.admin.definitions.export import export_pieces
from warrenmq.admin.definitions.importing import DefinitionsImport
from warrenmq.admin.events.stream import EventStream
from warrenmq.admin.protocol.cluster import ClusterRequest
from warrenmq.admin.protocol.control import (
    ADMINISTRATOR,
    NEEDS,
    NO_TAG,
    AddUser,
    AddVhost,
    CancelImport,
    ChangePassword,
    CheckPassword,
    ClearGlobalParameter,
    ClearParameter,
    ClearPermissions,
    ClearPolicy,
    ClearTopicPermissions,
    CloseConnections,
    ControlReply,
    ControlRequest,
    DeleteQueue,
    DeleteUser,
    DeleteVhost,
    DescribeControl,
    Done,
    ExportDefinitions,
    Exported,
    GetImport,
    ImportDefinitions,
    List,
    PurgeQueue,
    ResetNode,
    RotateLogs,
    SetDiskLimit,
    SetGlobalParameter,
    SetListening,
    SetLogLevel,
    SetMemoryLimit,
    SetParameter,
    SetPermissions,
    SetPolicy,
    SetRunning,
    SetTopicPermissions,
    SetTracing,
    SetUserLimits,
    SetUserTags,
    SetVhostLimits,
    SetVhostTags,
    StopNode,
)
from warrenmq.admin.protocol.mirrors import MirrorRequest
from warrenmq.admin.protocol.requests import ErrorReply
from warrenmq.admin.protocol.watching import WatchRequest
from warrenmq.admin.session_user import SessionUser
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import Change
from warrenmq.vocabulary.error_codes import (
    ACCESS_REFUSED,
    INTERNAL,
    PRECONDITION,
)

if TYPE_CHECKING:
    from warrenmq.cluster.membership.control import ClusterControl

_log = logging.getLogger("warren.admin")


class ControlCalls:
    """Carries out the control requests of `user`; each is answered once, through `reply`.

    `cluster`: None for a node that runs alone. Requests that another node has passed on
    (`is_passed`) concern this node alone.
    """

    def __init__(
        self,
        broker: Broker,
        administration: Administration,
        control: ControlHost,
        events: EventStream,
        user: SessionUser,
        clock: Clock,
        reply: Callable[[ControlReply | ErrorReply], None],
        cluster: ClusterControl | None = None,
        is_passed: bool = False,
    ) -> None:
        self._broker = broker
        self._administration = administration
        self._control = control
        self._permits = Permits(broker, user)
        self._clock = clock
        self._reply = reply
        self._plans = AccessPlans(broker)
        self._import: DefinitionsImport | None = None
        self._watch = WatchCalls(broker, control, events, clock, reply)
        self._cluster = cluster
        peers = None if cluster is None or is_passed else Peers(cluster, user.name, self._guard)
        self._cluster_calls = ClusterCalls(control, cluster, peers, self._guard, reply)
        self._queue_calls = QueueCalls(broker, self._permits, peers, clock, reply)
        self._mirror_calls = MirrorCalls(broker, self._permits, peers, reply)
        self._connection_calls = ConnectionCalls(broker, peers, reply)
        self._listings = ListingCalls(broker, self._permits, peers, self._later, reply)

    def start(self, request: ControlRequest) -> None:
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

    def _start(self, request: ControlRequest) -> None:
        try:
            self._permits.expect_tag(NEEDS[type(request)])
            plan = self._plan(request)
            if plan is not None:
                self._administration.run(plan, self._on_done, self._permits.user.shown_name)
            else:
                self._start_other(request)
        except Refusal as refusal:
            self._reply(ErrorReply(refusal.code, refusal.text))

    # -- definitions -------------------------------------------------------------------------------

    def _plan(self, request: ControlRequest) -> Callable[[], list[Change]] | None:
        """The plan of an operation on definitions; None for other operations."""
        plans = self._plans
        match request:
            case AddUser():
                return lambda: plans.add_user(request)
            case DeleteUser():
                return lambda: plans.delete_user(request)
            case ChangePassword():
                return lambda: plans.change_password(request)
            case SetUserTags():
                return lambda: plans.set_user_tags(request)
            case SetUserLimits():
                return lambda: plans.set_user_limits(request)
            case SetPermissions():
                return lambda: plans.set_permissions(request)
            case ClearPermissions():
                return lambda: plans.clear_permissions(request)
            case SetTopicPermissions():
                return lambda: plans.set_topic_permissions(request)
            case ClearTopicPermissions():
                return lambda: plans.clear_topic_permissions(request)
            case AddVhost():
                return lambda: plans.add_vhost(request)
            case DeleteVhost():
                return lambda: plans.delete_vhost(request)
            case SetVhostTags():
                return lambda: plans.set_vhost_tags(request)
            case SetTracing():
                return lambda: plans.set_tracing(request)
            case ResetNode() if self._cluster is None:
                return lambda: plans.reset(self._control)
        return self._parameter_plan(request)

    def _parameter_plan(self, request: ControlRequest) -> Callable[[], list[Change]] | None:
        plans = self._plans
        match request:
            case SetVhostLimits():
                self._permits.expect_vhost(request.vhost)
                return lambda: plans.set_vhost_limits(request)
            case SetPolicy():
                # A policy of the operator bounds those of the teams, so it is not theirs.
                self._permits.expect_tag(
                    ADMINISTRATOR if request.kind == "operator_policy" else NO_TAG
                )
                self._permits.expect_vhost(request.vhost)
                return lambda: plans.set_policy(request)
            case ClearPolicy():
                self._permits.expect_tag(
                    ADMINISTRATOR if request.kind == "operator_policy" else NO_TAG
                )
                self._permits.expect_vhost(request.vhost)
                return lambda: plans.clear_policy(request)
            case SetParameter():
                self._permits.expect_vhost(request.vhost)
                return lambda: plans.set_parameter(request)
            case ClearParameter():
                self._permits.expect_vhost(request.vhost)
                return lambda: plans.clear_parameter(request)
            case SetGlobalParameter():
                return lambda: plans.set_global_parameter(request)
            case ClearGlobalParameter():
                return lambda: plans.clear_global_parameter(request)
        return None

    def _on_done(self, refusal: Refusal | None) -> None:
        if refusal is None:
            self._reply(Done())
        else:
            self._reply(ErrorReply(refusal.code, refusal.text))

    # -- everything else ---------------------------------------------------------------------------

    def _start_other(self, request: ControlRequest) -> None:
        match request:
            case CheckPassword():
                self._check_password(request)
            case ExportDefinitions():
                self._export(request)
            case ImportDefinitions() | GetImport() | CancelImport():
                self._import_definitions(request)
            case PurgeQueue() | DeleteQueue():
                self._queue_calls.start(request)
            case CloseConnections():
                self._connection_calls.start(request)
            case List():
                self._listings.start(request)
            case ResetNode():
                self._leave(request)
            case _ if isinstance(request, WatchRequest):
                self._watch.start(request)
            case _ if isinstance(request, ClusterRequest):
                self._cluster_calls.start(request)
            case _ if isinstance(request, MirrorRequest):
                self._mirror_calls.start(request)
            case _:
                self._control_node(request)

    def _control_node(self, request: ControlRequest) -> None:
        broker, control, now_ms = self._broker, self._control, self._clock.now_ms()
        match request:
            case SetMemoryLimit():
                absolute = -1 if request.absolute is None else request.absolute
                broker.set_vm_memory_high_watermark(absolute, request.relative or 0.0, now_ms)
            case SetDiskLimit():
                absolute = -1 if request.absolute is None else request.absolute
                broker.set_disk_free_limit(absolute, request.relative or 0.0, now_ms)
            case SetLogLevel():
                control.set_log_level(request.level)
            case RotateLogs():
                control.rotate_logs()
            case SetListening():
                control.set_listening(request.is_on)
            case SetRunning():
                control.set_running(request.is_on, self._on_running)
                return
            case StopNode():
                control.stop()
            case DescribeControl():
                self._reply(control.describe())
                return
        self._reply(Done())

    def _on_running(self, failure: str) -> None:
        self._on_done(Refusal(PRECONDITION, failure) if failure else None)

    def _leave(self, request: ResetNode) -> None:
        """Leave the cluster, then delete everything that the node has."""
        cluster = self._cluster
        assert cluster is not None
        if self._control.is_running:
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

    def _export(self, request: ExportDefinitions) -> None:
        vhost = None if request.vhost is None else self._permits.expect_vhost(request.vhost)
        self._join(export_pieces(self._broker, vhost), bytearray())

    def _join(self, pieces: Iterator[bytes], joined: bytearray) -> None:
        """Join one piece a turn, then reply."""
        piece = next(pieces, None)
        if piece is None:
            self._reply(Exported(bytes(joined)))
        else:
            joined += piece
            self._later(lambda: self._join(pieces, joined))

    def _import_definitions(self, request: ImportDefinitions | GetImport | CancelImport) -> None:
        if isinstance(request, ImportDefinitions):
            self._start_import(request)
        if self._import is None:
            raise Refusal(PRECONDITION, "this session has imported no definitions")
        if isinstance(request, CancelImport):
            self._import.cancel()
        self._reply(self._import.status())

    def _start_import(self, request: ImportDefinitions) -> None:
        if self._import is not None and self._import.is_running():
            raise Refusal(PRECONDITION, "this session imports definitions already")
        self._import = DefinitionsImport(
            self._broker, self._administration, self._clock, request.vhost
        )
        self._import.start(request.json, request.is_dry_run)

    def _check_password(self, request: CheckPassword) -> None:
        self._permits.expect_user(request.name)
        name = request.name.encode()
        if not self._broker.access.is_password(name, request.password.encode()):
            raise Refusal(ACCESS_REFUSED, f'user "{request.name}" authentication failed')
        self._reply(Done())
