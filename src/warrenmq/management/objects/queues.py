"""Queues, as RabbitMQ's HTTP API shows them."""

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final, NamedTuple

from warrenmq.admin.protocol.control import NAMES_MAX, List, Rows
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
_COUNTERS: Final = [name for name in _QUEUE if QUEUE_COLUMNS[name].type in _COUNTER_TYPES]
_OWNER_PID: Final = "owner_pid"
_OWNER: Final = "owner_pid_details"


class QueueTable:
    """The queues of a vhost, or of all that the caller sees, few of which may be shown.

    The node tells of all of them what `value` gives, and of those that are shown the rest, which
    spares most of the cost of a listing; `is_whole`: all of them are shown.
    """

    def __init__(
        self,
        caller: Caller,
        listings: RecentListings,
        vhost: str | None = None,
        is_whole: bool = False,
    ) -> None:
        self._caller = caller
        self._listings = listings
        self._vhosts = vhosts_of(caller, vhost)
        # Columns of the sketches, in order.
        self._columns = list(_QUEUE) if is_whole else ["name"]
        self._is_whole = is_whole
        self._connections: dict[str, Row] | None = None

    def sketches(self) -> list[Row]:
        """All queues, each with `name`, `vhost` and `columns`, by vhost and name.

        Asked for once, when all calls of `value` have been made.
        """
        stamps = topology_stamps(self._caller)
        asked = ",".join(self._columns)
        return [
            sketch
            for vhost in self._vhosts
            for sketch in self._listings.rows(
                "queues", f"{asked} {vhost}", partial(self._ask, vhost), stamps.get(vhost, 0)
            )
        ]

    def complete(self, sketches: Sequence[Row]) -> Iterator[Row]:
        """The queues as the API shows them, without those that are gone meanwhile."""
        if self._is_whole:
            rows = ({**_named(each["columns"]), "vhost": each["vhost"]} for each in sketches)
        else:
            rows = self._rows_of(sketches)
        for row in rows:
            yield _queue(_counted(row), self._owners() if row[_OWNER_PID] else {})

    def value(self, path: list[str]) -> Callable[[Row], Any] | None:
        """What gives the value at a path for a sketch; None if that takes a complete row.

        Statistics may have the values of other paths: `idle_since`, and those inside
        `message_stats` and `..._details`.
        """
        name, inside = path[0], path[1:]
        if name in _PLAIN:
            plain = self._column(name)
            return lambda sketch: value_at(plain(sketch), inside)
        if name == _OWNER:
            owner = self._column(_OWNER_PID)
            return lambda sketch: value_at(self._owner(owner(sketch)), inside)
        if name in _DERIVED and (name != _STATS or inside[:1] in _DISK_STATS):
            derived = _DERIVED[name]
            sources = {each: self._column(each) for each in derived.columns}
            return lambda sketch: value_at(
                derived.value({each: source(sketch) for each, source in sources.items()}), inside
            )
        if name in (_STATS, _IDLE_SINCE) or name.endswith("_details"):
            return None
        return lambda _sketch: None

    def _column(self, name: str) -> Callable[[Row], Any]:
        """What gives the value of a column for a sketch."""
        if name not in self._columns:
            self._columns.append(name)
        place = self._columns.index(name)
        missing = 0 if name in _COUNTERS else None

        def column(sketch: Row) -> Any:
            found = sketch["columns"][place]
            return missing if found is None else found

        return column

    def _owner(self, pid: str) -> Row | None:
        return self._owners().get(pid, {}) if pid else None

    def _owners(self) -> dict[str, Row]:
        """The connections by pid, asked for once."""
        if self._connections is None:
            self._connections = _connections_by_pid(self._caller)
        return self._connections

    def _ask(self, vhost: str) -> list[Row]:
        asked = List(what="queues", columns=self._columns, vhost=vhost)
        place = self._columns.index("name")
        rows = self._caller.call(asked, Rows).rows
        rows.sort(key=itemgetter(place))
        return [{"name": columns[place], "vhost": vhost, "columns": columns} for columns in rows]

    def _rows_of(self, sketches: Sequence[Row]) -> Generator[Row]:
        """The rows of the queues, which the node is asked for."""
        names: dict[str, list[str]] = {}
        for sketch in sketches:
            names.setdefault(sketch["vhost"], []).append(sketch["name"])
        found = {
            (row["vhost"], row["name"]): row
            for vhost, of_vhost in names.items()
            for at in range(0, len(of_vhost), NAMES_MAX)
            for row in rows_of_vhosts(
                self._caller, "queues", _QUEUE, [vhost], of_vhost[at : at + NAMES_MAX]
            )
        }
        for sketch in sketches:
            row = found.get((sketch["vhost"], sketch["name"]))
            if row is not None:
                yield row


def queue_called(caller: Caller, vhost: str, name: str) -> Row:
    """The queue of this name. Raises HttpRefusal if there is none."""
    row = _counted(named(rows_of_vhosts(caller, "queues", _QUEUE, [vhost], [name]), name))
    owner = row[_OWNER_PID]
    return _queue(row, _connections_by_pid(caller, [owner]) if owner else {})


def _connections_by_pid(caller: Caller, pids: list[str] | None = None) -> dict[str, Row]:
    """The connections that the caller sees, as `owner_pid_details` has one."""
    rows = caller.rows("connections", ["pid", "name", "peer_host", "peer_port"], names=pids)
    return {row.pop("pid"): row for row in rows}


def _named(columns: list[Any]) -> Row:
    return dict(zip(_QUEUE, columns, strict=True))


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
    shown |= {name: derived.value(row) for name, derived in _DERIVED.items()}
    if row[_OWNER_PID]:
        shown[_OWNER] = owners.get(row[_OWNER_PID], {})
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


class _Derived(NamedTuple):
    """A field that is made of columns; counters have a value in each of them."""

    columns: tuple[str, ...]
    value: Callable[[Row], Any]


def _or_zero(column: str) -> _Derived:
    return _Derived((column,), lambda row: 0 if row[column] is None else row[column])


_STATS: Final = "message_stats"
_IDLE_SINCE: Final = "idle_since"
_DISK_STATS: Final = (["disk_reads"], ["disk_writes"])
# Fields that are made of columns, by name.
_DERIVED: Final[dict[str, _Derived]] = {
    "node": _Derived(("leader", "pid"), lambda row: row["leader"] or node_of_pid(row["pid"] or "")),
    "exclusive": _Derived(("exclusive",), lambda row: bool(row["exclusive"])),
    "effective_policy_definition": _Derived(
        ("effective_policy_definition",), lambda row: row["effective_policy_definition"] or {}
    ),
    "consumer_utilisation": _or_zero("consumer_utilisation"),
    "consumer_capacity": _or_zero("consumer_capacity"),
    "backing_queue_status": _Derived(
        ("mode", "q1", "q2", "delta", "q3", "q4", "messages_ready", "target_ram_count"), _backing
    ),
    _STATS: _Derived(
        ("disk_reads", "disk_writes"),
        lambda row: {"disk_reads": row["disk_reads"], "disk_writes": row["disk_writes"]},
    ),
}
# Columns that are shown as they are, but for counters without a value.
_PLAIN: Final = [
    name
    for name in _QUEUE
    if name not in (*_HIDDEN, *_DERIVED) and not name.startswith("consumer_")
]
