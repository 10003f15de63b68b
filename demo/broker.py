"""The demo's broker: `warren server` on a free port of the loopback, its data in one directory."""

import base64
import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.request

import pika

from demo.checks import DemoError
from demo.processes import Processes, has_ended

READY = "warren is ready: amqp="
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
HOST = "127.0.0.1"
# The node's log, and the line in it that tells where the HTTP API is.
LOG = "warrenmq.log"
_API = re.compile(r"the HTTP API is ready: (\S+)")


class Broker:
    """One node; a start after `end` finds the data again, and takes another free port."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    @property
    def uri(self) -> str:
        """The URI of the node, for Spark."""
        return f"amqp://guest:guest@{HOST}:{self.port}/%2F"

    @property
    def parameters(self) -> pika.ConnectionParameters:
        """The connection parameters of the node, for pika."""
        return pika.ConnectionParameters(HOST, self.port, blocked_connection_timeout=30)

    def start(self) -> float:
        """Start the node; return the seconds until it accepts clients. DemoError when it fails."""
        started = time.monotonic()
        data_dir = str(self._processes.directory / "data")
        process = self._processes.start(
            "warrenmq",
            "server",
            "--data-dir",
            data_dir,
            "--listen",
            f"{HOST}:0",
            "--management",
            f"{HOST}:0",
            "--set",
            f"prometheus.listen={HOST}:0",
        )
        self._process = process
        # Kill a node that neither becomes ready nor ends, so that it cannot hang the demo.
        watchdog = threading.Timer(START_TIMEOUT_S, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line.startswith(READY):
            raise DemoError("the broker did not start")
        self.port = int(line.removeprefix(READY).split()[0].rpartition(":")[2])
        return time.monotonic() - started

    def ask_api(self) -> tuple[str, int]:
        """The address of the node's HTTP API, and how many queues it shows.

        DemoError when it does not answer in time.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        while (found := _API.search((self._processes.directory / LOG).read_text())) is None:
            if time.monotonic() > deadline:
                raise DemoError("the HTTP API did not start")
            time.sleep(0.05)
        login = base64.b64encode(b"guest:guest").decode()
        request = urllib.request.Request(
            f"{found[1]}queues", headers={"Authorization": f"Basic {login}"}
        )
        with urllib.request.urlopen(request, timeout=START_TIMEOUT_S) as reply:
            return found[1], len(json.load(reply))

    def kill(self) -> None:
        """Send SIGKILL to the node and return at once; `end` then returns its exit status."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)

    def end(self) -> int:
        """SIGKILL a node that still runs; return its exit status, a signal as a negative number."""
        assert self._process is not None
        process, self._process = self._process, None
        self._processes.kill(process)
        return process.returncode

    def stop(self) -> int:
        """Stop with SIGTERM, with SIGKILL after STOP_TIMEOUT_S; return the exit status."""
        assert self._process is not None
        process = self._process
        os.kill(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while not has_ended(process) and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.end()
