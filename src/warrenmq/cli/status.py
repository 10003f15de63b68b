"""`warren status` and `warren queues`: the figures of a running node.

Exit status: 0, or 2 with one line on standard error when the node does not answer or refuses.
"""

import time
from typing import Annotated, Any, Final

import msgspec
import typer

from warrenmq.admin.protocol.figures import (
    ContentStatus,
    DescribeNode,
    LogStatus,
    NodeStatus,
    VhostStatus,
    WriteStatus,
)
from warrenmq.cli import queue_rows
from warrenmq.cli.connection import Node, node_client, takes_node
from warrenmq.cli.durations import durations_as_json, measured, print_durations
from warrenmq.cli.output import AsJson, print_json, print_rows
from warrenmq.offline.sizes import size_text, writes_text

# Differences of clocks that are shown (s): a smaller one may be the way to the node.
_CLOCK_S: Final = 1.0


@takes_node
def status_command(
    node: Node,
    measure: Annotated[
        float | None,
        typer.Option(
            min=0.1, metavar="SECONDS", help="Also measure for so long what clients wait for."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the state of a running node and the figures of its stores.

    Users with the tag administrator or monitoring see the stores of all vhosts, others the store of
    the vhost that they name.
    """
    with node_client(node, "warren status") as client:
        durations = None if measure is None else measured(client, measure)
        status = client.request(DescribeNode(), NodeStatus)
        clock_s = time.time()
    if as_json:
        found: dict[str, Any] = msgspec.to_builtins(status)
        if durations is not None:
            found["durations"] = durations_as_json(durations)
        print_json(found)
        return
    _print_node(status)
    if status.now_ms is not None:
        _print_clock(status.now_ms / 1000 - clock_s)
    if durations is not None and measure is not None:
        print_durations(durations, measure)
    for each in status.vhosts:
        _print_vhost(each)


@takes_node
def queues_command(
    node: Node,
    sort: queue_rows.SortBy = queue_rows.QueueSort.NAME,
    as_json: AsJson = False,
) -> None:
    """Show the queues of a vhost of a running node: their messages, bytes and rates."""
    with node_client(node, "warren queues") as client:
        rows = queue_rows.in_order(map(queue_rows.with_rates, queue_rows.all_queues(client)), sort)
    if as_json:
        queues = [msgspec.to_builtins(row.queue) for row in rows]
        print_json({"vhost": node.address.vhost, "queues": queues})
        return
    print_rows([queue_rows.TITLES, *map(queue_rows.cells, rows)], queue_rows.TEXT_COLUMNS)


def _print_node(status: NodeStatus) -> None:
    alarms = " and ".join(status.alarms) or "none"
    if status.alarms and status.blocked is not None:
        alarms += f"; {status.blocked} connections that publish are blocked"
    print(
        f"{status.node}: warren {status.version} ({status.build}), {status.connections} connections"
    )
    print(
        f"memory: {_measured(status.memory_used_bytes)} used, {size_text(status.memory_limit_bytes)} allowed, "
        f"{size_text(status.message_bytes)} by messages, {size_text(status.unfinished_bytes)} by unfinished ones"
    )
    print(
        f"disk: {_measured(status.disk_free_bytes)} free, {size_text(status.disk_limit_bytes)} must be; "
        f"a slow disk stopped publishers {status.flow_stops} times"
    )
    print(f"alarms: {alarms}")


def _print_clock(ahead_s: float) -> None:
    if abs(ahead_s) > _CLOCK_S:
        way = "ahead of" if ahead_s > 0 else "behind"
        print(f"clock: the node's is {abs(ahead_s):.0f} s {way} the one of this machine")


def _print_vhost(vhost: VhostStatus) -> None:
    print()
    print(
        f"vhost '{vhost.vhost}': {vhost.queues} queues; {size_text(vhost.disk_bytes)} on disk, "
        f"{size_text(vhost.live_bytes)} alive, debt {size_text(vhost.debt_bytes)}"
    )
    journal = vhost.journal
    index = vhost.index
    rows = [
        ["where", "size", "live", "files"],
        ["journal", size_text(journal.bytes), size_text(journal.live_bytes), str(journal.files)],
        ["index", size_text(index.bytes), size_text(index.live_bytes), str(index.segments)],
        _content_row("persistent contents", vhost.persistent),
        _content_row("transient contents", vhost.transient),
        ["to be deleted", size_text(vhost.deletable_bytes), "", ""],
    ]
    if vhost.logs is not None:
        rows.insert(2, _log_row(vhost.logs))
    print_rows(rows, 1)
    behind = ", the disk is behind" if vhost.is_behind else ""
    print(f"  {index.live_positions} messages in the index")
    print(f"  {size_text(vhost.waiting_bytes)} wait to be written{behind}")
    if vhost.writes is not None:
        _print_writes(vhost.writes)
    print(
        f"  {vhost.checkpoints} checkpoints, {vhost.failed_checkpoints} failed, the last is number {vhost.generation}"
    )
    print(f"  {vhost.damaged} damaged records, {vhost.lost} lost messages")
    if vhost.dead_letters:
        reasons = [f"{count} {reason}" for reason, count in vhost.dead_letters.items()]
        print(f"  {sum(vhost.dead_letters.values())} dead letters: {', '.join(reasons)}")
    if vhost.delayed:
        print(f"  {vhost.delayed} delayed messages")
    if vhost.groups:
        print(
            f"  {vhost.groups} reader groups hold {vhost.group_held} messages, {vhost.group_lag} are not acked"
        )


def _print_writes(writes: WriteStatus) -> None:
    written_bytes = (
        writes.journal_bytes
        + writes.content_bytes
        + writes.index_bytes
        + writes.rewritten_bytes
        + writes.compacted_bytes
        + writes.checkpoint_bytes
    )
    print(f"  {writes_text(written_bytes, writes.published_bytes, writes.amplification)}")


def _log_row(logs: LogStatus) -> list[str]:
    return ["logs of contents", size_text(logs.bytes), size_text(logs.live_bytes), str(logs.files)]


def _content_row(name: str, status: ContentStatus) -> list[str]:
    return [name, size_text(status.total_bytes), size_text(status.valid_bytes), str(status.files)]


def _measured(size: int | None) -> str:
    return "?" if size is None else size_text(size)
