"""Vhosts, as RabbitMQ's HTTP API shows them, and the totals of their messages."""

from typing import Final

from warrenmq.management.objects.listings import rows_of_vhosts
from warrenmq.management.rows import Row
from warrenmq.management.sessions import Caller

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
