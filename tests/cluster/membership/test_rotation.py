"""Secret, certificates and authority of a cluster are rotated while a client publishes.

The steps are those of docs/operations/rotation.md, in its order.
"""

import json
import shutil
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pika
import pytest

from tests.support.awaiting import eventually
from tests.support.certificates import Authority, Certificate, chain_file
from tests.support.cluster.trio import HOST, ClusterNode, ClusterNodes, channels
from tests.support.etcd import EtcdServer, running_members
from warrenmq.cluster.metadata.endpoints import TlsFiles
from warrenmq.cluster.metadata.gateway import EtcdGateway

DURABLE = pika.BasicProperties(delivery_mode=2)
QUEUE = "orders"
CLUSTER = "rotating"


class Files:
    """The files of certificates that nodes and etcd read, and two authorities for them."""

    def __init__(self, directory: Path) -> None:
        self.old, self.new = Authority(directory / "old"), Authority(directory / "new")
        self.authority = directory / "ca.pem"
        self.node = Certificate(directory / "node.pem", directory / "node.key")
        self.etcd = Certificate(directory / "etcd.pem", directory / "etcd.key")
        self.trust(self.old)
        self.issue(self.node, self.old)
        self.issue(self.etcd, self.old)

    def trust(self, *authorities: Authority) -> None:
        """Let the file of authorities have these."""
        chain_file(self.authority, *authorities)

    def issue(self, target: Certificate, authority: Authority) -> None:
        """Put a new certificate of `authority` in the place of `target`."""
        made = authority.issue(target.certfile.stem)
        for source, place in ((made.keyfile, target.keyfile), (made.certfile, target.certfile)):
            shutil.copy(source, place.with_suffix(".new"))
            place.with_suffix(".new").rename(place)

    @property
    def tls(self) -> TlsFiles:
        """The files of a client of etcd."""
        return TlsFiles(self.authority, self.node.certfile, self.node.keyfile)

    def settings(self) -> list[str]:
        """The settings of a node that uses these files for everything."""
        own = [("certfile", self.node.certfile), ("keyfile", self.node.keyfile)]
        trusted = [("cacertfile", self.authority)]
        found = [f"cluster.ssl_options.{name}={path}" for name, path in own + trusted]
        found += [f"cluster.etcd.{name}={path}" for name, path in own + trusted]
        found += [f"ssl_options.{name}={path}" for name, path in own]
        return [*found, f"listeners.ssl.default={HOST}:0"]


class Publisher(threading.Thread):
    """Publishes numbered messages, each after the confirm of the one before."""

    def __init__(self, node: ClusterNode) -> None:
        super().__init__(daemon=True)
        self.confirmed = 0
        self.fault: Exception | None = None
        self._node = node
        self._is_over = threading.Event()

    def run(self) -> None:
        try:
            with channels([self._node]) as (channel,):
                while not self._is_over.is_set():
                    channel.basic_publish("", QUEUE, b"%d" % self.confirmed, DURABLE)
                    self.confirmed += 1
        except Exception as error:  # the test that joins the thread gets any error
            self.fault = error

    def await_more(self) -> None:
        """Return when ten more messages are confirmed."""
        wanted = self.confirmed + 10
        eventually(lambda: self.confirmed >= wanted or self.fault is not None, "confirms")
        assert self.fault is None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self.join()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "certificates")


@pytest.fixture
def server(files: Files, tmp_path: Path) -> Iterator[EtcdServer]:
    """An etcd that wants certificates of its clients."""
    trusted = Certificate(files.authority, files.authority)
    made = EtcdServer(tmp_path / "etcd", "m0", files.etcd, trusted, files.tls)
    with running_members([made]):
        yield made


@pytest.fixture
def nodes(files: Files, server: EtcdServer, tmp_path: Path) -> Iterator[list[ClusterNode]]:
    with ClusterNodes(
        tmp_path, server.url, "n1", "n2", "n3", cluster=CLUSTER, settings=files.settings()
    ) as cluster:
        yield cluster.nodes


def port_of(node: ClusterNode, protocol: str) -> int:
    status = json.loads(node.ctl("cluster_status", "--formatter", "json").out)
    rows = status["listeners"][node.name]
    return next(int(row["port"]) for row in rows if row["protocol"] == protocol)


def shown_to(node: ClusterNode, protocol: str, files: Files) -> str:
    """The certificate that a node shows to whoever connects, as PEM."""
    context = ssl.create_default_context(cafile=files.authority)
    context.check_hostname = False
    context.load_cert_chain(files.node.certfile, files.node.keyfile)
    with socket.create_connection((HOST, port_of(node, protocol))) as raw:
        try:
            with context.wrap_socket(raw) as connection:
                found = connection.getpeercert(binary_form=True)
        except ssl.SSLCertVerificationError:
            return "a certificate of an authority that is out of use"
    assert found is not None
    return ssl.DER_cert_to_PEM_cert(found)


