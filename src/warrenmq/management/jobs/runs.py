"""The runs of jobs of a node: start, look at, stop; a bounded number of them and of their records.

The runs are processes that outlive the management process: the next one finds them by their
records. They end with the node, in whose name they run. A run that has died leaves a record that
says `running` and a lock that nobody holds, and is recorded as interrupted.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from warrenmq.admin.client.client import URI_VARIABLE, AdminClient
from warrenmq.admin.protocol.control import Ticket
from warrenmq.admin.protocol.schedules import IssueJobTicket
from warrenmq.management.jobs.kinds import BadArguments, kind_of, output_of_run, words
from warrenmq.management.jobs.places import JobsDirectory
from warrenmq.management.jobs.records import (
    DONE,
    ENDING,
    FAILED,
    INTERRUPTED,
    LOG,
    PROBLEMS,
    RUNNING,
    STOPPED,
    Run,
    all_runs,
    find_run,
    locked,
    now_ms,
    write_run,
)
from warrenmq.management.jobs.runner import Order
from warrenmq.management.sessions import NodePlace

# Runs at the same time, and records of runs that have ended.
RUNNING_MAX: Final = 4
KEPT_MAX: Final = 100
# What a job that is to end gets, and when (s): it ends by itself, it is told again, it is killed.
_SIGNALS: Final = ((0.0, signal.SIGINT), (30.0, signal.SIGTERM), (45.0, signal.SIGKILL))

# The parser's one line about the words of a command; "" if it takes them.
CheckWords = Callable[[list[str]], str]


class Busy(Exception):
    """No more runs now; the text says why."""


class Runs:
    """The runs of the node at `place`, with records in `directory` and files in `places`."""

    def __init__(
        self, directory: Path, places: JobsDirectory, place: NodePlace, check_words: CheckWords
    ) -> None:
        self.places = places
        self.directory = directory
        self._place = place
        self._check_words = check_words
        self._starting = threading.Lock()
        self._runners: list[subprocess.Popen[bytes]] = []
        # Runs that are to end: since when (monotonic time in s), and how many signals they got.
        self._ending: dict[str, tuple[float, int]] = {}
        directory.mkdir(exist_ok=True)

    # -- reading -----------------------------------------------------------------------------------

    def all(self) -> list[Run]:
        """All runs, the last one first."""
        return all_runs(self.directory)

    def find(self, name: str) -> Run | None:
        """The run called so."""
        return find_run(self.directory, name)

    def find_due(self, vhost: str, schedule: str, due: int) -> Run | None:
        """The run of a schedule for that time."""
        wanted = (vhost, schedule, due)
        return next(
            (run for run in self.all() if (run.vhost, run.schedule, run.due) == wanted), None
        )

    def log(self, name: str) -> list[str]:
        """The last lines that a run has logged."""
        try:
            return (self.directory / name / LOG).read_text().splitlines()
        except OSError:
            return []

    def report(self, run: Run) -> Path | None:
        """The page that the run has written, if its job writes one."""
        field = kind_of(run.job).report
        if not field or run.state not in (DONE, PROBLEMS):
            return None
        path = self.places.source(output_of_run(str(run.arguments[field]), run.name))
        return path if path.is_file() else None

    # -- starting ----------------------------------------------------------------------------------

    def check(self, job: str, vhost: str, arguments: dict[str, Any]) -> None:
        """Raise BadArguments unless the command takes the arguments of the job."""
        self._words(job, vhost, arguments, "check")

    def _words(self, job: str, vhost: str, arguments: dict[str, Any], name: str) -> list[str]:
        found = words(kind_of(job), vhost, arguments, self.places, name)
        refusal = self._check_words(found)
        if refusal:
            raise BadArguments(refusal)
        return [found[0], "--json", "--progress=json", *found[1:]]

    def start(
        self,
        job: str,
        vhost: str,
        user: str,
        arguments: dict[str, Any],
        schedule: str = "",
        due: int = 0,
    ) -> Run:
        """Start a job in the name of `user`.

        Raises BadArguments, Busy, OSError, AdminRefusedError and NodeUnreachableError.
        """
        run = self._new(job, vhost, user, arguments, schedule, due)
        directory = self.directory / run.name
        with self._starting:
            found = self._words(job, vhost, arguments, run.name)
            if len([each for each in self.all() if each.state == RUNNING]) >= RUNNING_MAX:
                raise Busy(f"{RUNNING_MAX} jobs run already")
            order = self._order(found, run)
            directory.mkdir()
            with locked(directory) as lock:
                assert lock is not None
                write_run(directory, run)
                self._launch(directory, order, lock)
        self._prune()
        return run

    def refuse(
        self, job: str, vhost: str, user: str, arguments: dict[str, Any], schedule: str, due: int,
        reason: str,
    ) -> Run:  # fmt: skip
        """Record that a run of a schedule could not start. Raises OSError."""
        run = self._new(job, vhost, user, arguments, schedule, due)
        run.state, run.ended, run.reason = FAILED, run.started, reason
        directory = self.directory / run.name
        directory.mkdir()
        write_run(directory, run)
        self._prune()
        return run

    @staticmethod
    def _new(
        job: str, vhost: str, user: str, arguments: dict[str, Any], schedule: str, due: int
    ) -> Run:
        name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
        return Run(
            name=name,
            job=job,
            vhost=vhost,
            user=user,
            arguments=arguments,
            started=now_ms(),
            schedule=schedule,
            due=due,
        )

    def _order(self, found: list[str], run: Run) -> Order:
        """The runner's order; the ticket that logs the job in is nowhere else."""
        address = self._place.admin()
        with AdminClient(address, "jobs") as client:
            ticket = client.request(IssueJobTicket(user=run.user), Ticket).ticket
        login = f"{quote(run.user, '')}:{quote(ticket, '')}"
        uri = f"amqp://{login}@{address.where}/{quote(run.vhost, '')}"
        scratch = self.places.scratch(run.name)
        scratch.mkdir(parents=True)
        return Order(found, {URI_VARIABLE: uri}, str(scratch))

    def _launch(self, directory: Path, order: Order, lock: int) -> None:
        runner = subprocess.Popen(
            [sys.executable, "-m", "warrenmq.management.jobs.runner", str(directory), str(lock)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[lock],
            start_new_session=True,
        )
        self._runners.append(runner)
        assert runner.stdin is not None
        # A runner that cannot start leaves a run that is interrupted.
        with suppress(OSError), runner.stdin:
            runner.stdin.write(msgspec.json.encode(order) + b"\n")

    def _prune(self) -> None:
        """Delete the oldest records of runs that have ended."""
        ended = [run for run in self.all() if run.state != RUNNING]
        for run in ended[KEPT_MAX:]:
            shutil.rmtree(self.directory / run.name, ignore_errors=True)

    # -- ending ------------------------------------------------------------------------------------

    def stop(self, run: Run) -> None:
        """Let a run end, which takes it some seconds. Raises OSError."""
        self._end(run, STOPPED)

    def end(self) -> None:
        """Let all runs end with the node."""
        for run in self.all():
            if run.state == RUNNING:
                self._end(run, INTERRUPTED)

    def _end(self, run: Run, state: str) -> None:
        ending = self.directory / run.name / ENDING
        if not ending.exists():
            ending.write_text(state)
            self._ending[run.name] = (time.monotonic(), 0)
            self._urge(run)

    def tick(self) -> None:
        """Urge runs that are to end, about once a second."""
        self._runners = [each for each in self._runners if each.poll() is None]
        for name in list(self._ending):
            run = self.find(name)
            if run is None or run.state != RUNNING:
                del self._ending[name]
            else:
                self._urge(run)

    def _urge(self, run: Run) -> None:
        since_s, count = self._ending[run.name]
        # A run has no process group before its runner has started the job.
        if run.group and count < len(_SIGNALS) and time.monotonic() - since_s >= _SIGNALS[count][0]:
            self._ending[run.name] = (since_s, count + 1)
            with suppress(ProcessLookupError):
                os.killpg(run.group, _SIGNALS[count][1])
