"""One admin session, on the node's side: frames, login, and the dispatch of requests.

The session does no I/O. The listener that found the admin protocol's header feeds bytes to
`receive` and reports events of the connection; replies go to `transport.write`. The session works
on one request at a time, so replies keep the order of the requests, and starts none while the peer
does not read (`pause_writing`). A client that sends and never reads costs one reply and two
requests of the largest size at most, which is REQUEST_BYTES_MAX until it stages messages.

The calls for reader groups and for reads of queues are in readers/, those for sinks in
sink_calls.py, those of control operations in control/.
"""

from typing import Final, Protocol

import warrenmq
from warrenmq.admin.clock import Clock
from warrenmq.admin.control.calls import ControlCalls
from warrenmq.admin.dispatch import Dispatch
from warrenmq.admin.node import AdminNode, AdminVhost, BackupRefused
from warrenmq.admin.protocol import control, requests
from warrenmq.admin.protocol.figures import DescribeNode, ListQueues
from warrenmq.admin.protocol.homes import LocateQueues
from warrenmq.admin.protocol.readers import DescribeReaders
from warrenmq.admin.protocol.routes import TryRoute
from warrenmq.admin.protocol.sinks import (
    OpenStage,
    SinkRequest,
)
from warrenmq.admin.readers.all_readers import describe_readers
from warrenmq.admin.readers.calls import GroupCalls
from warrenmq.admin.readers.queue_reads import QueueReads
from warrenmq.admin.session_user import SessionUser
from warrenmq.admin.sink_calls import SinkCalls, block_bytes_max
from warrenmq.broker.vhost.sinks.stage import Author
from warrenmq.queues.readers.group_error import GroupError
from warrenmq.vocabulary import error_codes
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
        # The calls of a session that has entered a vhost: those that need nothing of the vhost's
        # reader groups, and those that start once the groups are attached to their queues.
        self._calls: Dispatch[None] = Dispatch()
        self._group_calls: Dispatch[None] = Dispatch()
        self._request_bytes_max = requests.REQUEST_BYTES_MAX
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
            if len(self._input) < requests.LENGTH_BYTES:
                return
            length = int.from_bytes(self._input[: requests.LENGTH_BYTES], "big")
            if length > self._request_bytes_max:
                self._refuse_and_close(
                    f"a request of {length} bytes is above the limit of {self._request_bytes_max}"
                )
                return
            end = requests.LENGTH_BYTES + length
            if len(self._input) < end:
                return
            payload = bytes(memoryview(self._input)[requests.LENGTH_BYTES : end])
            del self._input[:end]
            try:
                request = requests.decode_request(payload)
            except ValueError as error:
                self._refuse_and_close(f"not a request: {error}")
                return
            self._is_busy = True
            self._start(request)

    def _reply(self, reply: requests.Reply) -> None:
        """Send the one answer to the current request."""
        if self._is_closed:
            return
        self._is_busy = False
        self._transport.write(requests.encode_frame(reply))

    def _reply_later(self, reply: requests.Reply) -> None:
        """Send an answer that comes from outside of `receive`, then start the next request."""
        self._reply(reply)
        self._work()

    def _refuse(self, code: str, explanation: str) -> None:
        self._reply(requests.ErrorReply(code, explanation))

    def _refuse_and_close(self, explanation: str, code: str = error_codes.BAD_REQUEST) -> None:
        self._refuse(code, explanation)
        self._close()

    def _close(self) -> None:
        self._is_closed = True
        self._transport.close()

    # -- requests ----------------------------------------------------------------------------------

    def _start(self, request: requests.Request) -> None:
        if isinstance(request, requests.Login | requests.LocalLogin):
            self._log_in(request)
        elif self._user is None:
            self._refuse_and_close("log in first", error_codes.ACCESS_REFUSED)
        elif control.is_control(request):
            self._start_control(request)
        elif isinstance(request, DescribeNode) and self._user.has_tag(control.MONITORING):
            self._reply(self._node.status(None))
        elif isinstance(request, DescribeReaders):
            self._describe_readers(self._user)
        elif self._vhost is None:
            text = "the session has no vhost: it is for control operations only"
            self._refuse(error_codes.PRECONDITION, text)
        elif not self._is_refused(self._vhost, self._user):
            self._start_in_vhost(self._vhost, request)

    def _describe_readers(self, user: SessionUser) -> None:
        if user.has_tag(control.MONITORING):
            describe_readers(self._node, self._clock, self._reply_later)
        else:
            text = "reader groups of all vhosts are for users with the tag monitoring"
            self._refuse(error_codes.ACCESS_REFUSED, text)

    def _start_in_vhost(self, vhost: AdminVhost, request: requests.Request) -> None:
        call = self._calls.of(request)
        if call is None:
            if vhost.reader_groups.when_attached(lambda: self._start_later(request)):
                return
            call = self._group_calls.of(request)
            assert call is not None
        try:
            call(request)
        except GroupError as error:
            self._refuse(error.code, error.text)

    def _is_refused(self, vhost: AdminVhost, user: SessionUser) -> bool:
        """Refuse a request if the vhost was deleted, or the user may not enter it any more."""
        shown = f"vhost '{name_text(vhost.name)}'"
        if vhost.is_deleted:
            self._refuse_and_close(f"{shown} is deleted", error_codes.NOT_FOUND)
            return True
        if not user.may_enter(vhost.name):
            text = f"access to {shown} refused for user '{name_text(user.name)}'"
            self._refuse(error_codes.ACCESS_REFUSED, text)
            return True
        return False

    def _start_later(self, request: requests.Request) -> None:
        if not self._is_closed:
            self._start(request)
            self._work()

    def _log_in(self, login: requests.Login | requests.LocalLogin) -> None:
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

    def _on_late_login(
        self, login: requests.Login | requests.LocalLogin, user: SessionUser | str
    ) -> None:
        if not self._is_closed:
            self._on_login(login, user)
            self._work()

    def _on_login(
        self, login: requests.Login | requests.LocalLogin, user: SessionUser | str
    ) -> None:
        if isinstance(user, str):
            self._refuse_and_close(user, error_codes.ACCESS_REFUSED)
            return
        self._login_timer.cancel()
        self._user = user
        if not login.vhost and user.has_tag(control.ADMINISTRATOR):
            self._request_bytes_max = control.IMPORT_BYTES_MAX
        if login.vhost:
            vhost = self._node.vhost(login.vhost.encode())
            if vhost is None:
                self._refuse_and_close(f"vhost '{login.vhost}' is deleted", error_codes.NOT_FOUND)
                return
            self._enter(vhost, user, f"{login.client or 'a client'} at {self._peer}")
        self._reply(requests.LoggedIn(warrenmq.__version__, requests.PROTOCOL_VERSION))

    def _enter(self, vhost: AdminVhost, user: SessionUser, opener: str) -> None:
        rights = user.rights(vhost.name)
        author = Author(user.account, rights)
        sinks = SinkCalls(
            vhost,
            self._clock,
            author,
            lambda: user.has_tag(control.ADMINISTRATOR),
            self._reply_later,
        )
        groups = GroupCalls(vhost, self._clock, opener, rights, self._reply_later)
        self._vhost, self._sinks, self._groups = vhost, sinks, groups
        self._add_calls(vhost, user, sinks)
        calls = self._group_calls
        calls.add(requests.OpenGroup, groups.open)
        calls.add(requests.Reserve, groups.reserve)
        calls.add(requests.PlanRange, groups.plan_range)
        calls.add(requests.Fetch, groups.fetch)
        calls.add(requests.Ack, groups.ack)
        calls.add(requests.DeleteGroup, groups.delete)
        calls.add(requests.ListGroups, lambda _request: groups.list_groups())
        reads = QueueReads(vhost, groups.expect_read, self._reply_later)
        calls.add(requests.DescribeQueue, reads.describe)
        calls.add(requests.SeekTime, reads.seek_time)
        calls.add(requests.Peek, reads.peek)

    def _add_calls(self, vhost: AdminVhost, user: SessionUser, sinks: SinkCalls) -> None:
        def open_stage(request: OpenStage) -> None:
            # StageMessages requests are large.
            self._request_bytes_max = (
                block_bytes_max(vhost.max_message_size) + requests.REQUEST_BYTES_MAX
            )
            sinks.start(request)

        def describe_node(_request: DescribeNode) -> None:
            self._reply(self._node.status(vhost))

        def list_queues(request: ListQueues) -> None:
            self._reply(vhost.queue_list(request.after, request.max_queues))

        def locate(request: LocateQueues) -> None:
            self._reply(self._node.locate(vhost, user.rights(vhost.name), request))

        def try_route(request: TryRoute) -> None:
            self._reply(vhost.try_route(user.rights(vhost.name), request))

        calls = self._calls
        calls.add(TryRoute, try_route)
        calls.add_all(SinkRequest, sinks.start)
        calls.add(OpenStage, open_stage)
        calls.add(requests.StartBackup, self._back_up)
        calls.add(requests.GetBackup, self._back_up)
        calls.add(requests.CancelBackup, self._back_up)
        calls.add(DescribeNode, describe_node)
        calls.add(ListQueues, list_queues)
        calls.add(LocateQueues, locate)

    def _start_control(self, request: control.ControlRequest) -> None:
        if self._control is None:
            assert self._user is not None
            self._control = self._node.control_calls(self._user, self._clock, self._reply_later)
        if self._control is None:
            self._refuse(error_codes.BAD_REQUEST, "this node takes no control operations")
        else:
            self._control.start(request)

    def _back_up(
        self, request: requests.StartBackup | requests.GetBackup | requests.CancelBackup
    ) -> None:
        backups = self._node.backups
        if self._user is None or not self._user.has_tag(control.ADMINISTRATOR):
            self._refuse(
                error_codes.ACCESS_REFUSED, "backups are for users with the tag administrator"
            )
        elif backups is None:
            self._refuse(error_codes.BAD_REQUEST, "this node has no data directory")
        else:
            try:
                if isinstance(request, requests.StartBackup):
                    backups.start(request.target)
                elif isinstance(request, requests.CancelBackup):
                    backups.cancel()
                self._reply(backups.status())
            except BackupRefused as error:
                self._refuse(error_codes.PRECONDITION, str(error))
