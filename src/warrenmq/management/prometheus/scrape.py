"""Chooses the metrics of a page, and asks the node for what they show.

Metrics come in families, which a page of chosen ones (`/metrics/detailed`) names as RabbitMQ does;
those whose name begins with warren_ are warren's own.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal

from warrenmq.admin.client.client import AdminClient
from warrenmq.admin.protocol.counters import DescribeCounters, NodeCounters
from warrenmq.admin.protocol.figures import VhostStatus
from warrenmq.admin.protocol.latencies import DescribeLatencies, NodeLatencies
from warrenmq.admin.protocol.readers import DescribeReaders, NodeReaders
from warrenmq.admin.protocol.totals import DescribeTotals, NodeTotals
from warrenmq.management.prometheus import cluster, counters, mirrors, node, objects
from warrenmq.management.prometheus.latencies import histograms, persister
from warrenmq.management.prometheus.logins import LOGIN_COLUMNS, logins
from warrenmq.management.prometheus.metrics import RABBITMQ, Family, ObjectFamily, family
from warrenmq.management.prometheus.objects import Metrics, columns_of
from warrenmq.management.prometheus.readers import readers
from warrenmq.management.prometheus.reading import (
    Table,
    read_mirrors,
    read_node,
    read_table,
    read_vhosts,
)
from warrenmq.management.prometheus.stores import stores

_QUEUES: Final[dict[str, Metrics]] = {
    "queue_coarse_metrics": objects.QUEUE_COARSE,
    "queue_consumer_count": objects.QUEUE_CONSUMERS,
    "queue_metrics": (*objects.QUEUE_COARSE, *objects.QUEUE_CONSUMERS, *objects.QUEUES),
    "warren_queue_classes": (),
    "warren_mirror_metrics": (),
}
_CONNECTIONS: Final[dict[str, Metrics]] = {
    "connection_coarse_metrics": objects.CONNECTIONS[:2],
    "connection_metrics": objects.CONNECTIONS[2:],
}
_CHANNELS: Final[dict[str, Metrics]] = {"channel_metrics": objects.CHANNELS}
# Families that pages show without being asked to.
USUAL_FAMILIES: Final = (
    *("node_coarse_metrics", "node_metrics", "node_persister_metrics", "auth_attempt_metrics"),
    *("warren_store_metrics", "warren_latency_metrics", "warren_reader_metrics"),
    *("global_metrics", "connection_churn_metrics"),
    *_QUEUES,
    *_CONNECTIONS,
    *_CHANNELS,
)
# Families that only a page of chosen ones shows.
CLUSTER_FAMILIES: Final = ("vhost_status", "exchange_names", "exchange_bindings")
FAMILIES: Final = (*USUAL_FAMILIES, *CLUSTER_FAMILIES)

# The families of one subject.
_Part = Iterable[Family | ObjectFamily]

_QUEUE_LABELS: Final = {"vhost": "vhost", "queue": "name"}


@dataclass(frozen=True, slots=True)
class Page:
    """What a scrape asks for; None stands for all vhosts."""

    families: frozenset[str]
    is_aggregated: bool
    # Stands behind the owner in the names of metrics.
    infix: str = ""
    vhosts: frozenset[str] | None = None

    @property
    def endpoint(self) -> str:
        """RabbitMQ's name of the page."""
        if self.infix:
            return "detailed"
        return "aggregated" if self.is_aggregated else "per-object"


def scrape(client: AdminClient, page: Page) -> Iterator[Family | ObjectFamily]:
    """Ask the node, in a session of a monitor, for all that the page shows.

    The families come in the order of their subjects, each made when it is taken. Raises what the
    client raises, before the first family.
    """
    return chain.from_iterable(_Scrape(client, page).parts())


