"""What a node lists, as objects of RabbitMQ's HTTP API.

Typed clients decode these, so a field has one JSON type: counters are numbers at all times, and
`arguments`, `message_stats` and the like are objects.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from warrenmq.admin.protocol.control import List, Rows
from warrenmq.admin.protocol.pids import node_of_pid
from warrenmq.admin.protocol.queue_columns import QUEUE_COLUMNS, Cost
from warrenmq.management.access import vhosts_seen
from warrenmq.management.binding_keys import properties_key
from warrenmq.management.errors import not_found
from warrenmq.management.rows import Row
from warrenmq.management.sessions import Caller

# -- listings --------------------------------------------------------------------------------------


def rows_of_vhosts(
    caller: Caller, what: Any, columns: Iterable[str], vhosts: Iterable[str]
) -> list[Row]:
    """The rows of a listing of each of the vhosts; each row has `vhost`."""
    names = list(columns)
    found = []
    with caller.session() as call:
        for vhost in vhosts:
            for row in call(List(what=what, columns=names, vhost=vhost), Rows).rows:
                found.append({**dict(zip(names, row, strict=True)), "vhost": vhost})
    return found


def vhosts_of(caller: Caller, vhost: str | None) -> list[str]:
    """The vhost that a path names, or all that the caller sees."""
    return vhosts_seen(caller) if vhost is None else [vhost]


def named(rows: Iterable[Row], name: str) -> Row:
    """The row with this name. Raises HttpRefusal if there is none."""
    for row in rows:
        if row["name"] == name:
            return row
    raise not_found()


def _known(row: Row) -> Row:
    """`row` without the fields that have no value."""
    return {name: value for name, value in row.items() if value is not None}


# -- queues ----------------------------------------------------------------------------------------

_COUNTER_TYPES: Final = ("count", "bytes", "total")
_QUEUE: Final = [
    name
    for name, column in QUEUE_COLUMNS.items()
    if column.cost != Cost.CHANNELS and name not in ("slave_pids", "synchronised_slave_pids")
]
# Columns that are shown under another name or inside an object.
_HIDDEN: Final = (
    "pid", "owner_pid", "exclusive_consumer_pid", "disk_reads", "disk_writes", "reason", "id",
    "mode", "q1", "q2", "delta", "q3", "q4", "alpha", "beta", "gamma", "target_ram_count",
)  # fmt: skip
# Columns that RabbitMQ shows as null.
_NULLABLE: Final = (
    "policy", "operator_policy", "exclusive_consumer_tag", "head_message_timestamp",
)  # fmt: skip


def queues(caller: Caller, vhost: str | None = None) -> list[Row]:
    """The queues of a vhost, or of all that the caller sees."""
    rows = rows_of_vhosts(caller, "queues", _QUEUE, vhosts_of(caller, vhost))
    return [_queue(row) for row in rows]


def _queue(row: Row) -> Row:
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
        shown["owner_pid_details"] = {"node": node_of_pid(row["owner_pid"])}
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


# -- exchanges and bindings ------------------------------------------------------------------------

_DEFAULT_EXCHANGE: Final = "amq.default"


def exchange_name(segment: str) -> str:
    """The name of the exchange that a segment of a path names; the default one has none."""
    return "" if segment == _DEFAULT_EXCHANGE else segment


_EXCHANGE: Final = (
    "name", "type", "durable", "auto_delete", "internal", "arguments", "policy",
)  # fmt: skip


def exchanges(caller: Caller, vhost: str | None = None) -> list[Row]:
    """The exchanges of a vhost, or of all that the caller sees."""
    rows = rows_of_vhosts(caller, "exchanges", _EXCHANGE, vhosts_of(caller, vhost))
    extra = {"user_who_performed_action": "", "message_stats": {}}
    return [_known(row) | extra for row in rows]


_BINDING: Final = {
    "source_name": "source",
    "destination_name": "destination",
    "destination_kind": "destination_type",
    "routing_key": "routing_key",
    "arguments": "arguments",
}


def bindings(caller: Caller, vhost: str | None = None) -> list[Row]:
    """The bindings of a vhost, or of all that the caller sees; the implicit ones are among them."""
    rows = rows_of_vhosts(caller, "bindings", _BINDING, vhosts_of(caller, vhost))
    return [_binding(row) for row in rows]


def _binding(row: Row) -> Row:
    shown: Row = {name: row[column] for column, name in _BINDING.items()}
    shown["vhost"] = row["vhost"]
    shown["properties_key"] = properties_key(row["routing_key"], row["arguments"])
    return shown


# -- connections, channels, consumers --------------------------------------------------------------

_CONNECTION: Final = [
    "pid", "name", "host", "port", "peer_host", "peer_port", "ssl", "ssl_protocol",
    "ssl_key_exchange", "ssl_cipher", "ssl_hash", "peer_cert_subject", "peer_cert_issuer",
    "peer_cert_validity", "state", "channels", "auth_mechanism", "user", "vhost", "timeout",
    "frame_max", "channel_max", "client_properties", "user_provided_name", "connected_at",
    "recv_oct", "recv_cnt", "send_oct", "send_cnt", "send_pend",
]  # fmt: skip
# What RabbitMQ shows as null on a connection without TLS.
_TLS: Final = (
    "ssl_protocol", "ssl_key_exchange", "ssl_cipher", "ssl_hash", "peer_cert_subject",
    "peer_cert_issuer", "peer_cert_validity",
)  # fmt: skip


def connections(caller: Caller) -> list[Row]:
    """The connections that the caller sees: all for a monitor, else its own."""
    return [_connection(row) for row in caller.rows("connections", _CONNECTION)]


def _connection(row: Row) -> Row:
    shown = {name: value for name, value in row.items() if value is not None or name in _TLS}
    shown["node"] = node_of_pid(shown.pop("pid"))
    shown["protocol"] = "AMQP 0-9-1"
    shown["type"] = "network"
    return shown


_CHANNEL: Final = [
    "pid", "name", "number", "user", "vhost", "transactional", "confirm", "consumer_count",
    "messages_unacknowledged", "messages_unconfirmed", "messages_uncommitted", "acks_uncommitted",
    "prefetch_count", "global_prefetch_count", "state",
]  # fmt: skip


def channels(caller: Caller) -> list[Row]:
    """The channels that the caller sees: all for a monitor, else its own."""
    return [_channel(row) for row in caller.rows("channels", _CHANNEL)]


def _channel(row: Row) -> Row:
    shown = _known(row)
    shown["node"] = node_of_pid(shown.pop("pid"))
    shown["message_stats"] = {}
    shown["connection_details"] = _connection_details(row["name"])
    return shown


def _connection_details(channel: str) -> Row:
    """The connection of the channel called `PEER_HOST:PORT -> HOST:PORT (NUMBER)`."""
    name = channel.rpartition(" (")[0]
    host, _, port = name.partition(" -> ")[0].rpartition(":")
    return {"name": name, "peer_host": host.strip("[]"), "peer_port": int(port or 0)}


_CONSUMER: Final = (
    "queue_name", "channel_pid", "consumer_tag", "ack_required", "prefetch_count", "active",
    "activity_status", "arguments",
)  # fmt: skip


def consumers(caller: Caller, vhost: str | None = None) -> list[Row]:
    """The consumers of a vhost, or of all that the caller sees.

    Those of channels that the caller does not see have no `channel_details`.
    """
    rows = rows_of_vhosts(caller, "consumers", _CONSUMER, vhosts_of(caller, vhost))
    channel_of = {row["pid"]: row for row in caller.rows("channels", _CHANNEL)} if rows else {}
    return [_consumer(row, channel_of.get(row["channel_pid"])) for row in rows]


def _consumer(row: Row, channel: Row | None) -> Row:
    shown = _known(row)
    shown["queue"] = {"name": shown.pop("queue_name"), "vhost": shown.pop("vhost")}
    del shown["channel_pid"]
    shown["channel_details"] = {} if channel is None else _channel_details(channel)
    return shown


def _channel_details(channel: Row) -> Row:
    connection = _connection_details(channel["name"])
    return {
        "name": channel["name"],
        "number": channel["number"],
        "connection_name": connection["name"],
        "node": node_of_pid(channel["pid"]),
        "peer_host": connection["peer_host"],
        "peer_port": connection["peer_port"],
        "user": channel["user"],
    }


# -- vhosts ----------------------------------------------------------------------------------------

_VHOST: Final = ["name", "tracing", "description", "tags", "default_queue_type", "cluster_state"]
MESSAGE_COUNTS: Final = ("messages", "messages_ready", "messages_unacknowledged")


def vhosts(caller: Caller) -> list[Row]:
    """The vhosts that the caller sees, with their messages."""
    rows = caller.rows("vhosts", _VHOST)
    names = [row["name"] for row in rows]
    totals = {name: dict.fromkeys(MESSAGE_COUNTS, 0) for name in names}
    for queue in rows_of_vhosts(caller, "queues", MESSAGE_COUNTS, names):
        add_messages(totals[queue["vhost"]], queue)
    return [_vhost(row) | totals[row["name"]] for row in rows]


def _vhost(row: Row) -> Row:
    metadata = {"description": row["description"], "tags": row["tags"]}
    return row | {"metadata": metadata, "message_stats": {}}


def add_messages(total: dict[str, int], queue: Row) -> None:
    """Add the messages of a queue, which may be down and have none, to `total`."""
    for name in MESSAGE_COUNTS:
        total[name] += queue[name] or 0


# -- users, permissions, policies, parameters, limits ----------------------------------------------

_USER: Final = ["user", "tags", "password_hash", "hashing_algorithm", "limits"]


def users(caller: Caller) -> list[Row]:
    """All users."""
    rows = caller.rows("users", _USER)
    return [{"name": row.pop("user"), **row} for row in rows]


PERMISSION: Final = ("user", "vhost", "configure", "write", "read")
TOPIC_PERMISSION: Final = ("user", "vhost", "exchange", "write", "read")


def with_values(rows: Iterable[Row], column: str, name: str) -> list[Row]:
    """The rows with what is JSON in `column` as a value called `name`."""
    return [
        {key: value for key, value in row.items() if key != column}
        | {name: msgspec.json.decode(row[column])}
        for row in rows
    ]


_POLICY: Final = ("name", "pattern", "apply-to", "definition", "priority")


def policies(caller: Caller, what: str, vhost: str | None = None) -> list[Row]:
    """The `policies`, or the `operator_policies`, of a vhost or of all that the caller sees."""
    rows = rows_of_vhosts(caller, what, _POLICY, vhosts_of(caller, vhost))
    return with_values(rows, "definition", "definition")


def parameters(caller: Caller, vhost: str | None = None) -> list[Row]:
    """The parameters of a vhost, or of all that the caller sees."""
    columns = ("component", "name", "value")
    rows = rows_of_vhosts(caller, "parameters", columns, vhosts_of(caller, vhost))
    return with_values(rows, "value", "value")
