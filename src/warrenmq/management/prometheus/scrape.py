"""Chooses the metrics of a page, and asks the node for what they show.

Metrics come in families, which a page of chosen ones (`/metrics/detailed`) names as RabbitMQ does;
those whose name begins with warren_ are warren's own.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from warrenmq.admin.client.client import AdminClient
from warrenmq.admin.protocol.counters import DescribeCounters, NodeCounters
from warrenmq.management.prometheus import cluster, counters, mirrors, node, objects
from warrenmq.management.prometheus.logins import LOGIN_COLUMNS, logins
from warrenmq.management.prometheus.metrics import RABBITMQ, Family, family
from warrenmq.management.prometheus.objects import Metrics, Objects, Row, columns_of
from warrenmq.management.prometheus.reading import (
    Listing,
    read_mirrors,
    read_node,
    read_rows,
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
    *("node_coarse_metrics", "node_metrics", "warren_store_metrics", "auth_attempt_metrics"),
    *("global_metrics", "connection_churn_metrics"),
    *_QUEUES,
    *_CONNECTIONS,
    *_CHANNELS,
)
# Families that only a page of chosen ones shows.
CLUSTER_FAMILIES: Final = ("vhost_status", "exchange_names", "exchange_bindings")
FAMILIES: Final = (*USUAL_FAMILIES, *CLUSTER_FAMILIES)


@dataclass(frozen=True, slots=True)
class Page:
    """What a scrape asks for; None stands for all vhosts."""

    families: frozenset[str]
    is_aggregated: bool
    # Stands behind the owner in the names of metrics.
    infix: str = ""
    vhosts: frozenset[str] | None = None


class Scrape:
    """One page of metrics of one node."""

    def __init__(self, client: AdminClient, page: Page) -> None:
        self._client = client
        self._page = page

    def families(self) -> Iterator[Family]:
        """The families of the page, in the order of its subjects."""
        page, infix = self._page, self._page.infix
        reading = read_node(self._client)
        yield from node.identity(reading)
        if "node_coarse_metrics" in page.families:
            yield from node.coarse(infix, reading)
        if "node_metrics" in page.families:
            yield from node.limits(infix, reading)
        shown = [each for each in reading.status.vhosts if self._shows(each.vhost)]
        if "warren_store_metrics" in page.families:
            yield from stores(infix, shown)
        vhosts = [each.vhost for each in shown]
        yield from self._objects(vhosts)
        if "auth_attempt_metrics" in page.families:
            rows = read_rows(self._client, "auth_attempts", LOGIN_COLUMNS)
            yield from logins(infix, rows)
        yield from self._counters()
        yield from self._cluster(vhosts)

    def _counters(self) -> Iterator[Family]:
        """What the node has done."""
        page = self._page
        has_bytes = page.is_aggregated and "connection_coarse_metrics" in page.families
        if not has_bytes and not self._has_any(("global_metrics", "connection_churn_metrics")):
            return
        reading = self._client.request(DescribeCounters(), NodeCounters)
        if "global_metrics" in page.families:
            yield from counters.global_counters(reading)
        if "connection_churn_metrics" in page.families:
            yield from counters.churn(page.infix, reading)
        if has_bytes:
            yield from counters.socket_bytes(page.infix, reading)

    def _shows(self, vhost: str) -> bool:
        return self._page.vhosts is None or vhost in self._page.vhosts

    def _metrics(self, by_family: dict[str, Metrics]) -> Metrics:
        """The metrics of the page among those of some families, each once."""
        chosen = [by_family[name] for name in by_family if name in self._page.families]
        return tuple(dict.fromkeys([metric for metrics in chosen for metric in metrics]))

    def _has_any(self, families: Iterable[str]) -> bool:
        return not self._page.families.isdisjoint(families)

    def _objects(self, vhosts: list[str]) -> Iterator[Family]:
        """The metrics of queues, connections and channels, and how many there are."""
        page = self._page
        if self._has_any(_QUEUES):
            queues = self._queues(vhosts)
            yield from self._of_queues(queues)
        of_clients: tuple[tuple[Listing, dict[str, Metrics], str], ...] = (
            ("connections", _CONNECTIONS, "connection"),
            ("channels", _CHANNELS, "channel"),
        )
        for what, by_family, label in of_clients:
            if self._has_any(by_family):
                metrics = self._metrics(by_family)
                rows = self._rows_of_clients(what, columns_of(metrics, "pid"))
                clients = Objects({label: "pid"}, rows)
                yield from clients.families(metrics, page.infix, page.is_aggregated)
                if not page.infix:
                    yield _total(what, rows)
                    if what == "channels":
                        yield counters.global_consumers(rows)

    def _rows_of_clients(self, what: Listing, columns: list[str]) -> list[Row]:
        rows = read_rows(self._client, what, [*columns, "vhost"])
        return rows if self._page.vhosts is None else [r for r in rows if self._shows(r["vhost"])]

    def _queues(self, vhosts: list[str]) -> list[Row]:
        """The rows of queues with all columns that the page needs."""
        others = ["name", "vhost", "consumers"]
        if "warren_queue_classes" in self._page.families:
            others += ["messages_ready", *objects.IN_MEMORY_CLASSES]
        if "warren_mirror_metrics" in self._page.families:
            others += mirrors.MIRROR_COLUMNS
        columns = columns_of(self._metrics(_QUEUES), *others)
        return [
            row for vhost in vhosts for row in read_rows(self._client, "queues", columns, vhost)
        ]

    def _of_queues(self, rows: list[Row]) -> Iterator[Family]:
        page, infix = self._page, self._page.infix
        queues = Objects({"vhost": "vhost", "queue": "name"}, rows)
        yield from queues.families(self._metrics(_QUEUES), infix, page.is_aggregated)
        if not infix:
            yield _total("queues", rows)
            consumers = float(sum(row["consumers"] for row in rows))
            yield family(f"{RABBITMQ}_consumers", "gauge", "Consumers", (), [((), consumers)])
        if "warren_queue_classes" in page.families:
            yield queues.classes(infix, page.is_aggregated)
        if "warren_mirror_metrics" in page.families:
            yield from mirrors.mirror_sums(infix, rows)
            if not page.is_aggregated:
                copies = read_mirrors(self._client, rows)
                yield from mirrors.mirror_copies(infix, copies)

    def _cluster(self, vhosts: list[str]) -> Iterator[Family]:
        """What all nodes of the cluster have."""
        families = self._page.families
        if "vhost_status" in families:
            yield cluster.vhost_status(vhosts)
        if not self._has_any(("exchange_names", "exchange_bindings")):
            return
        columns = ["vhost", "name", "type"]
        exchanges = [
            row for vhost in vhosts for row in read_rows(self._client, "exchanges", columns, vhost)
        ]
        if "exchange_names" in families:
            yield cluster.exchange_names(exchanges)
        if "exchange_bindings" in families:
            bindings = {
                vhost: read_rows(self._client, "bindings", ["source_name"], vhost)
                for vhost in vhosts
            }
            yield cluster.exchange_bindings(exchanges, bindings)


def _total(what: str, rows: list[Row]) -> Family:
    """How many objects there are of one kind."""
    return family(f"{RABBITMQ}_{what}", "gauge", what.capitalize(), (), [((), float(len(rows)))])
