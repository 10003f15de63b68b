"""`warren group`: lists, shows and deletes the reader groups of a running node.

Exit status: 0; 1 when there is no group of that name; 2 with one line on standard error when the
node does not answer or refuses.
"""

from typing import Annotated

import msgspec
import typer

from warrenmq.admin.client.client import AdminRefusedError
from warrenmq.admin.protocol import requests
from warrenmq.cli.all_nodes import clients_of_all
from warrenmq.cli.connection import Node, takes_node
from warrenmq.cli.output import AsJson, fail, print_json, print_rows
from warrenmq.vocabulary.error_codes import BAD_REQUEST, NOT_FOUND
from warrenmq.vocabulary.names import name_text

NO_GROUP_EXIT = 1

group = typer.Typer(
    help="Reader groups of a running node, which read queues by position, and their lag.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the reader group.")]


@group.command("list")
@takes_node
def list_command(
    node: Node,
    as_json: AsJson = False,
) -> None:
    """List all reader groups of a vhost."""
    groups = _groups(node)
    if as_json:
        print_json({"vhost": node.address.vhost, "groups": [_as_json(each) for each in groups]})
        return
    rows = [["group", "queues", "held", "lag", "lag seconds", "opened by"]]
    for each in groups:
        lag_seconds = f"{each.lag_seconds:.1f}"
        rows.append(
            [
                each.group,
                _queues(each),
                str(each.held),
                str(each.lag),
                lag_seconds,
                each.opener or "?",
            ]
        )
    print_rows(rows, 2)


@group.command("show")
@takes_node
def show_command(
    name: GroupName,
    node: Node,
    as_json: AsJson = False,
) -> None:
    """Show one reader group, queue by queue."""
    found = [each for each in _groups(node) if each.group == name]
    if not found:
        fail(f"no reader group '{name}'", NO_GROUP_EXIT)
    (status,) = found
    if as_json:
        print_json({"vhost": node.address.vhost, **_as_json(status)})
        return
    print(
        f"{status.group}: epoch {status.epoch}, opened by {status.opener or 'nobody since the start'}"
    )
    if status.pattern:
        print(f"queues that match {status.pattern}")
    rows = [["queue", "incarnation", "acked", "reserved", "held", "lag", "lag seconds"]]
    for member in status.members:
        numbers = [member.incarnation, member.acked, member.reserved, member.held, member.lag]
        queue_name = name_text(member.queue) + (" (deleted or moved)" if member.is_lost else "")
        rows.append([queue_name, *map(str, numbers), f"{member.lag_seconds:.1f}"])
    print_rows(rows, 1)


@group.command("delete")
@takes_node
def delete_command(
    name: GroupName,
    node: Node,
    as_json: AsJson = False,
) -> None:
    """Delete a group; its messages go back to their places. Its reader ends with an error."""
    is_found = False
    with clients_of_all(node, "warren group") as clients:
        for client in clients.values():
            try:
                client.request(requests.DeleteGroup(name), requests.GroupDeleted)
                is_found = True
            except AdminRefusedError as error:
                # The node answers BAD_REQUEST to a malformed name, which no group can have.
                if error.code not in (NOT_FOUND, BAD_REQUEST):
                    raise
    if not is_found:
        fail(f"no reader group '{name}'", NO_GROUP_EXIT)
    if as_json:
        print_json({"vhost": node.address.vhost, "group": name, "deleted": True})
    else:
        print(f"{name} is deleted")


def _groups(node: Node) -> list[requests.GroupStatus]:
    """All groups, by name; in a cluster each with its parts at all nodes."""
    parts: dict[str, list[requests.GroupStatus]] = {}
    with clients_of_all(node, "warren group") as clients:
        for client in clients.values():
            for part in client.request(requests.ListGroups(), requests.GroupList).groups:
                parts.setdefault(part.group, []).append(part)
    return [_joined(parts[name]) for name in sorted(parts)]


def _joined(parts: list[requests.GroupStatus]) -> requests.GroupStatus:
    """One group from its parts; each node has an epoch of its own, and the highest is shown."""
    members = [member for part in parts for member in part.members]
    members.sort(key=lambda member: member.queue)
    return requests.GroupStatus(
        group=parts[0].group,
        pattern=parts[0].pattern,
        epoch=max([part.epoch for part in parts]),
        opener=next((part.opener for part in parts if part.opener), ""),
        held=sum([part.held for part in parts]),
        lag=sum([part.lag for part in parts]),
        lag_seconds=max([part.lag_seconds for part in parts]),
        members=members,
    )


def _as_json(status: requests.GroupStatus) -> dict[str, object]:
    found: dict[str, object] = msgspec.to_builtins(status, builtin_types=(bytes,))
    members = [
        {**msgspec.to_builtins(member, builtin_types=(bytes,)), "queue": name_text(member.queue)}
        for member in status.members
    ]
    return {**found, "members": members}


def _queues(status: requests.GroupStatus) -> str:
    """The pattern and its number of queues, or the names of the first queues."""
    if status.pattern:
        return f"{status.pattern} ({len(status.members)})"
    names = [name_text(member.queue) for member in status.members]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
