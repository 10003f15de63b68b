"""Starts and kills the demo's processes, each with all its descendants.

Each process leads a session of its own. So a Ctrl-C of the terminal reaches only the demo, and
`kill` finds all descendants by their session (Spark has a JVM, and Python workers in process groups
of their own). Only `kill` reaps a process, after all descendants have ended. Error output goes to
log files in the demo's directory; all temporary files are there too.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from demo.checks import DemoError
from warrenmq.spark.local.class_archive import SWITCH as CLASS_ARCHIVE

KILL_TIMEOUT_S = 10.0
LAST_LINES = 15
REPOSITORY = Path(__file__).resolve().parent.parent


class Processes:
    """Starts Python programs whose working, log and temporary directory is `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._running: list[subprocess.Popen[str]] = []
        self._newest_log: Path | None = None

    def start(
        self, module: str, *arguments: str, variables: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start `python -m module arguments` with a pipe from its standard output."""
        return self.run(module, [sys.executable, "-m", module, *arguments], variables)

    def run(
        self,
        name: str,
        command: Sequence[str],
        variables: dict[str, str] | None = None,
        has_input: bool = False,
    ) -> subprocess.Popen[str]:
        """Start `command` with a pipe from its standard output; the log is called `name`.

        has_input: with a pipe to its standard input too.
        """
        self._newest_log = self.directory / f"{name}.log"
        with self._newest_log.open("a") as log:
            process = subprocess.Popen(
                command,
                cwd=self.directory,
                env=self._environment() | (variables or {}),
                stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._running.append(process)
        return process

    def kill(self, process: subprocess.Popen[str]) -> None:
        """SIGKILL the process and all its descendants; return when all have ended."""
        # An interrupted kill may have reaped the process: its id may belong to another one then.
        if process.returncode is None:
            _kill_session(process)
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        self._running.remove(process)

    def kill_all(self) -> None:
        """Kill every process that still runs."""
        for process in list(self._running):
            with suppress(DemoError):
                self.kill(process)

    def last_words(self) -> list[str]:
        """The last lines of the newest log, for the error message: the file itself is deleted."""
        if self._newest_log is None or not self._newest_log.exists():
            return []
        lines = self._newest_log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        return [f"from {self._newest_log.name}:", *lines] if lines else []

    def _environment(self) -> dict[str, str]:
        # WARREN_* variables may configure another broker; they must not reach this one. That about
        # Spark's classes is of no broker.
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("WARREN_") or name == CLASS_ARCHIVE
        }
        paths = [
            os.path.abspath(path)
            for path in environment.get("PYTHONPATH", "").split(os.pathsep)
            if path
        ]
        environment["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), *paths])
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        environment["TMPDIR"] = str(self.directory)
        return environment


def has_ended(process: subprocess.Popen[str]) -> bool:
    """Whether the process has exited; leaves it unreaped.

    The system cannot reuse the id of an unreaped process, which is its session's id too.
    """
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _kill_session(leader: subprocess.Popen[str]) -> None:
    # Kill the leader at once, because the search for the others takes time.
    os.kill(leader.pid, signal.SIGKILL)
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while True:
        members = _session_members(leader.pid)
        if members == [leader.pid] and has_ended(leader):
            return
        if time.monotonic() > deadline:
            raise DemoError(f"processes {members} survive SIGKILL")
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _session_members(leader: int) -> list[int]:
    """Ids of the session's living processes, and of its leader even when that has ended."""
    members = []
    for pid in psutil.pids():
        with suppress(ProcessLookupError, PermissionError, psutil.Error):
            if os.getsid(pid) == leader and (
                pid == leader or psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
            ):
                members.append(pid)
    return members
