"""One admin session, on the node's side: frames, login, and the dispatch of requests.

The session does no I/O. The listener that found the admin protocol's header feeds bytes to
`receive` and reports events of the connection; replies go to `transport.write`. The session works
on one request at a time, so replies keep the order of the requests, and starts none while the peer
does not read (`pause_writing`). A client that sends and never reads costs one reply and two
requests of the largest size at most, which is REQUEST_BYTES_MAX until it stages messages.

The calls for reader groups are in readers/calls.py, those for sinks in sink_calls.py.
"""

from collections.abc import Callable
from typing import Final, Protocol

import warrenmq
from warrenmq.admin.clock import Clock
from warrenmq.admin.control.calls import ControlCalls
from warrenmq.admin.node import AdminNode, AdminVhost, BackupRefused
from warrenmq.admin.protocol.control import (
    ADMINISTRATOR,
    IMPORT_BYTES_MAX,
    MONITORING,
    ControlRequest,
)
from warrenmq.admin.protocol.figures import DescribeNode, ListQueues
from warrenmq.admin.protocol.homes import LocateQueues
from warrenmq.admin.protocol.requests import (
    LENGTH_BYTES,
    PROTOCOL_VERSION,
    REQUEST_BYTES_MAX,
    Ack,
    BackupStatus,
    CancelBackup,
    DeleteGroup,
    DescribeQueue,
    ErrorReply,
    Fetch,
    Fetched,
    GetBackup,
    ListGroups,
    LocalLogin,
    LoggedIn,
    Login,
    OpenGroup,
    Peek,
    PlanRange,
    QueueDescription,
    Reply,
    Request,
    Reserve,
    SeekTime,
    StartBackup,
    TimeSought,
    decode_request,
    encode_frame,
)
from warrenmq.admin.protocol.sinks import (
    OpenStage,
    SinkRequest,
)
from warrenmq.admin.readers.calls import GroupCalls
from warrenmq.admin.readers.seek import seek_time
from warrenmq.admin.session_user import SessionUser
from warrenmq.admin.sink_calls import SinkCalls, block_bytes_max
from warrenmq.broker.vhost.sinks.stage import Author
from warrenmq.queues.backing.loading import peek_anywhere
from warrenmq.queues.entry import Entry
from warrenmq.queues.queue import Queue
from warrenmq.queues.readers.group_error import GroupError
from warrenmq.queues.readers.groups import refuse_unreadable
from warrenmq.queues.readers.record_block import encode_block
from warrenmq.vocabulary.error_codes import (
    ACCESS_REFUSED,
    BAD_REQUEST,
    DATA_LOSS,
    NOT_FOUND,
    PRECONDITION,
)
from warrenmq.vocabulary.names import name_text

# Time for the login (s).
LOGIN_TIMEOUT_S: Final = 10.0


class AdminTransport(Protocol):
    """The part of asyncio.Transport that a session uses."""

    def write(self, data: bytearray, /) -> None: ...
    def close(self) -> None: ...


