"""A cluster of real processes: members of etcd, nodes, and clients, each in its place in a network.

    with RealCluster(network, tmp_path) as cluster:
        with cluster.client("n1") as client:
            client.declare(b"q", durable=True)
        cluster["n1"].restart()

Nodes run with the program that reads fail points from their environment. A network of relays lies
between the nodes and etcd; the nodes link with each other directly there.
"""

import contextlib
import ctypes
import json
import os
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from simulator.failing_node import CLOCK_VARIABLE, VARIABLE
from tests.support.awaiting import eventually
from tests.support.brokers.amqp_frames import SocketLink
from tests.support.brokers.amqp_peer import ChannelPeer, Peer
from tests.support.cluster.etcd_parties import CLIENTS, etcd_parties, etcd_urls, etcdctl
from tests.support.cluster.networks import Network, text_of
from tests.support.cluster.parties import Party, running
from tests.support.cluster.relays import RelayNetwork
from tests.support.cluster.trio import Printed, warrenctl
from tests.support.cluster.workload_process import RecordedRun
from warrenmq.server.config.options.cluster import CLUSTER_PORT
from warrenmq.wire.methods import ConnectionOpen, ConnectionOpenOk, ConnectionTuneOk

NAMES = ("n1", "n2", "n3")
CLIENT = "client"
AMQP = "amqp"
LINKS = "links"
CLUSTER = "real"
FRAME_MAX = 131072
# Of the workload: a queue for each node, one of them without consumers.
WORKLOAD = ("--queues", "3", "--rate", "60")


class RealNode(Party):
    """A node `name`; `node` is its full name; "" stands for what is usual."""

    def __init__(
        self,
        name: str,
        network: Network,
        directory: Path,
        etcd: Sequence[str],
        settings: Mapping[str, str],
        node: str = "",
        cluster_name: str = "",
    ) -> None:
        self.data = directory / name
        listen = network.listen(name, AMQP)
        self.node = node or f"{name}@{listen[0]}"
        options = {
            "data-dir": str(self.data),
            "node": self.node,
            "listen": text_of(listen),
            "cluster": cluster_name or CLUSTER,
            "etcd": ",".join(etcd),
            "management": "off",
        }
        # The address for other nodes: the default port of a machine of its own. On a network of
        # relays all nodes share one machine, so each needs another port.
        self.links = (listen[0], CLUSTER_PORT)
        if isinstance(network, RelayNetwork):
            self.links = network.listen(name, LINKS)
            options["cluster-listen"] = text_of(self.links)
        command = [sys.executable, "-m", "simulator.failing_node", "server"]
        command += [word for option, value in options.items() for word in (f"--{option}", value)]
        for key, value in {"loopback_users.guest": "false", **settings}.items():
            command += ["--set", f"{key}={value}"]
        super().__init__(name, network, directory, command, "warren is ready")
        self.arm("")

    def arm(self, points: str) -> None:
        """Arm fail points, as WARREN_FAIL_POINTS names them, for later starts; "" disarms."""
        self.environment[VARIABLE] = points or "none=error"

    def set_clock(self, offset_s: int) -> None:
        """Let the clock of the node's machine be so much later from the next start on."""
        self.environment[CLOCK_VARIABLE] = str(offset_s)

    def ctl(self, *arguments: str) -> Printed:
        """Run `warrenctl` on the node."""
        with inside(self._network, self.name):
            return warrenctl(self.data, *arguments)


