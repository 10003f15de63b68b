"""A broker as users run it: `warren server` in a process, on a loopback port that it keeps.

The process runs the same build as the tests: it gets the same interpreter and the same PYTHONPATH.
"""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from bench.ports import held_port

READY = "warren is ready: amqp="
# Longer than a start takes on a loaded machine; the time limit of a test is not much longer.
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 90.0


class BrokerProcess:
    """One node, whose data survive `stop` and `kill`; `settings` are KEY=VALUE of `--set`.

    `wrapper` is a command put before the node's own, which it replaces itself by, as `prlimit`
    does.
    """

    def __init__(self, directory: Path, *settings: str) -> None:
        self.directory = directory
        self.settings = settings
        self.wrapper: tuple[str, ...] = ()
        # Where the node's HTTP API listens, or off.
        self.management = "off"
        # Where its metrics are without a login, or off.
        self.metrics = "off"
        self.start_timeout_s = START_TIMEOUT_S
        self.stop_timeout_s = STOP_TIMEOUT_S
        self.host = "127.0.0.1"
        # The port stays taken while the node is down, so that clients find the next start there.
        self.port = held_port(self, self.host)
        self.process: subprocess.Popen[str] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def uri(self) -> str:
        return f"amqp://guest:guest@{self.host}:{self.port}/%2F"

    def errors(self) -> list[str]:
        """Error lines of the log, except those about connections, which a stop logs too."""
        lines = self.log_path.read_text().splitlines()
        return [line for line in lines if "[ERROR]" in line and "warren.connection:" not in line]

    @property
    def log_path(self) -> Path:
        return self.directory / "broker.log"

    def refused(self) -> int:
        """Start a node that must refuse to run; returns its exit status."""
        self._launch()
        assert self.process is not None
        try:
            return self.process.wait(self.start_timeout_s)
        finally:
            self.kill()

    def start(self) -> None:
        """Start the node; returns when it accepts clients."""
        self._launch()
        assert self.process is not None
        # A node that neither becomes ready nor ends must not hang the tests.
        watchdog = threading.Timer(self.start_timeout_s, self.process.kill)
        watchdog.start()
        try:
            assert self.process.stdout is not None
            line = self.process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line.startswith(READY):
            self.kill()
            raise RuntimeError(
                f"the broker did not start: {line!r} {self.log_path.read_text()[-4000:]}"
            )
        assert int(line.removeprefix(READY).split()[0].rpartition(":")[2]) == self.port, line

    def _launch(self) -> None:
        command = [*self.wrapper, sys.executable, "-m", "warrenmq", "server"]
        command += ["--data-dir", str(self.directory / "data")]
        command += ["--listen", f"{self.host}:{self.port}", "--management", self.management]
        command += ["--set", f"prometheus.listen={self.metrics}"]
        for setting in self.settings:
            command += ["--set", setting]
        environment = dict(os.environ)
        paths = [
            os.path.abspath(path)
            for path in environment.get("PYTHONPATH", "").split(os.pathsep)
            if path
        ]
        if paths:
            environment["PYTHONPATH"] = os.pathsep.join(paths)
        with self.log_path.open("a") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.directory,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def stop(self) -> int:
        """Send SIGTERM and wait; returns the exit status."""
        self.begin_stop()
        assert self.process is not None
        try:
            return self.process.wait(self.stop_timeout_s)
        finally:
            self.kill()

    def begin_stop(self) -> None:
        """Send SIGTERM without waiting."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL; does nothing when the node does not run."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            if self.process.stdout is not None:
                self.process.stdout.close()
            self.process = None
