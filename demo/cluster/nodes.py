"""The processes of a small cluster, each in its place in a network: one etcd and some nodes."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from demo.checks import DemoError
from demo.cluster.networks import Network
from demo.processes import Processes, has_ended

CLUSTER = "demo"
# The parties beside the nodes, and what listens.
ETCD = "etcd"
CLIENTS = "clients"
AMQP = "amqp"
LINKS = "links"
PEERS = "peers"
READY = "warren is ready: amqp="
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
_WARRENCTL = ("-c", "from warrenmq.cli.control import script; script()")


class Etcd:
    """An etcd with one member."""

    def __init__(self, processes: Processes, network: Network) -> None:
        self._processes = processes
        self._network = network
        network.add(ETCD)

    def start(self) -> None:
        """Start etcd, and return when it serves. Raises DemoError."""
        network = self._network
        url = f"http://{network.listen(ETCD, ETCD)}"
        peers = f"http://{network.listen(ETCD, PEERS)}"
        process = self._processes.run(
            ETCD,
            [
                *network.prefix(ETCD),
                "etcd", "--name", "m0", "--data-dir", str(self._processes.directory / ETCD),
                "--listen-client-urls", url, "--advertise-client-urls", url,
                "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
                "--initial-cluster", f"m0={peers}", "--logger", "zap",
            ],
        )  # fmt: skip
        network.follow(ETCD, process.pid)
        log = self._processes.directory / f"{ETCD}.log"
        deadline = time.monotonic() + START_TIMEOUT_S
        while "serving client traffic" not in log.read_text(errors="replace"):
            if has_ended(process) or time.monotonic() > deadline:
                raise DemoError("etcd did not start")
            time.sleep(0.02)


class Node:
    """One node of the cluster; started again, it has its data and its ports."""

    def __init__(self, processes: Processes, network: Network, name: str) -> None:
        self.name = name
        self._full_name = f"{name}@{CLUSTER}"
        self.directory = processes.directory / name
        self._processes = processes
        self._network = network
        self._process: subprocess.Popen[str] | None = None
        network.add(name)

    @property
    def uri(self) -> str:
        """The AMQP address (URI) of the node."""
        address = self._network.reach(CLIENTS, self.name, AMQP)
        return f"amqp://guest:guest@{address}/%2F"

    def launch(self) -> None:
        """Start the node; `await_ready` waits for it."""
        network, name = self._network, self.name
        process = self._processes.run(
            name,
            [
                *network.prefix(name),
                sys.executable, "-m", "warrenmq", "server", "--data-dir", str(self.directory),
                "--node", self._full_name, "--listen", network.listen(name, AMQP),
                "--cluster", CLUSTER, "--etcd", f"http://{network.reach(name, ETCD, ETCD)}",
                "--cluster-listen", network.listen(name, LINKS), "--management", "off",
                "--set", f"cluster.advertise={network.reach('', name, LINKS)}",
                "--set", "loopback_users.guest=false",
            ],
        )  # fmt: skip
        self._process = process
        network.follow(name, process.pid)

    def await_ready(self) -> None:
        """Return when the node accepts clients. Raises DemoError."""
        process = self._running()
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
        self._network.open(self.name)

    def start(self) -> float:
        """Start the node; the seconds until it accepts clients. Raises DemoError."""
        started = time.monotonic()
        self.launch()
        self.await_ready()
        return time.monotonic() - started

    def kill(self) -> int:
        """SIGKILL the node; its exit status, a signal as a negative number."""
        process = self._running()
        os.kill(process.pid, signal.SIGKILL)
        self._processes.kill(process)
        return self._ended(process)

    def stop(self) -> int:
        """Stop the node in good order; its exit status. Raises DemoError."""
        process = self._running()
        os.kill(process.pid, signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise DemoError(f"node {self.name} did not stop") from None
        self._processes.kill(process)
        return self._ended(process)

    def _ended(self, process: subprocess.Popen[str]) -> int:
        self._process = None
        self._network.follow(self.name, None)
        return process.returncode

    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    # -- warrenctl ---------------------------------------------------------------------------------

    def ctl(self, *arguments: str) -> str:
        """What `warrenctl` prints on the node. Raises DemoError."""
        command = [*self._network.prefix(self.name), sys.executable, *_WARRENCTL]
        process = self._processes.run(
            "warrenctl", [*command, "--data-dir", str(self.directory), "-q", *arguments]
        )
        printed, _ = process.communicate()
        self._processes.kill(process)
        if process.returncode:
            raise DemoError(f"warrenctl {' '.join(arguments)} ended with {process.returncode}")
        return printed


class Watch:
    """A process that asks nodes about the copies of a queue, in the place of the clients."""

    def __init__(self, processes: Processes, network: Network) -> None:
        prefix = network.prefix(CLIENTS)
        command = [*prefix, sys.executable, "-m", "demo.cluster.watch"]
        self._process = processes.run("watch", command, has_input=True)

    def status(self, node: Node, queue: str) -> dict[str, Any] | None:
        """What `warrenctl mirror_status` says on the node; None while it cannot say."""
        questions, answers = self._process.stdin, self._process.stdout
        assert questions is not None and answers is not None
        questions.write(f"{node.uri} {queue}\n")
        questions.flush()
        line = answers.readline()
        if not line:
            raise DemoError("the watch has ended")
        found: dict[str, Any] | None = json.loads(line)
        return found
