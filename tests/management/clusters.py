"""Nodes of a cluster, each with its HTTP API, for all tests of a file."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.support.brokers.http_api import HttpNode
from tests.support.cluster.trio import ClusterNode, ClusterNodes


@dataclass
class Cluster:
    """Nodes, and the HTTP API of each."""

    nodes: list[ClusterNode]
    apis: list[HttpNode]

    @property
    def names(self) -> list[str]:
        """The full names of the nodes."""
        return [node.name for node in self.nodes]

    def clients(self) -> list[httpx.Client]:
        """A new client of each API."""
        return [api.client() for api in self.apis]


@contextmanager
def running_cluster(
    directory: Path, etcd_url: str, names: tuple[str, ...], cluster: str
) -> Iterator[Cluster]:
    """The nodes `names` of the cluster `cluster`, whose logs must have no traces at the end."""
    nodes = ClusterNodes(directory, etcd_url, *names, cluster=cluster)
    apis = [HttpNode(node.directory, node) for node in nodes.nodes]
    for node in nodes.nodes:
        node.settings = (*node.settings, "collect_statistics_interval=1000")
        node.metrics = "127.0.0.1:0"
    with nodes:
        for api in apis:
            api.await_start(0)
        yield Cluster(nodes.nodes, apis)
        for node in nodes.nodes:
            assert "Traceback" not in node.log_path.read_text()
    for api in apis:
        api.close()