class AdminSession:
    """One client of the admin protocol, from its protocol header to the end of the connection."""

    def __init__(
        self, node: AdminNode, transport: AdminTransport, clock: Clock, peer: str, is_loopback: bool
    ) -> None:
        self._node = node
        self._transport = transport
        self._peer = peer
        self._is_loopback = is_loopback
        self._clock = clock
        self._input = bytearray()
        # A request waits for its answer (long poll, commit).
        self._is_busy = False
        # `_work` is on the stack.
        self._is_working = False
        self._is_paused = False
        self._is_closed = False
        self._vhost: AdminVhost | None = None
        self._groups: GroupCalls | None = None
        self._sinks: SinkCalls | None = None
        self._request_bytes_max = REQUEST_BYTES_MAX
        self._user: SessionUser | None = None
        self._control: ControlCalls | None = None
        self._login_timer = clock.call_later(LOGIN_TIMEOUT_S, self._close)

    # -- events of the connection ------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Take bytes from the peer and start the requests that are complete."""
        if self._is_closed:
            return
        self._input += data
        self._work()
        if len(self._input) > 2 * self._request_bytes_max and not self._is_closed:
            self._refuse_and_close(
                "requests are sent ahead of their replies: one at a time, please"
            )

    def pause_writing(self) -> None:
        """Start no request until `resume_writing`: the peer reads too slowly."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Start requests again: the peer has caught up."""
        self._is_paused = False
        self._work()

    def connection_lost(self) -> None:
        """End the session. Reserved messages of reader groups stay reserved.

        A restarted program must find its ranges again: that is the purpose of a group.
        """
        self._is_closed = True
        self._login_timer.cancel()
        if self._groups is not None:
            self._groups.stop()
        if self._sinks is not None:
            self._sinks.stop()
        if self._control is not None:
            self._control.stop()

    # -- frames ------------------------------------------------------------------------------------

    def _work(self) -> None:
        # A request answered at once calls back from within `_work_off`, whose loop starts the next
        # one.
        if self._is_working:
            return
        self._is_working = True
        self._work_off()
        self._is_working = False

    def _work_off(self) -> None:
        while not self._is_busy and not self._is_paused and not self._is_closed:
            if len(self._input) < LENGTH_BYTES:
                return
            length = int.from_bytes(self._input[:LENGTH_BYTES], "big")
            if length > self._request_bytes_max:
                self._refuse_and_close(
                    f"a request of {length} bytes is above the limit of {self._request_bytes_max}"
                )
                return
            end = LENGTH_BYTES + length
            if len(self._input) < end:
                return
            payload = bytes(memoryview(self._input)[LENGTH_BYTES:end])
            del self._input[:end]
            try:
                request = decode_request(payload)
            except ValueError as error:
                self._refuse_and_close(f"not a request: {error}")
                return
            self._is_busy = True
            self._start(request)

    def _reply(self, reply: Reply) -> None:
        """Send the one answer to the current request."""
        if self._is_closed:
            return
        self._is_busy = False
        self._transport.write(encode_frame(reply))

    def _reply_later(self, reply: Reply) -> None:
        """Send an answer that comes from outside of `receive`, then start the next request."""
        self._reply(reply)
        self._work()

    def _refuse_and_close(self, explanation: str, code: str = BAD_REQUEST) -> None:
        self._reply(ErrorReply(code, explanation))
        self._close()

    def _close(self) -> None:
        self._is_closed = True
        self._transport.close()

    # -- requests ----------------------------------------------------------------------------------

    def _start(self, request: Request) -> None:
        vhost = self._vhost
        groups = self._groups
        sinks = self._sinks
        if isinstance(request, Login | LocalLogin):
            self._log_in(request)
            return
        if self._user is None:
            self._refuse_and_close("log in first", ACCESS_REFUSED)
            return
        if isinstance(request, ControlRequest):
            self._start_control(request)
            return
        if vhost is None or groups is None or sinks is None:
            text = "the session has no vhost: it is for control operations only"
            self._reply(ErrorReply(PRECONDITION, text))
            return
        if self._is_refused(vhost, self._user):
            return
        if isinstance(request, SinkRequest):
            if isinstance(request, OpenStage):
                # StageMessages requests are large.
                self._request_bytes_max = (
                    block_bytes_max(vhost.max_message_size) + REQUEST_BYTES_MAX
                )
            sinks.start(request)
            return
        if isinstance(request, StartBackup | GetBackup | CancelBackup):
            self._reply(self._back_up(request))
            return
        if isinstance(request, DescribeNode):
            self._reply(self._node.status(None if self._user.has_tag(MONITORING) else vhost))
            return
        if isinstance(request, ListQueues):
            self._reply(vhost.queue_list(request.after, request.max_queues))
            return
        if isinstance(request, LocateQueues):
            self._locate(vhost, request)
            return
        if vhost.reader_groups.when_attached(lambda: self._start_later(request)):
            return
        try:
            match request:
                case OpenGroup():
                    groups.open(request)
                case Reserve():
                    groups.reserve(request)
                case PlanRange():
                    groups.plan_range(request)
                case Fetch():
                    groups.fetch(request)
                case Ack():
                    groups.ack(request)
                case DeleteGroup():
                    groups.delete(request)
                case ListGroups():
                    groups.list_groups()
                case DescribeQueue():
                    groups.expect_read(request.queue)
                    self._reply(_describe_queue(vhost, request))
                case SeekTime():
                    groups.expect_read(request.queue)
                    queue = _queue_of(vhost, request.queue, request.incarnation)
                    seek_time(queue, request.ms, lambda seq: self._reply_later(TimeSought(seq)))
                case Peek():
                    groups.expect_read(request.queue)
                    _peek(vhost, request, self._reply_later)
        except GroupError as error:
            self._reply(ErrorReply(error.code, error.text))

    def _locate(self, vhost: AdminVhost, request: LocateQueues) -> None:
        assert self._user is not None
        try:
            self._reply(self._node.locate(vhost, self._user.rights(vhost.name), request))
        except GroupError as error:
            self._reply(ErrorReply(error.code, error.text))

    def _is_refused(self, vhost: AdminVhost, user: SessionUser) -> bool:
        """Refuse a request if the vhost was deleted, or the user may not enter it any more."""
        shown = f"vhost '{name_text(vhost.name)}'"
        if vhost.is_deleted:
            self._refuse_and_close(f"{shown} is deleted", NOT_FOUND)
            return True
        if not user.may_enter(vhost.name):
            text = f"access to {shown} refused for user '{name_text(user.name)}'"
            self._reply(ErrorReply(ACCESS_REFUSED, text))
            return True
        return False

    def _start_later(self, request: Request) -> None:
        if not self._is_closed:
            self._start(request)
            self._work()

    def _log_in(self, login: Login | LocalLogin) -> None:
        if self._user is not None:
            self._refuse_and_close("logged in already")
            return
        answer = self._node.log_in(login, self._peer, self._is_loopback, self._clock.now_ms())
        if answer.wait_ms == 0:
            self._on_login(login, answer.user)
        else:
            self._clock.call_later(
                answer.wait_ms / 1000, lambda: self._on_late_login(login, answer.user)
            )

    def _on_late_login(self, login: Login | LocalLogin, user: SessionUser | str) -> None:
        if not self._is_closed:
            self._on_login(login, user)
            self._work()

    def _on_login(self, login: Login | LocalLogin, user: SessionUser | str) -> None:
        if isinstance(user, str):
            self._refuse_and_close(user, ACCESS_REFUSED)
            return
        self._login_timer.cancel()
        self._user = user
        if not login.vhost and user.has_tag(ADMINISTRATOR):
            self._request_bytes_max = IMPORT_BYTES_MAX
        if login.vhost:
            vhost = self._node.vhost(login.vhost.encode())
            if vhost is None:
                self._refuse_and_close(f"vhost '{login.vhost}' is deleted", NOT_FOUND)
                return
            self._enter(vhost, user, f"{login.client or 'a client'} at {self._peer}")
        self._reply(LoggedIn(warrenmq.__version__, PROTOCOL_VERSION))

    def _enter(self, vhost: AdminVhost, user: SessionUser, opener: str) -> None:
        rights = user.rights(vhost.name)
        self._vhost = vhost
        self._groups = GroupCalls(vhost, self._clock, opener, rights, self._reply_later)
        author = Author(user.account, rights)
        self._sinks = SinkCalls(
            vhost, self._clock, author, lambda: user.has_tag(ADMINISTRATOR), self._reply_later
        )

    def _start_control(self, request: ControlRequest) -> None:
        if self._control is None:
            assert self._user is not None
            self._control = self._node.control_calls(self._user, self._clock, self._reply_later)
        if self._control is None:
            self._reply(ErrorReply(BAD_REQUEST, "this node takes no control operations"))
        else:
            self._control.start(request)

    def _back_up(
        self, request: StartBackup | GetBackup | CancelBackup
    ) -> BackupStatus | ErrorReply:
        backups = self._node.backups
        if self._user is None or not self._user.has_tag(ADMINISTRATOR):
            return ErrorReply(ACCESS_REFUSED, "backups are for users with the tag administrator")
        if backups is None:
            return ErrorReply(BAD_REQUEST, "this node has no data directory")
        try:
            if isinstance(request, StartBackup):
                backups.start(request.target)
            elif isinstance(request, CancelBackup):
                backups.cancel()
            return backups.status()
        except BackupRefused as error:
            return ErrorReply(PRECONDITION, str(error))


