"""The control calls of one session: who may ask for what, and what the node does.

Operations on definitions are planned in access_plans.py and carried out by the administration. A
listing is built in slices, one a turn, so that its length delays no message.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Final

import msgspec

from warrenmq.admin.access_plans import AccessPlans
from warrenmq.admin.administration import Administration, Refusal
from warrenmq.admin.clock import Clock
from warrenmq.admin.cluster_access import ClusterAccess
from warrenmq.admin.cluster_calls import ClusterCalls
from warrenmq.admin.cluster_protocol import ClusterRequest
from warrenmq.admin.control_protocol import (
    ADMINISTRATOR,
    MONITORING,
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
    Counted,
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
    Rows,
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
from warrenmq.admin.definitions.export import export_pieces
from warrenmq.admin.definitions.importing import DefinitionsImport
from warrenmq.admin.event_stream import EventStream
from warrenmq.admin.listings.listing import (
    SPREAD,
    UnknownColumns,
    UnknownVhost,
    down_queue_rows,
    listing,
)
from warrenmq.admin.listings.pids import connection_pid, node_of_pid
from warrenmq.admin.node_control import NodeControl
from warrenmq.admin.peers import Answer, Peers
from warrenmq.admin.protocol import ErrorReply
from warrenmq.admin.session_user import SessionUser
from warrenmq.admin.watch_calls import WatchCalls
from warrenmq.admin.watch_protocol import WatchRequest
from warrenmq.broker.broker import Broker
from warrenmq.broker.connection.connection import Connection
from warrenmq.broker.connection.states import CLOSING
from warrenmq.broker.definitions.metadata import Change
from warrenmq.broker.definitions.metadata import DeleteQueue as DeleteQueueChange
from warrenmq.broker.definitions.removal_changes import removal_changes
from warrenmq.broker.definitions.rights import QUEUE
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.queues.queue import Queue
from warrenmq.vocabulary.error_codes import (
    ACCESS_REFUSED,
    BAD_REQUEST,
    INTERNAL,
    NO_SUCH_USER,
    NO_SUCH_VHOST,
    NOT_FOUND,
    PRECONDITION,
    STORAGE_FAILED,
    UNREACHABLE,
)
from warrenmq.vocabulary.names import name_text
from warrenmq.wire.errors import CONNECTION_FORCED, ConnectionException

_log = logging.getLogger("warren.admin")

# Rows that one turn builds.
SLICE_ROWS: Final = 50
# A local administrator in events; RabbitMQ calls its command line so.
LOCAL_NAME: Final = b"rmq-cli"
# Listings of what belongs to the whole node, with the tag that they need; the others are of a
# vhost, and every management user who may enter it may ask for them.
_NODE_LISTINGS: Final = {
    "auth_attempts": MONITORING,
    "auth_attempts_by_source": ADMINISTRATOR,
    "users": ADMINISTRATOR,
    "permissions": ADMINISTRATOR,
    "topic_permissions": ADMINISTRATOR,
    "user_permissions": ADMINISTRATOR,
    "user_topic_permissions": ADMINISTRATOR,
    "user_limits": ADMINISTRATOR,
    "global_parameters": ADMINISTRATOR,
    "connections": MONITORING,
    "channels": MONITORING,
    "vhosts": MONITORING,
}


# Listings that are of one user, who must exist.
_LISTINGS_OF_A_USER: Final = ("user_permissions", "user_topic_permissions")


class ControlCalls:
    """Carries out the control requests of `user`; each is answered once, through `reply`.

    `cluster`: None for a node that runs alone. Requests that another node has passed on
    (`is_passed`) concern this node alone.
    """

    def __init__(
        self,
        broker: Broker,
        administration: Administration,
        control: NodeControl,
        events: EventStream,
        user: SessionUser,
        clock: Clock,
        reply: Callable[[ControlReply | ErrorReply], None],
        cluster: ClusterAccess | None = None,
        is_passed: bool = False,
    ) -> None:
        self._broker = broker
        self._administration = administration
        self._control = control
        self._user = user
        self._clock = clock
        self._reply = reply
        self._plans = AccessPlans(broker)
        self._import: DefinitionsImport | None = None
        self._watch = WatchCalls(broker, control, events, clock, reply)
        self._cluster = cluster
        self._peers = None if cluster is None or is_passed else Peers(cluster, user.name)
        self._cluster_calls = ClusterCalls(control, cluster, self._peers, reply)

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
            self._expect_tag(NEEDS[type(request)])
            plan = self._plan(request)
            if plan is not None:
                self._administration.run(plan, self._on_done, self._user.name or LOCAL_NAME)
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
                self._expect_vhost(request.vhost)
                return lambda: plans.set_vhost_limits(request)
            case SetPolicy():
                # A policy of the operator bounds those of the teams, so it is not theirs.
                self._expect_tag(ADMINISTRATOR if request.kind == "operator_policy" else NO_TAG)
                self._expect_vhost(request.vhost)
                return lambda: plans.set_policy(request)
            case ClearPolicy():
                self._expect_tag(ADMINISTRATOR if request.kind == "operator_policy" else NO_TAG)
                self._expect_vhost(request.vhost)
                return lambda: plans.clear_policy(request)
            case SetParameter():
                self._expect_vhost(request.vhost)
                return lambda: plans.set_parameter(request)
            case ClearParameter():
                self._expect_vhost(request.vhost)
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
            case PurgeQueue():
                self._purge(request)
            case DeleteQueue():
                self._delete_queue(request)
            case CloseConnections():
                self._close_connections(request)
            case List():
                self._list(request)
            case ResetNode():
                self._leave(request)
            case _ if isinstance(request, WatchRequest):
                self._watch.start(request)
            case _ if isinstance(request, ClusterRequest):
                self._cluster_calls.start(request)
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
                self._administration.run(self._plans.empty, on_empty, self._user.name or LOCAL_NAME)

        def on_empty(refusal: Refusal | None) -> None:
            if refusal is None:
                cluster.forget_directory()
            self._on_done(refusal)

        cluster.leave(request.is_forced, on_left)

    def _export(self, request: ExportDefinitions) -> None:
        vhost = None if request.vhost is None else self._expect_vhost(request.vhost)
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
        self._expect_user(request.name)
        name = request.name.encode()
        if not self._broker.access.is_password(name, request.password.encode()):
            raise Refusal(ACCESS_REFUSED, f'user "{request.name}" authentication failed')
        self._reply(Done())

    # -- queues ------------------------------------------------------------------------------------

    def _purge(self, request: PurgeQueue) -> None:
        vhost = self._expect_vhost(request.vhost)
        refusal = self._user.rights(vhost.name).read_refusal(QUEUE, request.queue)
        if refusal:
            raise Refusal(ACCESS_REFUSED, refusal)
        if self._is_passed_on(vhost, request):
            return
        purge = self._queue(vhost, request.queue).purge(self._clock.now_ms())
        if purge.is_done:
            self._reply(Counted(purge.count))
        else:
            purge.when_done = lambda _now_ms: self._reply(Counted(purge.count))

    def _delete_queue(self, request: DeleteQueue) -> None:
        vhost = self._expect_vhost(request.vhost)
        refusal = self._user.rights(vhost.name).configure_refusal(QUEUE, request.queue)
        if refusal:
            raise Refusal(ACCESS_REFUSED, refusal)
        if self._is_passed_on(vhost, request):
            return
        queue = self._queue(vhost, request.queue)
        text = vhost.queue_text(request.queue)
        if request.if_empty and queue.ready_count > 0:
            raise Refusal(PRECONDITION, f"{text} not empty")
        if request.if_unused and len(queue.consumers) > 0:
            raise Refusal(PRECONDITION, f"{text} in use")
        count = queue.ready_count

        def done(ok: bool, _now_ms: int) -> None:
            if ok:
                self._reply(Counted(count))
            else:
                text = "the queue is deleted, but that is not stored yet; the broker tries again"
                self._reply(ErrorReply(STORAGE_FAILED, text))

        changes = vhost.remove_queue(queue, self._clock.now_ms(), self._user.name or LOCAL_NAME)
        shared = self._broker.shared
        if shared is None:
            vhost.commit_with(changes, done, True)
        else:
            vhost.remove_shared(
                shared, changes, lambda failure, _now_ms: self._on_decided(failure, count)
            )

    def _on_decided(self, failure: str, count: int) -> None:
        """Answer: the cluster has decided a deletion, or not in time."""
        self._reply(ErrorReply(STORAGE_FAILED, failure) if failure else Counted(count))

    def _is_passed_on(self, vhost: Vhost, request: PurgeQueue | DeleteQueue) -> bool:
        """Pass on a request that concerns a queue of another node.

        Without that node, a queue can be deleted at least, unless only an empty one is meant.
        """
        queue = vhost.remote_queues.get(request.queue)
        if queue is None:
            return False
        if queue.home.session is not None and self._peers is not None:
            self._peers.ask(name_text(queue.home.name), request, self._reply)
            return True
        shared = self._broker.shared
        if isinstance(request, PurgeQueue) or request.if_empty or shared is None:
            kind = "durable " if queue.durable else ""
            text = (
                f"home node '{name_text(queue.home.name)}' of {kind}"
                f"{vhost.queue_text(queue.name)} is down or inaccessible"
            )
            raise Refusal(UNREACHABLE, text)
        removed = vhost.remove_remote_queue(queue, self._clock.now_ms())
        changes: list[Change] = [DeleteQueueChange(vhost.name, 0, queue.name)]
        changes.extend(removal_changes(vhost.name, removed, with_transient=True))
        shared.remove(changes, lambda failure, _now_ms: self._on_decided(failure, 0))
        return True

    def _queue(self, vhost: Vhost, name: bytes) -> Queue:
        queue = vhost.queues.get(name)
        if queue is None:
            raise Refusal(NOT_FOUND, f"no {vhost.queue_text(name)}")
        return queue

    # -- connections -------------------------------------------------------------------------------

    def _close_connections(self, request: CloseConnections) -> None:
        if request.pid is not None and self._peers is not None:
            node = node_of_pid(request.pid)
            if node in self._peers.cluster.reachable():
                self._peers.ask(node, request, self._reply)
                return
        count = self._close_own(request)
        if request.is_everywhere and self._peers is not None and request.pid is None:
            self._close_elsewhere(request, count, self._peers.cluster.reachable())
        else:
            self._reply(Counted(count))

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

    # -- listings ----------------------------------------------------------------------------------

    def _list(self, request: List) -> None:
        tag = _NODE_LISTINGS.get(request.what)
        if tag is not None:
            self._expect_tag(tag)
        elif request.what == "vhost_limits" and not request.vhost:
            # Those of all vhosts.
            self._expect_tag(ADMINISTRATOR)
        else:
            self._expect_vhost(request.vhost)
        if request.what in _LISTINGS_OF_A_USER:
            self._expect_user(request.user)
        try:
            rows = listing(self._broker, request)
        except UnknownColumns as error:
            raise Refusal(BAD_REQUEST, str(error)) from None
        except UnknownVhost as error:
            raise Refusal(NO_SUCH_VHOST, str(error)) from None
        if self._peers is None or request.which == "local" or request.what not in SPREAD:
            self._build(rows, [], [])
        elif request.which == "offline":
            down = request.what == "queues"
            self._build(down_queue_rows(self._broker, request) if down else iter(()), [], [])
        else:
            self._peers.ask_all(
                msgspec.structs.replace(request, which="local"),
                lambda answers: self._guard(lambda: self._join_rows(request, rows, answers)),
            )

    def _join_rows(
        self, request: List, own: Iterator[list[Any]], answers: dict[str, Answer]
    ) -> None:
        """Reply with the rows of all nodes; queues of a node without an answer may be down."""
        parts = [own]
        missing = []
        for node, answer in answers.items():
            if isinstance(answer, Rows):
                parts.append(iter(answer.rows))
            elif not isinstance(answer, ErrorReply) or answer.code != NO_SUCH_VHOST:
                missing.append(node)
        assert self._peers is not None
        cluster = self._peers.cluster
        if request.what != "queues":
            linked = {self._broker.settings.node_name, *cluster.reachable(), *answers}
            missing.extend(node for node in cluster.running() if node not in linked)
        elif request.which == "all":
            parts.append(down_queue_rows(self._broker, request))
            # Now its queues are known to be down.
            missing = [node for node in missing if node in cluster.reachable()]
        self._build(chain(*parts), [], missing)

    def _build(self, rows: Iterator[list[Any]], built: list[list[Any]], missing: list[str]) -> None:
        for row in rows:
            built.append(row)
            if len(built) % SLICE_ROWS == 0:
                self._later(lambda: self._build(rows, built, missing))
                return
        self._reply(Rows(built, missing))

    # -- who may -----------------------------------------------------------------------------------

    def _expect_tag(self, tag: str) -> None:
        if tag and not self._user.has_tag(tag):
            raise Refusal(ACCESS_REFUSED, f"the operation is for users with the tag {tag}")

    def _expect_user(self, name: str) -> None:
        if name.encode() not in self._broker.access.users:
            raise Refusal(NO_SUCH_USER, f'User "{name}" does not exist')

    def _expect_vhost(self, name: str) -> Vhost:
        """The vhost called `name`, which the user may enter, or any if it is an administrator."""
        vhost = self._broker.vhosts.get(name.encode())
        if not self._user.may_enter(name.encode()) and not self._user.has_tag(ADMINISTRATOR):
            text = f"access to vhost '{name}' refused for user '{name_text(self._user.name)}'"
            raise Refusal(ACCESS_REFUSED, text)
        if vhost is None:
            raise Refusal(NO_SUCH_VHOST, f'Virtual host "{name}" does not exist')
        return vhost