class _Scrape:
    """One page of one node. A part is asked for at once, and its families are made later."""

    def __init__(self, client: AdminClient, page: Page) -> None:
        self._client = client
        self._page = page
        self._infix = page.infix

    def parts(self) -> list[_Part]:
        """All parts of the page."""
        infix = self._infix
        reading = read_node(self._client)
        parts: list[_Part] = [node.identity(reading, self._page.endpoint)]
        if self._has("node_coarse_metrics"):
            parts.append(node.coarse(infix, reading))
        if self._has("node_metrics"):
            parts.append(node.limits(infix, reading))
        shown = [each for each in reading.status.vhosts if self._shows(each.vhost)]
        if self._has("warren_store_metrics"):
            parts.append(stores(infix, shown))
        if self._has("warren_latency_metrics", "node_persister_metrics"):
            parts += self._latencies(shown)
        if self._has("warren_reader_metrics"):
            found = self._client.request(DescribeReaders(), NodeReaders)
            parts.append(readers(infix, found, self._shows))
        if self._has("auth_attempt_metrics"):
            parts.append(logins(infix, read_table(self._client, "auth_attempts", LOGIN_COLUMNS)))
        if self._page.is_aggregated:
            parts += self._totals()
        else:
            parts += self._objects([each.vhost for each in shown])
        return parts + self._counters(shown) + self._cluster([each.vhost for each in shown])

    def _has(self, *families: str) -> bool:
        return not self._page.families.isdisjoint(families)

    def _shows(self, vhost: str) -> bool:
        return self._page.vhosts is None or vhost in self._page.vhosts

    def _metrics(self, by_family: dict[str, Metrics]) -> Metrics:
        """The metrics of the page among those of some families, each once."""
        chosen = [by_family[name] for name in by_family if name in self._page.families]
        return tuple(dict.fromkeys([metric for metrics in chosen for metric in metrics]))

    def _latencies(self, vhosts: list[VhostStatus]) -> Iterator[_Part]:
        measured = self._client.request(DescribeLatencies(), NodeLatencies)
        if self._has("warren_latency_metrics"):
            yield histograms(self._infix, measured)
        if self._has("node_persister_metrics"):
            yield persister(self._infix, measured, vhosts)

    def _counters(self, vhosts: list[VhostStatus]) -> list[_Part]:
        """What the node has done."""
        summed = ("connection_coarse_metrics", "channel_metrics", "queue_metrics")
        has_sums = self._page.is_aggregated and self._has(*summed)
        if not has_sums and not self._has("global_metrics", "connection_churn_metrics"):
            return []
        reading = self._client.request(DescribeCounters(), NodeCounters)
        parts: list[_Part] = []
        if self._has("global_metrics"):
            parts += [counters.global_counters(reading), counters.global_dead_letters(vhosts)]
        if self._has("connection_churn_metrics"):
            parts.append(counters.churn(self._infix, reading))
        if self._page.is_aggregated and self._has("connection_coarse_metrics"):
            parts.append(counters.socket_bytes(self._infix, reading))
        if self._page.is_aggregated and self._has("channel_metrics"):
            parts.append(counters.channel_sums(self._infix, reading))
        if self._page.is_aggregated and self._has("queue_metrics"):
            parts.append(counters.queue_sums(self._infix, reading))
        return parts

    # -- queues, connections and channels ----------------------------------------------------------

    def _totals(self) -> Iterator[_Part]:
        """The sums over all objects, which the node takes."""
        totals = self._client.request(DescribeTotals(), NodeTotals)
        yield objects.of_all(self._metrics(_QUEUES), self._infix, totals.queues)
        of_clients = (*self._metrics(_CONNECTIONS), *self._metrics(_CHANNELS))
        yield objects.of_all(of_clients, self._infix, totals.clients)
        if self._has("warren_queue_classes"):
            yield [objects.classes_of_all(self._infix, totals.queues)]
        if self._has("warren_mirror_metrics"):
            yield mirrors.mirror_sums(self._infix, totals.mirrors)
        yield _counts(totals)

    def _objects(self, vhosts: list[str]) -> Iterator[_Part]:
        """The metrics of each object, and on a page of all families how many there are."""
        infix = self._infix
        if self._has(*_QUEUES):
            queues = self._queues(vhosts)
            yield objects.of_each_row(self._metrics(_QUEUES), infix, _QUEUE_LABELS, queues)
            if self._has("warren_queue_classes"):
                yield [objects.classes_of_each(infix, _QUEUE_LABELS, queues)]
            if self._has("warren_mirror_metrics"):
                yield mirrors.mirror_copies(infix, read_mirrors(self._client, queues))
        if self._has(*_CONNECTIONS):
            yield self._of_clients("connections", "connection", self._metrics(_CONNECTIONS))
        if self._has(*_CHANNELS):
            yield self._of_clients("channels", "channel", self._metrics(_CHANNELS))
        if not infix:
            totals = self._client.request(DescribeTotals(), NodeTotals)
            if self._has("warren_mirror_metrics"):
                yield mirrors.mirror_sums(infix, totals.mirrors)
            yield _counts(totals)

    def _of_clients(
        self, what: Literal["connections", "channels"], label: str, metrics: Metrics
    ) -> _Part:
        table = read_table(self._client, what, columns_of(metrics, "pid", "vhost"))
        vhosts = table.column("vhost")
        rows = [row for row, each in zip(table.rows, vhosts, strict=True) if self._shows(each)]
        return objects.of_each_row(metrics, self._infix, {label: "pid"}, Table(table.columns, rows))

    def _queues(self, vhosts: list[str]) -> Table:
        """The queues with all columns that the page needs."""
        others = ["name", "vhost"]
        if self._has("warren_queue_classes"):
            others += ["messages_ready", *objects.IN_MEMORY_CLASSES]
        if self._has("warren_mirror_metrics"):
            others.append("slave_nodes")
        columns = columns_of(self._metrics(_QUEUES), *others)
        return read_vhosts(self._client, "queues", columns, vhosts)

    # -- the cluster -------------------------------------------------------------------------------

    def _cluster(self, vhosts: list[str]) -> list[_Part]:
        """What all nodes of the cluster have."""
        shown: list[Family] = []
        if self._has("vhost_status"):
            shown.append(cluster.vhost_status(vhosts))
        if self._has("exchange_names", "exchange_bindings"):
            columns = list(cluster.EXCHANGE_COLUMNS)
            exchanges = read_vhosts(self._client, "exchanges", columns, vhosts)
            if self._has("exchange_names"):
                shown.append(cluster.exchange_names(exchanges))
            if self._has("exchange_bindings"):
                bindings = {
                    vhost: read_table(self._client, "bindings", ["source_name"], vhost)
                    for vhost in vhosts
                }
                shown.append(cluster.exchange_bindings(exchanges, bindings))
        return [shown]


def _counts(totals: NodeTotals) -> Iterator[Family]:
    """How many objects there are of each kind."""
    clients = totals.clients
    for name, count in (
        ("queues", totals.queues.queues),
        ("consumers", totals.queues.consumers),
        ("connections", clients.connections),
        ("channels", clients.channels),
    ):
        samples = [((), float(count))]
        yield family(f"{RABBITMQ}_{name}", "gauge", name.capitalize(), (), samples)
    yield from counters.global_clients(clients)
