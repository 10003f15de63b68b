"""Makes the cluster's side of a node from its configuration."""

import asyncio
from collections.abc import Callable

from warrenmq.broker.broker import Broker
from warrenmq.cluster.links.node_calls import Answerer
from warrenmq.cluster.links.tls import LinkTls, link_tls
from warrenmq.cluster.metadata.endpoints import Credentials, TlsFiles
from warrenmq.cluster.metadata.etcd_metadata import EtcdMetadata
from warrenmq.cluster.metadata.gateway import EtcdGateway
from warrenmq.cluster.node import ClusterNode, ClusterSettings, NodeClock
from warrenmq.cluster.sinks.carrier import StagedCarrier
from warrenmq.cluster.sinks.receiver import StagedReceiver
from warrenmq.server.config.options.cluster import ClusterOptions
from warrenmq.server.config.settings import Config

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
