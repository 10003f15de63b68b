"""All commands of `warrenctl`, by name: help, completion and the documentation derive from it."""

from typing import Final

from warrenmq.cli.control import (
    absent,
    checks,
    cluster,
    connections,
    definitions,
    helping,
    listings,
    logins,
    logs,
    mirrors,
    node,
    parameters,
    permissions,
    policies,
    queues,
    report,
    status,
    users,
    vhosts,
    watching,
)
from warrenmq.cli.control.command import Command

_FAMILIES: Final = (
    helping, node, cluster, status, report, users, permissions, listings, parameters, policies, vhosts,
    definitions, connections, queues, mirrors, checks, logins, logs, watching, absent,
)  # fmt: skip
COMMANDS: Final[dict[str, Command]] = {
    command.name: command for family in _FAMILIES for command in family.COMMANDS
}
