"""Bindings, as RabbitMQ's HTTP API shows them."""

from typing import Final

from warrenmq.management.binding_keys import properties_key
from warrenmq.management.objects.listings import rows_of_vhosts, vhosts_of
from warrenmq.management.rows import Row
from warrenmq.management.sessions import Caller

_BINDING: Final = {
    "source_name": "source",
    "destination_name": "destination",
    "destination_kind": "destination_type",
    "routing_key": "routing_key",
    "arguments": "arguments",
}


def bindings(caller: Caller, vhost: str | None = None, names: list[str] | None = None) -> list[Row]:
    """The bindings of a vhost, or of all that the caller sees; the implicit ones are among them.

    With `names`, only those from exchanges, or to queues and exchanges, that are called so.
    """
    rows = rows_of_vhosts(caller, "bindings", _BINDING, vhosts_of(caller, vhost), names)
    return [_binding(row) for row in rows]


def _binding(row: Row) -> Row:
    shown: Row = {name: row[column] for column, name in _BINDING.items()}
    shown["vhost"] = row["vhost"]
    shown["properties_key"] = properties_key(row["routing_key"], row["arguments"])
    return shown
