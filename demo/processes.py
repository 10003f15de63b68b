"""The processes that the demo starts, and their end.

Each is the leader of a session of its own, so a Ctrl-C of the terminal reaches only the demo, and everything a process
started in turn (Spark: a JVM, Python workers in process groups of their own) can be found by its session and killed.
A process is reaped only by `kill`, after that. Error output goes to log files in the demo's directory; all temporary
files are there too.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from demo.checks import DemoError

KILL_TIMEOUT_S = 10.0
LAST_LINES = 15
REPOSITORY = Path(__file__).resolve().parent.parent


class Processes:
    """Starts Python programs with `directory` as their world."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._running: list[subprocess.Popen[str]] = []
        self._newest_log: Path | None = None

    def start(
        self, module: str, *arguments: str, variables: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """`python -m module arguments`, with a pipe from its standard output."""
        self._newest_log = self.directory / f"{module}.log"
        with self._newest_log.open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=self.directory,
                env=self._environment() | (variables or {}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._running.append(process)
        return process

    def kill(self, process: subprocess.Popen[str]) -> None:
        """SIGKILL to the process and everything it started; returns when all are gone."""
        # A kill that was interrupted may have reaped it already: then its id is not its own any more.
        if process.returncode is None:
            _kill_session(process)
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._running.remove(process)

    def kill_all(self) -> None:
        """End whatever still runs."""
        for process in list(self._running):
            with suppress(DemoError):
                self.kill(process)

    def last_words(self) -> list[str]:
        """The end of the newest log, for the user who will not find it any more."""
        if self._newest_log is None or not self._newest_log.exists():
            return []
        lines = self._newest_log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        return [f"from {self._newest_log.name}:", *lines] if lines else []

    def _environment(self) -> dict[str, str]:
        # A configuration meant for another broker must not reach this one.
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("WARREN_")
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
    """Has it exited? Leaves it unreaped: so long its process id, which is its session's too, is nobody else's."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _kill_session(leader: subprocess.Popen[str]) -> None:
    # The leader at once: looking for the others takes its time.
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
    """The living processes of the session; its leader also when it has ended."""
    members = []
    for pid in psutil.pids():
        with suppress(ProcessLookupError, PermissionError, psutil.Error):
            if os.getsid(pid) == leader and (
                pid == leader or psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
            ):
                members.append(pid)
    return members
