"""The management process that a node runs beside itself.

A thread of its own starts it and waits for its end, so that the node's loop never does. A process
that ends, whatever the reason, is started again after a pause; the node serves on without it. So is
one that hangs: its event loop writes an empty line each second, and without them it is killed.
"""

import logging
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Final

from warrenmq.server.config.options.http_listeners import SiteOptions

logger = logging.getLogger("warren.management")

_NEEDS: Final = ("fastapi", "uvicorn")
# Pauses before a new start (s): the first, and the longest. A process that has run for longer than
# the longest pause is started again after the first.
_PAUSE_S: Final = 1.0
_PAUSE_MAX_S: Final = 60.0
# Time for requests that are under way when the node stops (s).
_STOP_GRACE_S: Final = 2.0
# Longest silence of a process that runs, and of one that starts (s).
_SILENCE_S: Final = 15.0
_START_S: Final = 60.0
# Lines of warning begin so.
_WARNING: Final = "warning: "
_READ_BYTES: Final = 65536


class ManagementProcess:
    """The HTTP API of the node on `data_dir`; killed after `silence_s` without a sign of life."""

    def __init__(self, data_dir: Path, options: SiteOptions, silence_s: float = _SILENCE_S) -> None:
        self._data_dir = data_dir
        self._options = options.beside_node(data_dir)
        self._silence_s = silence_s
        self._is_installed = all([find_spec(name) is not None for name in _NEEDS])
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        # What was logged last: a process that fails in the same way again says nothing new.
        self._last_line = ""
        self._last_end = ""

    @property
    def where(self) -> str:
        """Where the API listens, as HOST:PORT with commas between them, or `off`."""
        listening = self._options.management.api_listeners() if self._is_installed else []
        return ",".join([each.where for each in listening]) or "off"

    def start(self) -> None:
        """Start the process, unless it is off or not installed."""
        if self._options.management.is_off:
            return
        if not self._is_installed:
            logger.info("there is no HTTP API: install it with pip install 'warrenmq[management]'")
            return
        self._thread = threading.Thread(target=self._keep_running, name="management", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the process; returns when it has ended."""
        self._stopping.set()
        process = self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(_STOP_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
        if self._thread is not None:
            self._thread.join()

    def _keep_running(self) -> None:
        pause_s = _PAUSE_S
        while not self._stopping.is_set():
            started_s = monotonic()
            try:
                self._run()
            except OSError as error:
                self._on_end(f"the HTTP API cannot start: {error.strerror}")
            except Exception:  # A bug costs a start, and not the thread.
                logger.exception("internal error: the HTTP API is started again")
            if monotonic() - started_s > _PAUSE_MAX_S:
                pause_s = _PAUSE_S
            self._stopping.wait(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    def _run(self) -> None:
        """Run the process once, and log what it says."""
        command = [sys.executable, "-m", "warrenmq", "management", "--supervised"]
        command += ["--data-dir", str(self._data_dir)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:
            self._process = process
            if self._stopping.is_set():
                process.terminate()
            assert process.stdin is not None
            process.stdin.write(self._options.to_line())
            process.stdin.flush()
            for line in self._lines(process):
                if line != self._last_line:
                    self._log(line)
                    self._last_line = line
        if not self._stopping.is_set():
            reason = f": {self._last_line}" if process.returncode > 0 else ""
            self._on_end(f"the HTTP API has ended with status {process.returncode}{reason}")

    def _lines(self, process: subprocess.Popen[bytes]) -> Iterator[str]:
        """The lines of the process, without the empty ones; kills it when it is silent."""
        assert process.stdout is not None
        output = process.stdout.fileno()
        poll = select.poll()
        poll.register(output, select.POLLIN)
        patience_s = _START_S
        rest = b""
        while True:
            if not poll.poll(patience_s * 1000):
                logger.warning("the HTTP API does not answer, and is killed")
                process.kill()
                return
            data = os.read(output, _READ_BYTES)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            if b"" in lines:
                patience_s = self._silence_s
            yield from [line.decode(errors="replace") for line in lines if line]

    def _log(self, line: str) -> None:
        level = logging.WARNING if line.startswith(_WARNING) else logging.INFO
        logger.log(level, "%s", line.removeprefix(_WARNING))

    def _on_end(self, text: str) -> None:
        if text != self._last_end:
            logger.warning("%s", text)
            self._last_end = text
