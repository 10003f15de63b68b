"""Runs one job and keeps its record: a process of its own, which outlives the management process.

`python -m warrenmq.management.jobs.runner DIRECTORY LOCK`, with an Order as a line of standard
input. LOCK is the inherited descriptor of the lock on the run's directory; the job inherits it in
turn. Signals are for the job, which the management process sends them to: this process ends when
the job has ended.
"""

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import IO, Any, Final

import msgspec
from msgspec import Struct

from warrenmq.management.jobs.records import (
    DONE,
    ENDING,
    FAILED,
    INTERRUPTED,
    LOG,
    PROBLEMS,
    Run,
    now_ms,
    read_run,
    write_atomically,
    write_run,
)

# The files of a run are replaced so often at most (s).
_WRITE_S: Final = 1.0
_READ_BYTES: Final = 65_536
# The end of the log that is kept, and the longest line of it and text of a result (bytes).
LOG_BYTES_MAX: Final = 65_536
_LINE_MAX: Final = 2_000
# A longer result is not read (bytes).
_RESULT_BYTES_MAX: Final = 16 << 20
# The fields of a line of progress.
_STEP: Final = frozenset({"name", "done", "total", "unit", "note"})


class Order(Struct):
    """What to run: the words of the command, variables of its environment, what to remove then."""

    words: list[str]
    environment: dict[str, str]
    scratch: str


class JobLog:
    """The end of what a job has said, and how far it is."""

    def __init__(self) -> None:
        self.progress: dict[str, Any] = {}
        self.last_line = ""
        self._lines: deque[str] = deque()
        self._size = 0

    def take(self, line: str) -> None:
        """Take a line of the job's standard error."""
        found = _object_of(line)
        if found is not None and found.keys() == _STEP:
            is_new = found["name"] != self.progress.get("name")
            self.progress = found
            if is_new:
                self._add(str(found["name"]))
            return
        text = line if found is None else str(found.get("notice", line))
        self.last_line = text[:_LINE_MAX]
        self._add(text)

    def _add(self, text: str) -> None:
        line = f"{time.strftime('%H:%M:%S', time.gmtime())} {text[:_LINE_MAX]}"
        self._lines.append(line)
        self._size += len(line.encode()) + 1
        while self._size > LOG_BYTES_MAX:
            self._size -= len(self._lines.popleft().encode()) + 1

    def encoded(self) -> bytes:
        """The lines as a file has them."""
        return "".join([f"{line}\n" for line in self._lines]).encode()


def _object_of(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _short(result: dict[str, Any]) -> dict[str, Any]:
    """The figures and texts of a result; lists of files and the like stay out of the record."""
    return {
        name: value[:_LINE_MAX] if isinstance(value, str) else value
        for name, value in result.items()
        if isinstance(value, str | int | float)
    }


class Runner:
    """Runs the job of the run in `directory`."""

    def __init__(self, directory: Path, run: Run) -> None:
        self._directory = directory
        self._run = run
        self._log = JobLog()
        self._result = bytearray()
        self._rest = b""
        self._written_s = 0.0
        self._is_written = True

    def run(self, order: Order, lock: int) -> None:
        """Run the job to its end, and write how it has ended. Raises OSError."""
        job = subprocess.Popen(
            [sys.executable, "-m", "warrenmq", "pipeline", *order.words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **order.environment},
            pass_fds=[lock],
            process_group=0,
        )
        self._run.group = job.pid
        self._write()
        self._follow(job)
        status = job.wait()
        self._run.exit_code = status
        self._run.ended = now_ms()
        self._run.result = _short(_object_of(self._result.decode(errors="replace")) or {})
        self._run.state = self._outcome(status)
        if self._run.state not in (DONE, PROBLEMS):
            self._run.reason = self._log.last_line.removeprefix("warren: ")
        self._write()

    def _follow(self, job: subprocess.Popen[bytes]) -> None:
        """Take what the job says until it has ended; others may hold its pipes for longer."""
        with selectors.DefaultSelector() as selector:
            assert job.stdout is not None and job.stderr is not None
            selector.register(job.stdout, selectors.EVENT_READ, self._take_result)
            selector.register(job.stderr, selectors.EVENT_READ, self._take_lines)
            while selector.get_map():
                ready = selector.select(_WRITE_S)
                if not ready and job.poll() is not None:
                    return
                for key, _ in ready:
                    file: IO[bytes] = key.fileobj  # type: ignore[assignment]  # one of the pipes
                    data = os.read(file.fileno(), _READ_BYTES)
                    if data:
                        key.data(data)
                    else:
                        selector.unregister(file)
                if not self._is_written and time.monotonic() - self._written_s >= _WRITE_S:
                    self._write()

    def _take_result(self, data: bytes) -> None:
        if len(self._result) < _RESULT_BYTES_MAX:
            self._result += data

    def _take_lines(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.strip():
                self._log.take(line.decode(errors="replace").rstrip())
        self._rest = self._rest[-_READ_BYTES:]
        self._is_written = False

    def _write(self) -> None:
        self._run.progress = self._log.progress
        write_atomically(self._directory / LOG, self._log.encoded())
        write_run(self._directory, self._run)
        self._written_s = time.monotonic()
        self._is_written = True

    def _outcome(self, status: int) -> str:
        ending = self._directory / ENDING
        if ending.exists():
            return ending.read_text()
        if status < 0:
            return INTERRUPTED
        # A job that has printed no result has ended by a fault, whatever its status.
        return {0: DONE, 1: PROBLEMS}.get(status, FAILED) if self._result else FAILED


def _stay(_number: int, _frame: object) -> None:
    """Take a signal that is meant for the job, and go on."""


def main(directory: Path, lock: int) -> None:
    """Run the job of the run in `directory`. Raises OSError."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for number in (signal.SIGINT, signal.SIGTERM):
        # A program that is started inherits what is ignored, but not a handler: the job must obey
        # these signals from its first moment.
        signal.signal(number, _stay)
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    run = read_run(directory)
    assert run is not None
    try:
        Runner(directory, run).run(order, lock)
    finally:
        shutil.rmtree(order.scratch, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
