"""A cluster of real nodes on loopback, and `warrenctl` on any of them.

with ClusterNodes(directory, etcd.url, "n1", "n2") as cluster:
    cluster.nodes[0].table("list_queues", "name", "pid")
"""

import contextlib
import io
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import pika
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.brokers.process import BrokerProcess
from warrenmq.cli.control import main

HOST = "127.0.0.1"


class Printed(NamedTuple):
    """What a command printed, and its exit code."""

    out: str
    err: str
    code: int

    def rows(self) -> list[list[str]]:
        """The rows of a table without a header, sorted."""
        assert (self.err, self.code) == ("", 0), self
        return sorted(line.split("\t") for line in self.out.splitlines())


def warrenctl(data: Path, *arguments: str) -> Printed:
    """Run `warrenctl` on the node with the data directory `data`, without banners."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["--data-dir", str(data), "-q", *arguments])
    return Printed(out.getvalue(), err.getvalue(), code)


class ClusterNode(BrokerProcess):
    """A node `name` of a cluster; its port for other nodes is any."""

    def __init__(
        self, directory: Path, name: str, cluster: str, etcd_url: str, *settings: str
    ) -> None:
        self.name = f"{name}@{HOST}"
        super().__init__(
            directory,
            f"node_name={self.name}",
            f"cluster.name={cluster}",
            f"cluster.etcd={etcd_url}",
            f"cluster.listen={HOST}:0",
            *settings,
        )

    def ctl(self, *arguments: str) -> Printed:
        """Run `warrenctl` on the node, without banners."""
        return warrenctl(self.directory / "data", *arguments)

    def table(self, *arguments: str) -> list[list[str]]:
        """The rows of a listing, sorted."""
        return self.ctl("-s", *arguments).rows()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, such as SIGSTOP and SIGCONT."""
        assert self.process is not None
        self.process.send_signal(number)


class ClusterNodes:
    """Nodes of one cluster, which start at the same time; all are killed at the end."""

    def __init__(
        self,
        directory: Path,
        etcd_url: str,
        *names: str,
        cluster: str = "trio",
        settings: Sequence[str] = (),
    ) -> None:
        self.cluster = cluster
        self.nodes = [
            ClusterNode(directory / name, name, cluster, etcd_url, *settings) for name in names
        ]

    def __enter__(self) -> Self:
        try:
            with ThreadPoolExecutor(len(self.nodes)) as threads:
                list(threads.map(BrokerProcess.start, self.nodes))
            self.await_all()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def await_all(self) -> None:
        """Return when every node is linked with all others."""
        for node in self.nodes:
            assert node.ctl("await_online_nodes", str(len(self.nodes))).code == 0

    def kill(self) -> None:
        """Kill all nodes."""
        for node in self.nodes:
            node.kill()


@contextlib.contextmanager
def channels(nodes: Sequence[BrokerProcess]) -> Iterator[list[BlockingChannel]]:
    """A channel in confirm mode to each node."""
    connections = [pika.BlockingConnection(pika.URLParameters(node.uri)) for node in nodes]
    opened: list[BlockingChannel] = []
    for connection in connections:
        channel = connection.channel()
        channel.confirm_delivery()
        opened.append(channel)
    try:
        yield opened
    finally:
        for connection in connections:
            if connection.is_open:
                connection.close()
