"""All commands of `warrenctl`, by name: help, completion and the documentation derive from it."""

from typing import Final

from warrenmq.cli.control import (
    absent,
    aliases,
    checks,
    cluster,
    connections,
    definitions,
    feature_flags,
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
    redundancy,
    report,
    status,
    users,
    vhosts,
    watching,
)
from warrenmq.cli.control.command import Command

_FAMILIES: Final = (
    helping, aliases, node, cluster, feature_flags, status, report, users, permissions, listings,
    parameters, policies, vhosts, definitions, connections, queues, mirrors, checks, redundancy, logins,
    logs, watching, absent,
)  # fmt: skip
COMMANDS: Final[dict[str, Command]] = {
    command.name: command for family in _FAMILIES for command in family.COMMANDS
}