class RealCluster:
    """`members` members of etcd, and the nodes `names` with the same `settings`; see the module.

    A network that is given is not closed.
    """

    def __init__(
        self,
        network: Network,
        directory: Path,
        members: int = 1,
        names: Sequence[str] = NAMES,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.network = network
        self.directory = directory
        self.names = tuple(names)
        network.add(CLIENT)
        self._etcd_names = [f"e{number}" for number in range(1, members + 1)]
        self.members = etcd_parties(network, self._etcd_names, directory)
        self.nodes = {}
        for name in names:
            network.add(name)
            self.nodes[name] = RealNode(name, network, directory, self.urls(name), settings or {})
        self._processes = contextlib.ExitStack()

    def __getitem__(self, name: str) -> RealNode:
        return self.nodes[name]

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(running(self.members))
            stack.enter_context(running(list(self.nodes.values())))
            self.await_linked()
            self._processes = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._processes.close()

    def await_linked(self) -> None:
        """Return when every node is linked with all others."""
        for node in self.nodes.values():
            found = node.ctl("await_online_nodes", str(len(self.nodes)))
            assert found.code == 0, found

    # -- clients -----------------------------------------------------------------------------------

    def uri(self, name: str) -> str:
        """Where clients find a node."""
        return f"amqp://guest:guest@{text_of(self.network.reach(CLIENT, name, AMQP))}/%2F"

    @contextlib.contextmanager
    def client(self, name: str, vhost: bytes = b"/") -> Iterator[ChannelPeer]:
        """A channel of a client at a node; its connection breaks at the end of the block."""
        host, port = self.network.reach(CLIENT, name, AMQP)
        with inside(self.network, CLIENT):
            peer = Peer(SocketLink(host, port))
        try:
            peer.start()
            peer.frame_max = FRAME_MAX
            peer.method(0, ConnectionTuneOk(2047, FRAME_MAX, 0))
            peer.method(0, ConnectionOpen(vhost))
            peer.expect(ConnectionOpenOk)
            yield peer.channel()
        finally:
            peer.drop()

    @contextlib.contextmanager
    def clients(self) -> Iterator[list[ChannelPeer]]:
        """A channel at each node."""
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(self.client(name)) for name in self.names]

    def workload(self, directory: Path, *options: str) -> RecordedRun:
        """A workload on all nodes; `workload-0` lives on the first node, and so on."""
        for name in self.names:
            with self.client(name) as client:
                client.declare(self.queue_of(name).encode(), durable=True)
        uris = [self.uri(name) for name in self.names]
        prefix = self.network.prefix(CLIENT)
        return RecordedRun(directory, uris, [*WORKLOAD, *options], prefix)

    def queue_of(self, name: str) -> str:
        """The workload's queue that lives on a node."""
        return f"workload-{self.names.index(name)}"

    # -- etcd --------------------------------------------------------------------------------------

    def urls(self, client: str) -> list[str]:
        """Where a party finds the members."""
        return etcd_urls(self.network, client, self._etcd_names)

    def etcd(self, *arguments: str, member: str = "e1") -> str:
        """What `etcdctl` prints."""
        address = self.network.reach(CLIENT, member, CLIENTS)
        return etcdctl(self.network, CLIENT, address, *arguments)

    def keys(self, kind: str) -> dict[str, dict[str, Any]]:
        """The records of a kind in etcd, by the rest of their keys, with `lease` and `value`."""
        prefix = f"/warren/{CLUSTER}/{kind}/"
        found = json.loads(self.etcd("get", "--prefix", prefix, "-w", "json"))
        return {
            b64decode(each["key"]).decode().removeprefix(prefix): {
                "lease": each.get("lease", 0),
                "value": b64decode(each["value"]),
            }
            for each in found.get("kvs", ())
        }

    def compact(self) -> None:
        """Let etcd forget all history up to now."""
        status = json.loads(self.etcd("endpoint", "status", "-w", "json"))
        self.etcd("compaction", str(status[0]["Status"]["header"]["revision"]))


def await_writable(cluster: RealCluster) -> None:
    """Return when etcd decides again."""

    def writes() -> bool:
        try:
            cluster.etcd("put", "probe", "")
        except subprocess.CalledProcessError:
            return False
        return True

    eventually(writes, "etcd decides")


@contextlib.contextmanager
def inside(network: Network, party: str) -> Iterator[None]:
    """Let this thread open its sockets in the place of a party."""
    prefix = network.prefix(party)
    if not prefix:
        yield
        return
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{prefix[-1]}", os.O_RDONLY)
    try:
        _enter(there)
        yield
    finally:
        _enter(home)
        os.close(home)
        os.close(there)


def _enter(namespace: int) -> None:
    """Move this thread into an open namespace; the standard library can do it from 3.12 on."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, 0):
        raise OSError(ctypes.get_errno(), "setns")
