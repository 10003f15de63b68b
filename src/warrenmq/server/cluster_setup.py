"""Makes the cluster's side of a node from its configuration, and renews its certificates."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from warrenmq.broker.broker import Broker
from warrenmq.cluster.links.node_calls import Answerer
from warrenmq.cluster.links.tls import LinkTls, LinkTlsError, link_tls
from warrenmq.cluster.metadata.endpoints import Credentials, TlsFiles
from warrenmq.cluster.metadata.errors import EtcdRefused
from warrenmq.cluster.metadata.etcd_metadata import EtcdMetadata
from warrenmq.cluster.metadata.gateway import EtcdGateway
from warrenmq.cluster.node import ClusterNode, ClusterSettings, NodeClock
from warrenmq.cluster.sinks.carrier import StagedCarrier
from warrenmq.cluster.sinks.receiver import StagedReceiver
from warrenmq.server.config.options.cluster import ClusterOptions
from warrenmq.server.config.settings import Config
from warrenmq.server.file_stamps import WATCH_INTERVAL_S, Stamps, stamps

logger = logging.getLogger("warren.cluster")

# Hosts to listen on that are no place to dial.
_EVERY_ADDRESS = ("", "0.0.0.0", "::")


def open_cluster(
    config: Config,
    loop: asyncio.AbstractEventLoop,
    broker: Broker,
    now_ms: Callable[[], int],
    wake: Callable[[], None],
    read_buffer: memoryview,
) -> ClusterNode:
    """The node's place in its cluster.

    Raises LinkTlsError and EtcdRefused for certificates that cannot be read.
    """
    options = config.cluster
    metadata = EtcdMetadata(
        EtcdGateway(options.etcd, _credentials(options), _etcd_tls(options)), options.name
    )
    host, port = options.listen
    if options.advertise is not None:
        host, port = options.advertise
    elif host in _EVERY_ADDRESS:
        host = config.node_name.partition("@")[2]
    if options.advertise is None:
        # The port that the listener gets, if it is any.
        port = 0
    settings = ClusterSettings(
        options.name,
        config.node_name,
        options.secret,
        options.listen,
        host,
        port,
        _link_tls(options),
        options.locator,
    )
    return ClusterNode(settings, metadata, loop, broker, now_ms, wake, read_buffer)


def _credentials(options: ClusterOptions) -> Credentials | None:
    if not options.etcd_username:
        return None
    return Credentials(options.etcd_username, options.etcd_password)


def _etcd_tls(options: ClusterOptions) -> TlsFiles | None:
    if options.etcd_cacertfile is None and options.etcd_certfile is None:
        return None
    return TlsFiles(options.etcd_cacertfile, options.etcd_certfile, options.etcd_keyfile)


def _link_tls(options: ClusterOptions) -> LinkTls | None:
    if options.cacertfile is None or options.certfile is None or options.keyfile is None:
        return None
    return link_tls(options.cacertfile, options.certfile, options.keyfile, "")


class ClusterCertificates:
    """The certificates with which `cluster` talks to other nodes and to etcd.

    New connections use new files; links, calls and watches that exist live on.
    """

    def __init__(self, cluster: ClusterNode, options: ClusterOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._links = [
            path for path in (options.cacertfile, options.certfile, options.keyfile) if path
        ]
        self._etcd = [
            path
            for path in (options.etcd_cacertfile, options.etcd_certfile, options.etcd_keyfile)
            if path
        ]
        # Of the files as they were last read, even if they were faulty.
        self._stamps: Stamps = self._latest()

    def reload(self) -> None:
        """Read the files again; the log says what came of it. Faulty ones change nothing."""
        self._stamps = self._latest()
        options = self._options
        try:
            if (tls := _link_tls(options)) is not None:
                self._cluster.use_link_tls(tls)
                _log_reloaded("other nodes", self._links)
            if (files := _etcd_tls(options)) is not None:
                self._cluster.use_etcd_tls(files)
                _log_reloaded("etcd", self._etcd)
        except (LinkTlsError, EtcdRefused) as error:
            logger.error("the certificates in use stay, because the new ones are faulty: %s", error)

    async def watch(self) -> None:
        """Reload whenever a file has changed; runs until it is cancelled."""
        loop = asyncio.get_running_loop()
        while self._links or self._etcd:
            await asyncio.sleep(WATCH_INTERVAL_S)
            # A file system that hangs must not stop the loop.
            if await loop.run_in_executor(None, self._latest) != self._stamps:
                self.reload()

    def _latest(self) -> Stamps:
        return stamps([*self._links, *self._etcd])


def _log_reloaded(peers: str, files: list[Path]) -> None:
    names = ", ".join(str(path) for path in files)
    logger.info("certificates for %s reloaded: %s", peers, names)


def carry_staged(
    cluster: ClusterNode,
    loop: asyncio.AbstractEventLoop,
    broker: Broker,
    now_ms: Callable[[], int],
    wake: Callable[[], None],
    calls: Answerer,
) -> None:
    """Let staged messages go to queues of other nodes, and come from there.

    `calls` answers the other calls of nodes.
    """
    cluster.calls.answerer = StagedReceiver(broker, cluster.followed, now_ms, calls).answer
    clock = NodeClock(loop, now_ms, wake)
    broker.slice_carrier = StagedCarrier(broker, cluster.calls, clock)
