"""Policies and parameters, as RabbitMQ's HTTP API shows them."""

from typing import Final

from warrenmq.management.objects.listings import rows_of_vhosts, vhosts_of, with_values
from warrenmq.management.rows import Row
from warrenmq.management.sessions import Caller

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
