"""Queues with the nodes of their copies, for lists of mirrors and the moves of masters."""

from functools import partial
from typing import Any, Final

from warrenmq.admin.protocol.control import List, Rows
from warrenmq.admin.protocol.pids import node_of_pid
from warrenmq.management.objects.listings import topology_stamps, vhosts_of
from warrenmq.management.recent_listings import RecentListings
from warrenmq.management.rows import Row
from warrenmq.management.sessions import Caller

_COLUMNS: Final = [
    "name", "type", "state", "exclusive", "pid", "leader", "members", "online", "slave_nodes",
    "synchronised_slave_nodes", "recoverable_slaves",
]  # fmt: skip


def queue_copies(caller: Caller, listings: RecentListings, vhost: str | None = None) -> list[Row]:
    """The queues of a vhost, or of all that the caller sees, perhaps of a moment ago.

    `node` is where the queue lives; `slave_nodes` is None for a queue that is not mirrored.
    """
    stamps = topology_stamps(caller)

    def ask(name: str) -> list[list[Any]]:
        return caller.call(List(what="queues", columns=_COLUMNS, vhost=name), Rows).rows

    return [
        _row(columns, each)
        for each in vhosts_of(caller, vhost)
        for columns in listings.rows("copies", each, partial(ask, each), stamps.get(each, 0))
    ]


def mirrored_queues(
    caller: Caller, listings: RecentListings, vhost: str | None = None
) -> list[Row]:
    """Those of `queue_copies` that are mirrored."""
    return [row for row in queue_copies(caller, listings, vhost) if row["slave_nodes"] is not None]


def _row(columns: list[Any], vhost: str) -> Row:
    row = {**dict(zip(_COLUMNS, columns, strict=True)), "vhost": vhost}
    row["node"] = node_of_pid(row.pop("pid"))
    return row


def mirrors_in_sync(row: Row) -> list[str]:
    """Nodes with mirrors that have all messages and are reached, the oldest first."""
    online = set(row["online"] or ())
    return [node for node in row["synchronised_slave_nodes"] or () if node in online]
