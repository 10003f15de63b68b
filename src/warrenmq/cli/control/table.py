"""All commands of `warrenctl`, by name: help, completion and the documentation derive from it."""

from typing import Final

from warrenmq.cli.control import absent, aliases, helping
from warrenmq.cli.control.command import Command
from warrenmq.cli.control.nodes import (
    checks,
    cluster,
    feature_flags,
    logs,
    mirrors,
    node,
    redundancy,
    report,
    status,
    watching,
)
from warrenmq.cli.control.objects import (
    connections,
    definitions,
    listings,
    logins,
    parameters,
    permissions,
    policies,
    queues,
    users,
    vhosts,
)

_FAMILIES: Final = (
    helping, aliases, node, cluster, feature_flags, status, report, users, permissions, listings,
    parameters, policies, vhosts, definitions, connections, queues, mirrors, checks, redundancy, logins,
    logs, watching, absent,
)  # fmt: skip
COMMANDS: Final[dict[str, Command]] = {
    command.name: command for family in _FAMILIES for command in family.COMMANDS
}
