"""The processes of a small cluster on loopback: one etcd and some nodes."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

from demo.checks import DemoError
from demo.processes import Processes, has_ended

HOST = "127.0.0.1"
CLUSTER = "demo"
READY = "warren is ready: amqp="
START_TIMEOUT_S = 60.0


def free_port() -> int:
    """A port on which nobody listens at this moment."""
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class Etcd:
    """An etcd with one member."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self.url = f"http://{HOST}:{free_port()}"

    def start(self) -> None:
        """Start etcd, and return when it serves. Raises DemoError."""
        peers = f"http://{HOST}:{free_port()}"
        process = self._processes.run(
            "etcd",
            [
                "etcd", "--name", "m0", "--data-dir", str(self._processes.directory / "etcd"),
                "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
                "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
                "--initial-cluster", f"m0={peers}", "--auto-compaction-retention", "1h",
            ],
        )  # fmt: skip
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and not has_ended(process):
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=1) as reply:
                    if b'"true"' in reply.read():
                        return
            except OSError:
                time.sleep(0.05)
        raise DemoError("etcd did not start")


class Node:
    """One node of the cluster; started again, it has its data and its ports."""

    def __init__(self, processes: Processes, name: str, etcd: Etcd) -> None:
        self.name = f"{name}@{HOST}"
        self.port = free_port()
        self._processes = processes
        self._directory = processes.directory / name
        self._cluster_port = free_port()
        self._etcd = etcd
        self._process: subprocess.Popen[str] | None = None

    @property
    def uri(self) -> str:
        """The URI of the node."""
        return f"amqp://guest:guest@{HOST}:{self.port}/%2F"

    def start(self) -> float:
        """Start the node; the seconds until it accepts clients. Raises DemoError."""
        started = time.monotonic()
        process = self._processes.run(
            self.name,
            [
                sys.executable, "-m", "warrenmq", "server", "--data-dir", str(self._directory),
                "--node", self.name, "--listen", f"{HOST}:{self.port}",
                "--cluster", CLUSTER, "--etcd", self._etcd.url,
                "--cluster-listen", f"{HOST}:{self._cluster_port}", "--management", "off",
                "--set", "queue_master_locator=min-masters",
            ],
        )  # fmt: skip
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
            raise DemoError(f"node {self.name} did not start")
        return time.monotonic() - started

    def kill(self) -> int:
        """SIGKILL the node; its exit status, a signal as a negative number."""
        assert self._process is not None
        process, self._process = self._process, None
        os.kill(process.pid, signal.SIGKILL)
        self._processes.kill(process)
        return process.returncode
