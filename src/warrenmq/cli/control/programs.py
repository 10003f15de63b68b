"""The names under which the tool is called: its own, and those of RabbitMQ's tools.

A link with the name of one of RabbitMQ's tools has the commands of that tool: `rabbitmq-plugins
list` and `rabbitmqctl set_parameter` must not be mixed up. `rabbitmqctl` and `rabbitmq-diagnostics`
have all commands of `warrenctl`.
"""

from collections.abc import Iterable
from typing import Final

from warrenmq.cli.control import absent, aliases, helping, plugins
from warrenmq.cli.control.command import Command, Program
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
    stores,
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

_QUEUES: Final = (
    "add_member", "check_if_node_is_mirror_sync_critical", "check_if_node_is_quorum_critical",
    "delete_member", "grow", "peek", "quorum_status", "rebalance", "reclaim_quorum_memory",
    "shrink", "stream_status",
)  # fmt: skip
_UPGRADE: Final = (
    "await_online_quorum_plus_one", "await_online_synchronized_mirror", "drain", "post_upgrade",
    "revive",
)  # fmt: skip

_FAMILIES: Final = (
    helping, aliases, node, cluster, feature_flags, status, report, users, permissions, listings,
    parameters, policies, vhosts, definitions, connections, queues, mirrors, stores, checks, redundancy,
    logins, logs, watching, absent,
)  # fmt: skip
COMMANDS: Final[dict[str, Command]] = {
    command.name: command for family in _FAMILIES for command in family.COMMANDS
}


def _program(name: str, commands: Iterable[Command]) -> Program:
    return Program(name, {each.name: each for each in (*helping.COMMANDS, *commands)})


WARRENCTL: Final = Program("warrenctl", COMMANDS)
# RabbitMQ's tools by name.
PROGRAMS: Final = {
    each.name: each
    for each in (
        Program("rabbitmqctl", COMMANDS),
        Program("rabbitmq-diagnostics", COMMANDS),
        _program("rabbitmq-plugins", plugins.COMMANDS),
        _program("rabbitmq-queues", [COMMANDS[name] for name in _QUEUES]),
        _program("rabbitmq-upgrade", [COMMANDS[name] for name in _UPGRADE]),
    )
}
