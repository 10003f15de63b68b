"""Vhosts, as RabbitMQ's HTTP API shows them, and the sums over what is in them."""

from collections.abc import Iterable
from typing import Final

from warrenmq.admin.protocol.control import MONITORING
from warrenmq.admin.protocol.totals import DescribeTotals, NodeTotals, VhostSums
from warrenmq.management.objects.listings import rows_of_vhosts
from warrenmq.management.rows import Row
from warrenmq.management.sessions import Caller

_VHOST: Final = ["name", "tracing", "description", "tags", "default_queue_type", "cluster_state"]
MESSAGE_COUNTS: Final = ("messages", "messages_ready", "messages_unacknowledged")


def vhosts(caller: Caller, has_messages: bool = True) -> list[Row]:
    """The vhosts that the caller sees; with `has_messages` their messages are counted."""
    rows = caller.rows("vhosts", _VHOST)
    if not has_messages:
        return [_vhost(row) for row in rows]
    if caller.has_tag(MONITORING):
        sums = totals_of_all(caller).vhosts
    else:
        sums = sums_of_listings(caller, [row["name"] for row in rows])
    # A vhost that has come or gone in between has no sums.
    return [
        _vhost(row) | message_counts([sums[row["name"]]] if row["name"] in sums else [])
        for row in rows
    ]


def _vhost(row: Row) -> Row:
    metadata = {"description": row["description"], "tags": row["tags"]}
    return row | {"metadata": metadata, "message_stats": {}}


def message_counts(vhosts: Iterable[VhostSums]) -> dict[str, int]:
    """The messages of these vhosts together."""
    counted = list(vhosts)
    return {name: sum([getattr(each, name) for each in counted]) for name in MESSAGE_COUNTS}


def totals_of_all(caller: Caller) -> NodeTotals:
    """The sums over all nodes, which they take in milliseconds for a monitor, and nobody else."""
    return caller.call(DescribeTotals("all"), NodeTotals)


def sums_of_listings(caller: Caller, vhosts: list[str]) -> dict[str, VhostSums]:
    """The sums of these vhosts by name, over the rows of their listings, for any caller."""
    return {vhost: _sums_of_listings(caller, vhost) for vhost in vhosts}


def _sums_of_listings(caller: Caller, vhost: str) -> VhostSums:
    queues = rows_of_vhosts(caller, "queues", [*MESSAGE_COUNTS, "consumers"], [vhost])
    # A queue that is down has no figures.
    counts = {
        name: sum([queue[name] or 0 for queue in queues]) for name in (*MESSAGE_COUNTS, "consumers")
    }
    exchanges = rows_of_vhosts(caller, "exchanges", ["name"], [vhost])
    return VhostSums(exchanges=len(exchanges), queues=len(queues), **counts)
