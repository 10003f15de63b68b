"""The metrics of a node: its process, its memory and disk, its alarms, its logins."""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

from prometheus_client.core import InfoMetricFamily

from warrenmq.admin.protocol.control import ControlStatus
from warrenmq.admin.protocol.figures import NodeStatus
from warrenmq.management.prometheus.metrics import RABBITMQ, WARREN, Family, Metric, of_one
from warrenmq.vocabulary.rabbitmq_version import RABBITMQ_VERSION


@dataclass(frozen=True, slots=True)
class NodeReading:
    """A node at the moment of a scrape."""

    # The name of the cluster, which all of its nodes show.
    cluster: str
    control: ControlStatus
    status: NodeStatus


def identity(reading: NodeReading, endpoint: str) -> Iterable[Family]:
    """The metrics with which queries find the node and the versions.

    The dashboards of RabbitMQ join each of their queries with rabbitmq_identity_info. Those of
    4.1 choose the page by the label `rabbitmq_endpoint`: "aggregated", "per-object" or "detailed".
    """
    node = {
        "rabbitmq_node": reading.control.node,
        "rabbitmq_cluster": reading.cluster,
        "rabbitmq_endpoint": endpoint,
    }
    yield _constant(RABBITMQ, "identity", "RabbitMQ node & cluster identity", node)
    versions = {
        "rabbitmq_version": RABBITMQ_VERSION,
        "prometheus_client_version": version("prometheus-client"),
        "prometheus_plugin_version": reading.control.version,
    }
    yield _constant(RABBITMQ, "build", "RabbitMQ version that the node speaks", versions)
    build = {
        "version": reading.control.version,
        "build": reading.status.build,
        "python": reading.control.python,
    }
    yield _constant(WARREN, "build", "Version and build of warren", build)


def _constant(owner: str, name: str, text: str, labels: dict[str, str]) -> Family:
    return InfoMetricFamily(f"{owner}_{name}", text, value=labels)


def _alarm(kind: str) -> Metric[NodeReading]:
    names = {"memory": "memory_used_watermark", "disk": "free_disk_space_watermark"}
    return Metric(
        f"alarms_{names[kind]}",
        "gauge",
        f"is 1 while the {kind} alarm is on",
        lambda reading: float(kind in reading.status.alarms),
    )


COARSE: Final[tuple[Metric[NodeReading], ...]] = (
    Metric("process_open_fds", "gauge", "Open files", lambda r: r.control.open_files),
    Metric("process_open_tcp_sockets", "gauge", "Open TCP sockets", lambda r: r.control.sockets),
    Metric(
        "process_resident_memory_bytes",
        "gauge",
        "Memory of the process in bytes",
        lambda r: r.status.memory_used_bytes,
    ),
    Metric(
        "disk_space_available_bytes",
        "gauge",
        "Free disk space in bytes",
        lambda r: r.status.disk_free_bytes,
    ),
    _alarm("memory"),
    _alarm("disk"),
)
LIMITS: Final[tuple[Metric[NodeReading], ...]] = (
    Metric("process_max_fds", "gauge", "Limit of open files", lambda r: r.control.open_files_max),
    Metric(
        "process_max_tcp_sockets",
        "gauge",
        "Limit of open TCP sockets: each is an open file",
        lambda r: r.control.open_files_max,
    ),
    Metric(
        "resident_memory_limit_bytes",
        "gauge",
        "Memory in bytes at which the memory alarm begins",
        lambda r: r.status.memory_limit_bytes,
    ),
    Metric(
        "disk_space_available_limit_bytes",
        "gauge",
        "Free disk space in bytes at which the disk alarm begins",
        lambda r: r.status.disk_limit_bytes,
    ),
    Metric(
        "erlang_uptime_seconds",
        "gauge",
        "Time since the start of the node",
        lambda r: r.control.uptime_ms / 1000,
    ),
)
OWN: Final[tuple[Metric[NodeReading], ...]] = (
    Metric(
        "message_memory_bytes",
        "gauge",
        "Memory in bytes of messages in queues",
        lambda r: r.status.message_bytes,
        WARREN,
    ),
    Metric(
        "unfinished_memory_bytes",
        "gauge",
        "Memory in bytes of messages that clients have not finished or not committed",
        lambda r: r.status.unfinished_bytes,
        WARREN,
    ),
    Metric(
        "disk_flow_stops",
        "counter",
        "Times a connection waited because the disk could not keep up",
        lambda r: r.status.flow_stops,
        WARREN,
    ),
    Metric(
        "blocked_connections",
        "gauge",
        "Connections that an alarm keeps from publishing",
        lambda r: r.status.blocked,
        WARREN,
    ),
)


def coarse(infix: str, reading: NodeReading) -> Iterable[Family]:
    """What the node uses, and its alarms."""
    return of_one(COARSE, infix, reading)


def limits(infix: str, reading: NodeReading) -> Iterable[Family]:
    """Limits and uptime of the node, and warren's own metrics of it."""
    yield from of_one(LIMITS, infix, reading)
    yield from of_one(OWN, infix, reading)
