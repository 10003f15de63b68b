"""Starts the runs of schedules when they are due, in a thread of the management process.

The definitions have the schedules and what became of the last run of each, so that another node
goes on where one has stopped. One node runs a schedule: the one that it names, or the first by name
of those that run. No two runs of a schedule overlap: while one is under way, the next time waits.
"""

import logging
import threading
import time
from typing import Final

import msgspec

from warrenmq.admin.client.client import AdminClient, AdminRefusedError, NodeUnreachableError
from warrenmq.admin.protocol.control import Done
from warrenmq.admin.protocol.schedules import (
    ListedSchedule,
    ListSchedules,
    NoteRun,
    Schedule,
    ScheduleRun,
    Schedules,
)
from warrenmq.management.jobs.kinds import BadArguments
from warrenmq.management.jobs.records import INTERRUPTED, RUNNING, locked
from warrenmq.management.jobs.runs import Busy, Runs
from warrenmq.management.jobs.times import due_time
from warrenmq.management.sessions import NodePlace

_log: Final = logging.getLogger("warren.management")

_TICK_S: Final = 1.0
# For so long (s) the end of the process waits for a run that is being started.
_PATIENCE_S: Final = 1.0


class Scheduler:
    """Starts the runs that are due at the node at `place`, until `end`."""

    def __init__(self, runs: Runs, place: NodePlace) -> None:
        self._runs = runs
        self._place = place
        # None while there is no session.
        self._client: AdminClient | None = None
        self._is_told = False
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Start no run any more; returns when none is being started."""
        self._ends.set()
        self._thread.join(_PATIENCE_S)

    def _run(self) -> None:
        while not self._ends.wait(_TICK_S):
            # The management process of a node that was killed may still be at its end.
            with locked(self._runs.directory) as lock:
                while lock is not None and not self._ends.wait(_TICK_S):
                    self._tick()
        self._close()

    def _tick(self) -> None:
        try:
            self._runs.tick()
            self._start_due()
            self._is_told = False
        except (AdminRefusedError, NodeUnreachableError):
            self._close()
        except Exception:  # A bug costs a tick, and not the thread.
            self._close()
            if not self._is_told:
                self._is_told = True
                _log.exception("internal error: schedules of jobs")

    def _close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _start_due(self) -> None:
        if self._client is None:
            self._client = AdminClient(self._place.admin(), "schedules")
        known = self._client.request(ListSchedules(), Schedules)
        for listed in known.schedules:
            schedule = msgspec.json.decode(listed.value, type=Schedule)
            last = msgspec.json.decode(listed.run, type=ScheduleRun) if listed.run else None
            if last is not None and last.state == RUNNING:
                if last.node == known.node:
                    self._note_end(self._client, listed, last)
                if last.node in known.running:
                    continue
            if schedule.enabled and known.node == runner_of(schedule, known.running):
                due = due_time(schedule, last.due if last else 0, int(time.time()))
                if due:
                    self._start(self._client, listed, schedule, due, known.node)

    def _note_end(self, client: AdminClient, listed: ListedSchedule, last: ScheduleRun) -> None:
        """Note how the last run, which was this node's, has ended, unless it is under way."""
        run = self._runs.find(last.run)
        if run is None or run.state != RUNNING:
            state = INTERRUPTED if run is None else run.state
            _note(client, listed, msgspec.structs.replace(last, state=state))

    def _start(
        self, client: AdminClient, listed: ListedSchedule, schedule: Schedule, due: int, node: str
    ) -> None:
        what = (schedule.job, listed.vhost, schedule.user, schedule.arguments, listed.name, due)
        # The run is there already if the node went away before it could be noted.
        run = self._runs.find_due(listed.vhost, listed.name, due)
        try:
            run = run or self._runs.start(*what)
        except Busy:
            return
        except (BadArguments, AdminRefusedError, OSError) as error:
            run = self._runs.refuse(*what, str(error))
        _note(client, listed, ScheduleRun(due=due, node=node, run=run.name, state=run.state))


def runner_of(schedule: Schedule, running: list[str]) -> str:
    """The node that runs a schedule, given the names of those that run; "" for none."""
    if schedule.node:
        return schedule.node if schedule.node in running else ""
    return min(running, default="")


def _note(client: AdminClient, listed: ListedSchedule, run: ScheduleRun) -> None:
    request = NoteRun(vhost=listed.vhost, name=listed.name, run=msgspec.json.encode(run).decode())
    client.request(request, Done)
