"""The management process that a node runs beside itself.

A thread of its own starts it and waits for its end, so that the node's loop never does. A process
that ends, whatever the reason, is started again after a pause; the node serves on without it.
"""

import logging
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Final

logger = logging.getLogger("warren.management")

_NEEDS: Final = ("fastapi", "uvicorn")
# Pauses before a new start (s): the first, and the longest. A process that has run for longer than
# the longest pause is started again after the first.
_PAUSE_S: Final = 1.0
_PAUSE_MAX_S: Final = 60.0
# Time for requests that are under way when the node stops (s).
_STOP_GRACE_S: Final = 2.0


class ManagementProcess:
    """The HTTP API of the node on `data_dir`, at the `address` (host, port); None for no API."""

    def __init__(self, data_dir: Path, address: tuple[str, int] | None) -> None:
        self._data_dir = data_dir
        self._is_installed = all([find_spec(name) is not None for name in _NEEDS])
        self._address = address
        self._stopping = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        # What was logged last: a process that fails in the same way again says nothing new.
        self._last_line = ""
        self._last_end = ""

    @property
    def where(self) -> str:
        """HOST:PORT of the API, or `off`, for the ready line."""
        if self._address is None or not self._is_installed:
            return "off"
        host, port = self._address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def start(self) -> None:
        """Start the process, unless it is off or not installed."""
        if self._address is None:
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
            if monotonic() - started_s > _PAUSE_MAX_S:
                pause_s = _PAUSE_S
            self._stopping.wait(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    def _run(self) -> None:
        """Run the process once, and log what it says."""
        command = [sys.executable, "-m", "warrenmq", "management", "--until-eof"]
        command += ["--data-dir", str(self._data_dir), "--listen", self.where]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            self._process = process
            if self._stopping.is_set():
                process.terminate()
            assert process.stdout is not None
            for line in process.stdout:
                if line != self._last_line:
                    logger.info("%s", line.rstrip())
                    self._last_line = line
        if not self._stopping.is_set():
            reason = f": {self._last_line.rstrip()}" if process.returncode > 0 else ""
            self._on_end(f"the HTTP API has ended with status {process.returncode}{reason}")

    def _on_end(self, text: str) -> None:
        if text != self._last_end:
            logger.warning("%s", text)
            self._last_end = text
