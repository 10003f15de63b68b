"""The command `report`: the other reports and all listings of a vhost in one text."""

from typing import Final

from warrenmq.cli.control.command import Command, Run
from warrenmq.cli.control.formats.output import Output, Style, Text, table
from warrenmq.cli.control.nodes import cluster, status
from warrenmq.cli.control.objects import listings, policies, users


def _report(run: Run) -> Output:
    """Everything that somebody who helps wants to see, in one text."""
    reports = [
        ("Status of node", status.full_status(run)),
        ("Cluster status of node", cluster.cluster_status(run)),
        ("Application environment of node", status.environment(run)),
    ]
    parts = [f"{title} {run.node} ...\n{_text(output)}" for title, output in reports]
    commands = (*listings.COMMANDS, *users.COMMANDS, *policies.COMMANDS)
    names = (
        "list_queues", "list_exchanges", "list_bindings", "list_consumers", "list_connections",
        "list_channels", "list_users", "list_policies", "list_operator_policies",
    )  # fmt: skip
    for command in commands:
        if command.name in names and command.banner is not None:
            parts.append(f"{command.banner(run)}\n{_text(command.run(run))}")
    return Text("\n".join(parts).rstrip("\n"))


def _text(output: Output) -> str:
    return table(output, Style())


COMMANDS: Final = (
    Command(
        "report", listings.GROUP, "Shows all of this and all listings of a vhost", _report,
        takes_vhost=True, banner=lambda run: f"Reporting server status of node {run.node} ...",
    ),
)  # fmt: skip
