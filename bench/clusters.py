"""Clusters on the loopback, of three nodes unless told otherwise: warren with an etcd, RabbitMQ."""

import contextlib
import io
import json
import os
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from bench.brokers import Broker, BrokerError, RabbitmqBroker, WarrenBroker
from bench.ports import await_port, held_port
from warrenmq.cli.control import main as warrenctl

NODES = 3
NAME = "bench"


class BenchCluster(ABC):
    """A few nodes; `nodes` are started in order and know each other then."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.nodes: list[Broker] = []

    @abstractmethod
    def start(self) -> None:
        """Start all nodes; returns when they are one cluster."""

    @abstractmethod
    def restart(self, node: Broker) -> None:
        """Start a node that was killed; returns when it serves AMQP."""

    @abstractmethod
    def control(self, node: Broker, *arguments: str) -> str:
        """Run a command of rabbitmqctl on `node`; returns its output. Raises BrokerError."""

    @abstractmethod
    def name_of(self, node: Broker) -> str:
        """The name of a node, as listings show it."""

    def table(self, node: Broker, *arguments: str) -> list[list[str]]:
        """The rows of a listing."""
        return [row.split("\t") for row in self.control(node, "-s", *arguments).splitlines()]

    def stop(self) -> None:
        """Kill all nodes."""
        for node in reversed(self.nodes):
            node.kill()
            node.stop()


class EtcdProcess:
    """One member of etcd, for as long as a benchmark runs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._client_port = held_port(self)
        self._peer_port = held_port(self)
        self.url = f"http://127.0.0.1:{self._client_port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, and return when it listens."""
        peer = f"http://127.0.0.1:{self._peer_port}"
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            with (self._directory / "log").open("ab") as log:
                self._process = subprocess.Popen(
                    [
                        "etcd", "--name", "m0", "--data-dir", str(self._directory / "data"),
                        "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
                        "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                        "--initial-cluster", f"m0={peer}",
                    ],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                )  # fmt: skip
        except FileNotFoundError:
            raise BrokerError("etcd is not installed") from None
        await_port(self._client_port)

    def stop(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class WarrenCluster(BenchCluster):
    """`count` nodes of warren; `settings` are those of the first."""

    def __init__(
        self,
        directory: Path,
        settings: tuple[str, ...] = (),
        port: int | None = None,
        count: int = NODES,
    ) -> None:
        super().__init__(directory)
        self.etcd = EtcdProcess(directory / "etcd")
        self._link_ports: list[int] = []
        for number in range(count):
            link_port = held_port(self)
            self._link_ports.append(link_port)
            own = (
                f"node_name=n{number}@127.0.0.1",
                f"cluster.name={NAME}",
                f"cluster.etcd={self.etcd.url}",
                f"cluster.listen=127.0.0.1:{link_port}",
            )
            is_first = number == 0
            self.nodes.append(
                WarrenBroker(
                    directory / f"n{number}",
                    set(),
                    own + settings if is_first else own,
                    port if is_first else None,
                )
            )

    def start(self) -> None:
        self.etcd.start()
        for node in self.nodes:
            node.start()

    def restart(self, node: Broker) -> None:
        node.start()

    def name_of(self, node: Broker) -> str:
        return f"n{self.nodes.index(node)}@127.0.0.1"

    def mirror_status(self, node: Broker, queue: str) -> dict[str, Any]:
        """What `mirror_status` tells of a queue."""
        found: dict[str, Any] = json.loads(
            self.control(node, "mirror_status", queue, "--formatter", "json")
        )
        return found

    def control(self, node: Broker, *arguments: str) -> str:
        out, err = io.StringIO(), io.StringIO()
        data = str(node.directory / "data")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = warrenctl(["--data-dir", data, "-q", *arguments])
        if code:
            raise BrokerError(f"warrenctl {' '.join(arguments)}: {err.getvalue().strip()}")
        return out.getvalue()

    def stop(self) -> None:
        super().stop()
        self.etcd.stop()


class _RabbitmqMember(RabbitmqBroker):
    """A node that uses the epmd and the cookie of the first one."""

    def share(self, first: RabbitmqBroker) -> None:
        """Take over what the nodes of a cluster have in common."""
        self.epmd_port = first.epmd_port
        cookie = self.directory / "home" / ".erlang.cookie"
        cookie.chmod(0o600)
        cookie.write_bytes((first.directory / "home" / ".erlang.cookie").read_bytes())
        cookie.chmod(0o400)

    def start_beside(self, first: RabbitmqBroker) -> None:
        """Start the node, and join the cluster of `first`."""
        self.start_again(first)
        self.control("stop_app")
        self.control("join_cluster", first.node_name())
        self.control("start_app")

    def start_again(self, first: RabbitmqBroker) -> None:
        """Start the node, which is a member already or alone."""
        self.epmd = first.epmd
        self.start()
        # The first node ends the daemon.
        self.epmd = None


class RabbitmqCluster(BenchCluster):
    """`count` nodes of RabbitMQ."""

    def __init__(self, directory: Path, count: int = NODES) -> None:
        super().__init__(directory)
        self._first = RabbitmqBroker(directory / "n0", set())
        self._others = [
            _RabbitmqMember(directory / f"n{number}", set()) for number in range(1, count)
        ]
        for other in self._others:
            other.share(self._first)
        self.nodes = [self._first, *self._others]

    def start(self) -> None:
        self._first.start()
        for other in self._others:
            other.start_beside(self._first)

    def restart(self, node: Broker) -> None:
        if isinstance(node, _RabbitmqMember):
            node.start_again(self._first)
        else:
            node.start()

    def name_of(self, node: Broker) -> str:
        assert isinstance(node, RabbitmqBroker)
        return node.node_name()

    def control(self, node: Broker, *arguments: str) -> str:
        assert isinstance(node, RabbitmqBroker)
        done = node.run_tool("rabbitmqctl", "-q", *arguments)
        if done.returncode:
            raise BrokerError(f"rabbitmqctl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout


def is_etcd_installed() -> bool:
    """Whether there is an etcd on PATH."""
    return any(
        os.access(Path(directory) / "etcd", os.X_OK)
        for directory in os.environ.get("PATH", os.defpath).split(os.pathsep)
    )
