"""`warren sink list`, `warren sink show` and `warren sink delete`: the sinks of a running node.

A sink publishes batches exactly once. Exit status: 0, or 2 with one line on standard error when the
node does not answer or refuses.
"""

from typing import Annotated

import msgspec
import typer

from warrenmq.admin.client.client import AdminRefusedError, ReplyType
from warrenmq.admin.client.sinks import joined
from warrenmq.admin.protocol.sinks import (
    DeleteSink,
    DescribeSink,
    ListSinks,
    SinkDeleted,
    SinkList,
    SinkStatus,
)
from warrenmq.cli.all_nodes import clients_of_all
from warrenmq.cli.connection import Node, takes_node
from warrenmq.cli.output import AsJson, fail, print_json, print_rows
from warrenmq.vocabulary.error_codes import NOT_FOUND

sink = typer.Typer(
    help="Sinks, which publish batches exactly once (docs/operations/monitoring.md).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

SinkName = Annotated[str, typer.Argument(metavar="SINK", help="Id of the sink.")]


@sink.command("list")
@takes_node
def list_command(
    node: Node,
    as_json: AsJson = False,
) -> None:
    """List the sinks of a vhost: last committed batch, and its messages not yet published."""
    with clients_of_all(node, "warren sink") as clients:
        found = joined(
            {name: client.request(ListSinks(), SinkList).sinks for name, client in clients.items()}
        )
    if as_json:
        print_json(
            {
                "vhost": node.address.vhost,
                "sinks": [msgspec.structs.asdict(status) for status in found],
            }
        )
        return
    rows = [["sink", "state", "batch", "left", "logs", "staged", "moved by", "nodes"]]
    rows.extend(_row(status) for status in found)
    print_rows(rows, 2)


@sink.command("show")
@takes_node
def show_command(
    name: SinkName,
    node: Node,
    as_json: AsJson = False,
) -> None:
    """Show one sink."""
    told = _ask_all(node, _request(DescribeSink, name), SinkStatus)
    (found,) = joined({node: [status] for node, status in told.items()})
    if as_json:
        print_json(msgspec.structs.asdict(found))
        return
    _, state, batch, left, logs, staged, mover, nodes = _row(found)
    print(f"{found.sink}: {state}; last batch {batch}, {left} messages of it to be published")
    if found.node:
        print(f"published by node {mover}; on nodes {nodes}")
    print(f"staged and not committed: {staged} messages in {logs} logs")


@sink.command("delete")
@takes_node
def delete_command(
    name: SinkName,
    node: Node,
    as_json: AsJson = False,
) -> None:
    """Delete a sink and drop its staged messages.

    A query that continues with the sink may publish its last batch again.
    """
    _ask_all(node, _request(DeleteSink, name), SinkDeleted)
    if as_json:
        print_json({"vhost": node.address.vhost, "sink": name, "deleted": True})
    else:
        print(f"{name} is deleted")


def _ask_all(
    node: Node, request: DescribeSink | DeleteSink, expected: type[ReplyType]
) -> dict[str, ReplyType]:
    """The replies of all nodes that know the sink; each may have stages that others have not.

    Fails if there is none.
    """
    replies: dict[str, ReplyType] = {}
    with clients_of_all(node, "warren sink") as clients:
        for name, client in clients.items():
            try:
                replies[name] = client.request(request, expected)
            except AdminRefusedError as error:
                if error.code != NOT_FOUND:
                    raise
                unknown = error
        if not replies:
            raise unknown
    return replies


def _request(kind: type[DescribeSink] | type[DeleteSink], name: str) -> DescribeSink | DeleteSink:
    try:
        return msgspec.convert({"sink": name}, kind)
    except msgspec.ValidationError:
        fail(
            ValueError(
                f"'{name}' is no id of a sink: 1 to 128 letters, digits, dots, underscores and dashes"
            )
        )


def _row(status: SinkStatus) -> list[str]:
    return [
        status.sink,
        "publishing" if status.is_busy else "idle",
        "none" if status.batch is None else str(status.batch),
        str(status.messages_left),
        str(status.stages),
        str(status.staged_messages),
        status.node or "-",
        ", ".join(status.nodes) or "-",
    ]
