"""Queues, as RabbitMQ's HTTP API shows them."""

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, Final

from warrenmq.admin.protocol.control import List, Rows
from warrenmq.admin.protocol.pids import node_of_pid
from warrenmq.admin.protocol.queue_columns import QUEUE_COLUMNS, Cost
from warrenmq.management.objects.listings import (
    named,
    rows_of_vhosts,
    topology_stamps,
    vhosts_of,
)
from warrenmq.management.recent_listings import RecentListings
from warrenmq.management.rows import Row, value_at
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
_COUNTERS: Final = [name for name in _QUEUE if QUEUE_COLUMNS[name].type in _COUNTER_TYPES]
_NAME: Final = _QUEUE.index("name")
_OWNER_PID: Final = _QUEUE.index("owner_pid")
_OWNER: Final = "owner_pid_details"


class QueueTable:
    """The queues of a vhost, or of all that the caller sees, few of which may be shown.

    A row of `sketches` has `name`, `vhost` and what `complete` makes a row of the API of.
    """

    def __init__(self, caller: Caller, listings: RecentListings, vhost: str | None = None) -> None:
        self._caller = caller
        stamps = topology_stamps(caller)
        self.sketches: list[Row] = [
            {"name": columns[_NAME], "vhost": each, "columns": columns}
            for each in vhosts_of(caller, vhost)
            for columns in listings.rows(
                "queues", each, partial(self._ask, each), stamps.get(each, 0)
            )
        ]

    def complete(self, sketch: Row) -> Row:
        """The queue as the API shows it."""
        row = _counted({**_columns(sketch), "vhost": sketch["vhost"]})
        return _queue(row, self._owners if row["owner_pid"] else {})

    def plain_value(self, path: list[str]) -> Callable[[Row], Any] | None:
        """What gives the value at a path for a sketch; None if that takes a complete row.

        Statistics may have the values of other paths: `idle_since`, and those inside
        `message_stats` and `..._details`.
        """
        name, inside = path[0], path[1:]
        if name in _PLAIN:
            place = _PLAIN[name]
            missing = 0 if name in _COUNTERS else None

            def plain(sketch: Row) -> Any:
                found = sketch["columns"][place]
                return value_at(missing if found is None else found, inside)

            return plain
        if name == _OWNER:
            return lambda sketch: value_at(self._owner(sketch), inside)
        if name in _DERIVED and (name != _STATS or inside[:1] in _DISK_STATS):
            derived = _DERIVED[name]
            return lambda sketch: value_at(derived(_counted(_columns(sketch))), inside)
        if name in (_STATS, _IDLE_SINCE) or name.endswith("_details"):
            return None
        return lambda _sketch: None

    def _owner(self, sketch: Row) -> Row | None:
        pid = sketch["columns"][_OWNER_PID]
        return self._owners.get(pid, {}) if pid else None

    @cached_property
    def _owners(self) -> dict[str, Row]:
        return _connections_by_pid(self._caller)

    def _ask(self, vhost: str) -> list[list[Any]]:
        return self._caller.call(List(what="queues", columns=_QUEUE, vhost=vhost), Rows).rows


def queue_called(caller: Caller, vhost: str, name: str) -> Row:
    """The queue of this name. Raises HttpRefusal if there is none."""
    row = _counted(named(rows_of_vhosts(caller, "queues", _QUEUE, [vhost], [name]), name))
    owner = row["owner_pid"]
    return _queue(row, _connections_by_pid(caller, [owner]) if owner else {})


def _connections_by_pid(caller: Caller, pids: list[str] | None = None) -> dict[str, Row]:
    """The connections that the caller sees, as `owner_pid_details` has one."""
    rows = caller.rows("connections", ["pid", "name", "peer_host", "peer_port"], names=pids)
    return {row.pop("pid"): row for row in rows}


def _columns(sketch: Row) -> Row:
    return dict(zip(_QUEUE, sketch["columns"], strict=True))


def _counted(row: Row) -> Row:
    """The columns of a queue, with 0 where a counter has no value."""
    for name in _COUNTERS:
        if row[name] is None:
            row[name] = 0
    return row


def _queue(row: Row, owners: dict[str, Row]) -> Row:
    shown = {
        name: value
        for name, value in row.items()
        if name not in _HIDDEN and (value is not None or name in _NULLABLE)
    }
    shown |= {name: value(row) for name, value in _DERIVED.items()}
    if row["owner_pid"]:
        shown[_OWNER] = owners.get(row["owner_pid"], {})
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


def _or_zero(column: str) -> Callable[[Row], Any]:
    return lambda row: 0 if row[column] is None else row[column]


_STATS: Final = "message_stats"
_IDLE_SINCE: Final = "idle_since"
_DISK_STATS: Final = (["disk_reads"], ["disk_writes"])
# Fields that are made of columns, by name; they get the columns with counted ones.
_DERIVED: Final[dict[str, Callable[[Row], Any]]] = {
    "node": lambda row: row["leader"] or node_of_pid(row["pid"] or ""),
    "exclusive": lambda row: bool(row["exclusive"]),
    "effective_policy_definition": lambda row: row["effective_policy_definition"] or {},
    "consumer_utilisation": _or_zero("consumer_utilisation"),
    "consumer_capacity": _or_zero("consumer_capacity"),
    "backing_queue_status": _backing,
    _STATS: lambda row: {"disk_reads": row["disk_reads"], "disk_writes": row["disk_writes"]},
}
