"""The metrics of what all nodes of the cluster have: vhosts, exchanges, bindings."""

from collections import Counter

from warrenmq.management.prometheus.metrics import Family, family
from warrenmq.management.prometheus.objects import Row

_EXCHANGE_LABELS = ("vhost", "exchange", "type")


def vhost_status(vhosts: list[str]) -> Family:
    """The vhosts, all of which run."""
    return family(
        "rabbitmq_cluster_vhost_status",
        "gauge",
        "Whether a given vhost is running",
        ("vhost",),
        [((vhost,), 1.0) for vhost in vhosts],
    )


def exchange_names(exchanges: list[Row]) -> Family:
    """The exchanges (with columns vhost, name and type)."""
    return family(
        "rabbitmq_cluster_exchange_name",
        "gauge",
        "Enumerates exchanges without any additional info",
        _EXCHANGE_LABELS,
        [((row["vhost"], row["name"], row["type"]), 1.0) for row in exchanges],
    )


def exchange_bindings(exchanges: list[Row], bindings: dict[str, list[Row]]) -> Family:
    """The number of bindings from each exchange; `bindings` (with source_name) are by vhost."""
    counts = Counter(
        (vhost, row["source_name"]) for vhost, rows in bindings.items() for row in rows
    )
    return family(
        "rabbitmq_cluster_exchange_bindings",
        "gauge",
        "Number of bindings for an exchange",
        _EXCHANGE_LABELS,
        [
            ((row["vhost"], row["name"], row["type"]), counts[row["vhost"], row["name"]])
            for row in exchanges
        ],
    )
