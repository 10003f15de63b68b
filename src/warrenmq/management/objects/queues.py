"""Queues, as RabbitMQ's HTTP API shows them."""

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, Final

from warrenmq.admin.protocol.control import List, Rows
from warrenmq.admin.protocol.pids import node_of_pid
from warrenmq.admin.protocol.queue_columns import QUEUE_COLUMNS, Cost
from warrenmq.management.objects.listings import named, rows_of_vhosts, vhosts_of
from warrenmq.management.recent_listings import RecentListings
from warrenmq.management.rows import Row
from warrenmq.management.sessions import Caller

_COUNTER_TYPES: Final = ("count", "bytes", "total")
_QUEUE: Final = [
    name
    for name, column in QUEUE_COLUMNS.items()
    if column.cost != Cost.CHANNELS and name not in ("slave_pids", "synchronised_slave_pids")
]
# Columns that are shown under another name or inside an object.
_HIDDEN: Final = (
    "pid", "owner_pid", "exclusive_consumer_pid", "disk_reads", "disk_writes", "reason", "id",
    "paused", "mode", "q1", "q2", "delta", "q3", "q4", "alpha", "beta", "gamma", "target_ram_count",
)  # fmt: skip
# Columns that RabbitMQ shows as null.
_NULLABLE: Final = (
    "policy", "operator_policy", "exclusive_consumer_tag", "head_message_timestamp",
)  # fmt: skip
# Columns that are shown as they are, but for counters without a value.
_PLAIN: Final = {
    name: place
    for place, name in enumerate(_QUEUE)
    if name not in (*_HIDDEN, "exclusive", "effective_policy_definition")
    and not name.startswith("consumer_")
}
_NAME: Final = _QUEUE.index("name")


class QueueTable:
    """The queues of a vhost, or of all that the caller sees, few of which may be shown.

    A row of `sketches` has `name`, `vhost` and what `complete` makes a row of the API of.
    """

    def __init__(self, caller: Caller, listings: RecentListings, vhost: str | None = None) -> None:
        self._caller = caller
        self.sketches: list[Row] = [
            {"name": columns[_NAME], "vhost": each, "columns": columns}
            for each in vhosts_of(caller, vhost)
            for columns in listings.rows(each, partial(self._ask, each))
        ]

    def complete(self, sketch: Row) -> Row:
        """The queue as the API shows it."""
        row = {**dict(zip(_QUEUE, sketch["columns"], strict=True)), "vhost": sketch["vhost"]}
        return _queue(row, self._owners if row["owner_pid"] else {})

    def plain_value(self, path: list[str]) -> Callable[[Row], Any] | None:
        """What gives the value at a path for a sketch; None if that takes a complete row."""
        place = _PLAIN.get(path[0]) if len(path) == 1 else None
        if place is None:
            return None
        missing = 0 if QUEUE_COLUMNS[path[0]].type in _COUNTER_TYPES else None

        def value(sketch: Row) -> Any:
            found = sketch["columns"][place]
            return missing if found is None else found

        return value

    @cached_property
    def _owners(self) -> dict[str, Row]:
        return _connections_by_pid(self._caller)

    def _ask(self, vhost: str) -> list[list[Any]]:
        return self._caller.call(List(what="queues", columns=_QUEUE, vhost=vhost), Rows).rows


def queue_called(caller: Caller, vhost: str, name: str) -> Row:
    """The queue of this name. Raises HttpRefusal if there is none."""
    row = named(rows_of_vhosts(caller, "queues", _QUEUE, [vhost], [name]), name)
    owner = row["owner_pid"]
    return _queue(row, _connections_by_pid(caller, [owner]) if owner else {})


def _connections_by_pid(caller: Caller, pids: list[str] | None = None) -> dict[str, Row]:
    """The connections that the caller sees, as `owner_pid_details` has one."""
    rows = caller.rows("connections", ["pid", "name", "peer_host", "peer_port"], names=pids)
    return {row.pop("pid"): row for row in rows}


def _queue(row: Row, owners: dict[str, Row]) -> Row:
    for name in _QUEUE:
        if row[name] is None and QUEUE_COLUMNS[name].type in _COUNTER_TYPES:
            row[name] = 0
    shown = {
        name: value
        for name, value in row.items()
        if name not in _HIDDEN and (value is not None or name in _NULLABLE)
    }
    shown["node"] = row["leader"] or node_of_pid(row["pid"] or "")
    shown["exclusive"] = bool(row["exclusive"])
    shown["effective_policy_definition"] = row["effective_policy_definition"] or {}
    shown.setdefault("consumer_utilisation", 0)
    shown.setdefault("consumer_capacity", 0)
    shown["backing_queue_status"] = _backing(row)
    shown["message_stats"] = {"disk_reads": row["disk_reads"], "disk_writes": row["disk_writes"]}
    if row["owner_pid"]:
        shown["owner_pid_details"] = owners.get(row["owner_pid"], {})
    return shown


def _backing(row: Row) -> Row:
    target = row["target_ram_count"]
    return {
        "mode": row["mode"] or "default",
        "version": 2,
        "q1": row["q1"],
        "q2": row["q2"],
        "delta": ["delta", "undefined", row["delta"], 0, "undefined"],
        "q3": row["q3"],
        "q4": row["q4"],
        "len": row["messages_ready"],
        "target_ram_count": "infinity" if target is None or target < 0 else target,
    }