def _describe_queue(vhost: AdminVhost, request: DescribeQueue) -> QueueDescription:
    queue = vhost.queue(request.queue)
    if queue is None:
        raise GroupError(
            NOT_FOUND, f"no queue '{name_text(request.queue)}' in vhost '{name_text(vhost.name)}'"
        )
    refuse_unreadable(queue)
    return QueueDescription(
        incarnation=queue.id,
        durable=queue.durable,
        ready=queue.ready_count,
        first_ready=queue.backing.first_ready_seq,
        tail=queue.next_seq,
    )


def _queue_of(vhost: AdminVhost, name: bytes, incarnation: int) -> Queue:
    """The queue `name`; GroupError when it is deleted or has another incarnation."""
    queue = vhost.queue(name)
    if queue is None or queue.id != incarnation:
        raise GroupError(DATA_LOSS, _deleted_text(name, incarnation))
    refuse_unreadable(queue)
    return queue


def _deleted_text(name: bytes, incarnation: int) -> str:
    return f"queue '{name_text(name)}' (incarnation {incarnation}) is deleted"


def _peek(vhost: AdminVhost, request: Peek, reply: Callable[[Reply], None]) -> None:
    if request.start > request.end:
        raise GroupError(
            PRECONDITION, f"range [{request.start}, {request.end}) ends before it begins"
        )
    queue = _queue_of(vhost, request.queue, request.incarnation)

    def on_entries(found: list[Entry]) -> None:
        if queue.is_deleted:
            # The queue was deleted while the messages were loading: a gap must not look like the
            # end.
            reply(ErrorReply(DATA_LOSS, _deleted_text(request.queue, request.incarnation)))
            return
        entries = [entry for entry in found if entry.seq < request.end]
        is_last = len(entries) < len(found) or not entries
        next_seq = request.end if is_last else entries[-1].seq + 1
        reply(
            Fetched(
                next_seq, memoryview(encode_block(entries, request.with_bodies, vhost.store_id))
            )
        )

    peek_anywhere(
        queue.backing,
        request.start,
        request.end,
        request.max_messages,
        request.max_bytes,
        on_entries,
    )