def all_show(nodes: list[ClusterNode], files: Files, certificate: str) -> bool:
    """Whether all listeners with TLS show this certificate."""
    return all(
        [
            shown_to(node, protocol, files) == certificate
            for node in nodes
            for protocol in ("clustering", "amqp/ssl")
        ]
    )


def restart(nodes: list[ClusterNode], node: ClusterNode) -> None:
    """Restart a node in good order; returns when all are linked again."""
    assert node.stop() == 0
    node.start()
    for each in nodes:
        assert each.ctl("await_online_nodes", str(len(nodes))).code == 0
    eventually(
        lambda: node.ctl("check_if_node_is_mirror_sync_critical").code == 0, "mirrors in sync"
    )


def meta_of(server: EtcdServer, files: Files) -> dict[str, Any]:
    """The record of the cluster in etcd."""
    gateway = EtcdGateway([server.url], tls=files.tls)
    found = gateway.read(f"/warren/{CLUSTER}/meta".encode())
    gateway.close()
    assert found is not None
    record: dict[str, Any] = json.loads(found.value)
    return record


@pytest.mark.slow
def test_everything_that_nodes_trust_is_replaced_under_load(
    nodes: list[ClusterNode], files: Files, server: EtcdServer
) -> None:
    """No confirm fails at a node that stays up, and no message is lost or doubled."""
    first, second, third = nodes
    with channels([first]) as (channel,):
        channel.queue_declare(QUEUE, durable=True)
    policy = '{"ha-mode":"all","ha-sync-mode":"automatic"}'
    assert first.ctl("set_policy", "ha", QUEUE, policy).code == 0

    with Publisher(first) as publisher:
        publisher.await_more()

        # The secret: the new one and the one before, then the new one alone.
        old = meta_of(server, files)["secret"]
        assert first.ctl("rotate_cluster_secret").code == 0
        assert "under way: end it first" in second.ctl("rotate_cluster_secret").err
        restart(nodes, third)
        ended = eventually_ends(second)
        assert ended == "", ended
        assert (
            "no rotation of the secret is under way"
            in second.ctl("rotate_cluster_secret", "--end").err
        )
        meta = meta_of(server, files)
        assert (meta["secret"] != old, meta["previous_secret"], meta["secret_number"]) == (
            True,
            "",
            1,
        )
        restart(nodes, third)
        publisher.await_more()

        # The authority: both, then certificates of the new one, then the new one alone.
        files.trust(files.old, files.new)
        reload_all(nodes, "certificates for etcd reloaded")
        server.restart()
        files.issue(files.node, files.new)
        files.issue(files.etcd, files.new)
        # Noticed without a signal.
        wanted = files.node.certfile.read_text()
        eventually(lambda: all_show(nodes, files, wanted), "all listeners show it")
        files.trust(files.new)
        reload_all(nodes, "certificates for etcd reloaded")
        server.restart()
        restart(nodes, third)
        with channels([second]) as (channel,):
            channel.queue_declare("declared-after", durable=True)
        assert third.table("list_queues", "name") == [["declared-after"], [QUEUE]]
        publisher.await_more()

        # A faulty file changes nothing.
        intact = files.node.certfile.read_bytes()
        files.node.certfile.write_bytes(b"no certificate")
        reload_all(nodes, "the certificates in use stay")
        files.node.certfile.write_bytes(intact)
        assert shown_to(second, "clustering", files) == intact.decode()
        publisher.await_more()

    assert publisher.fault is None
    with channels([third]) as (channel,):
        found = [
            int(body)
            for _method, _properties, body in iter(
                lambda: channel.basic_get(QUEUE, auto_ack=True), (None, None, None)
            )
        ]
    assert found == list(range(publisher.confirmed))


def eventually_ends(node: ClusterNode) -> str:
    """End the rotation, again while nodes have not heard of it; returns the last refusal, or ""."""
    printed = node.ctl("rotate_cluster_secret", "--end")
    while "not known to have heard" in printed.err:
        printed = node.ctl("rotate_cluster_secret", "--end")
    return printed.err


def reload_all(nodes: list[ClusterNode], line: str) -> None:
    """Send SIGHUP to all nodes; returns when each has logged `line` once more."""
    before = [node.log_path.read_text().count(line) for node in nodes]
    for node in nodes:
        node.send_signal(signal.SIGHUP)

    def have_logged() -> bool:
        counts = [node.log_path.read_text().count(line) for node in nodes]
        return all([now > earlier for now, earlier in zip(counts, before, strict=True)])

    eventually(have_logged, line)
