"""The operations on schedules of jobs; the management process of a node runs the jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from warrenmq.admin.control.peers import Peers
from warrenmq.admin.control.permits import Permits
from warrenmq.admin.definitions.administration import Refusal
from warrenmq.admin.protocol import schedules
from warrenmq.admin.protocol.control import ControlReply, Ticket
from warrenmq.admin.protocol.requests import ErrorReply
from warrenmq.admin.protocol.schedules import PIPELINE_RUN, PIPELINE_SCHEDULE, parse_schedule
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions import metadata
from warrenmq.broker.definitions.tickets import JOB_S
from warrenmq.vocabulary.error_codes import ACCESS_REFUSED, INVALID, NOT_FOUND, PRECONDITION
from warrenmq.vocabulary.names import name_text

_Changes = list[metadata.Change]
_Plan = Callable[[], _Changes]
_PLANNED: Final = (schedules.SetSchedule, schedules.ClearSchedule, schedules.NoteRun)


class ScheduleCalls:
    """Carries out the operations on schedules of `broker`; `reply` answers those without a plan.

    `peers`: the other nodes of the cluster, None for none.
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

    def plan(self, request: object) -> _Plan | None:
        """The plan of an operation that changes definitions; None for other operations."""
        if not isinstance(request, _PLANNED):
            return None
        vhost = self._permits.expect_vhost(request.vhost).name
        if isinstance(request, schedules.SetSchedule):
            return lambda: self._set(vhost, request)
        if isinstance(request, schedules.ClearSchedule):
            return lambda: self._clear(vhost, request.name)
        return lambda: self._note(vhost, request)

    def _set(self, vhost: bytes, request: schedules.SetSchedule) -> _Changes:
        try:
            parse_schedule(request.value)
        except ValueError as error:
            raise Refusal(INVALID, str(error)) from None
        return [metadata.PutParameter(vhost, PIPELINE_SCHEDULE, request.name, request.value)]

    def _clear(self, vhost: bytes, name: str) -> _Changes:
        self._expect(vhost, name)
        cleared: _Changes = [metadata.DeleteParameter(vhost, PIPELINE_SCHEDULE, name)]
        if (vhost, PIPELINE_RUN, name) in self._broker.parameters:
            cleared.append(metadata.DeleteParameter(vhost, PIPELINE_RUN, name))
        return cleared

    def _note(self, vhost: bytes, request: schedules.NoteRun) -> _Changes:
        self._expect(vhost, request.name)
        try:
            msgspec.json.decode(request.run, type=schedules.ScheduleRun)
        except msgspec.DecodeError as error:
            raise Refusal(INVALID, str(error)) from None
        return [metadata.PutParameter(vhost, PIPELINE_RUN, request.name, request.run)]

    def _expect(self, vhost: bytes, name: str) -> None:
        if (vhost, PIPELINE_SCHEDULE, name) not in self._broker.parameters:
            raise Refusal(NOT_FOUND, f"there is no schedule '{name}'")

    def list_all(self, _request: schedules.ListSchedules) -> None:
        """Answer with all schedules."""
        parameters = self._broker.parameters
        found = [
            schedules.ListedSchedule(
                name_text(vhost), name, value, parameters.get((vhost, PIPELINE_RUN, name), "")
            )
            for (vhost, component, name), value in sorted(parameters.items())
            if component == PIPELINE_SCHEDULE
        ]
        own = self._broker.settings.node_name
        running = [own] if self._peers is None else sorted({own, *self._peers.cluster.running()})
        self._reply(schedules.Schedules(found, own, running))

    def issue_ticket(self, request: schedules.IssueJobTicket) -> None:
        """Answer with a ticket for a job of any user. Raises Refusal."""
        if not self._permits.user.is_local:
            raise Refusal(ACCESS_REFUSED, "tickets of other users are for local administrators")
        self._permits.expect_user(request.user)
        ticket = self._broker.access.job_ticket(request.user.encode())
        if not ticket:
            raise Refusal(PRECONDITION, f"user '{request.user}' has no password to run a job with")
        self._reply(Ticket(ticket.decode(), JOB_S))
