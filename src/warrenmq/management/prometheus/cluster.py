"""The metrics of what all nodes of the cluster have: vhosts, exchanges, bindings."""

from collections import Counter
from typing import Final

from warrenmq.management.prometheus.metrics import Family, family
from warrenmq.management.prometheus.reading import Table

_EXCHANGE_LABELS: Final = ("vhost", "exchange", "type")
# The columns with the values of these labels.
EXCHANGE_COLUMNS: Final = ("vhost", "name", "type")


def vhost_status(vhosts: list[str]) -> Family:
    """The vhosts, all of which run."""
    return family(
        "rabbitmq_cluster_vhost_status",
        "gauge",
        "Whether a given vhost is running",
        ("vhost",),
        [((vhost,), 1.0) for vhost in vhosts],
    )


def exchange_names(exchanges: Table) -> Family:
    """The exchanges (with columns vhost, name and type)."""
    return family(
        "rabbitmq_cluster_exchange_name",
        "gauge",
        "Enumerates exchanges without any additional info",
        _EXCHANGE_LABELS,
        [(values, 1.0) for values in exchanges.texts(EXCHANGE_COLUMNS)],
    )


def exchange_bindings(exchanges: Table, bindings: dict[str, Table]) -> Family:
    """The number of bindings from each exchange; `bindings` (with source_name) are by vhost."""
    counts: Counter[tuple[str, ...]] = Counter(
        (vhost, name) for vhost, table in bindings.items() for name in table.column("source_name")
    )
    return family(
        "rabbitmq_cluster_exchange_bindings",
        "gauge",
        "Number of bindings for an exchange",
        _EXCHANGE_LABELS,
        [(values, counts[values[:2]]) for values in exchanges.texts(EXCHANGE_COLUMNS)],
    )
