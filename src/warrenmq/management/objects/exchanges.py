"""Exchanges, as RabbitMQ's HTTP API shows them."""

from typing import Final

from warrenmq.management.objects.listings import known, rows_of_vhosts, vhosts_of
from warrenmq.management.rows import Row
from warrenmq.management.sessions import Caller

_DEFAULT_EXCHANGE: Final = "amq.default"


def exchange_name(segment: str) -> str:
    """The name of the exchange that a segment of a path names; the default one has none."""
    return "" if segment == _DEFAULT_EXCHANGE else segment


_EXCHANGE: Final = (
    "name", "type", "durable", "auto_delete", "internal", "arguments", "policy",
)  # fmt: skip


def exchanges(
    caller: Caller, vhost: str | None = None, names: list[str] | None = None
) -> list[Row]:
    """The exchanges of a vhost, or of all that the caller sees; with `names`, only these."""
    rows = rows_of_vhosts(caller, "exchanges", _EXCHANGE, vhosts_of(caller, vhost), names)
    extra = {"user_who_performed_action": "", "message_stats": {}}
    return [known(row) | extra for row in rows]
