"""`warren top`: the busiest queues of a running node, again and again.

In a terminal the table stays in its place until an interrupt. Elsewhere each table is printed below
the last one, and without `--count` there is only one.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from warrenmq.admin.client.client import AdminClient
from warrenmq.cli import queue_rows
from warrenmq.cli.connection import Node, node_client, takes_node
from warrenmq.cli.output import print_rows

if TYPE_CHECKING:
    from rich.table import Table


@takes_node
def top_command(
    node: Node,
    sort: queue_rows.SortBy = queue_rows.QueueSort.MESSAGES,
    interval: Annotated[
        float, typer.Option(min=0.1, help="Seconds in which the rates of a table are measured.")
    ] = 2.0,
    rows: Annotated[int, typer.Option(min=1, help="The most queues to show.")] = 20,
    count: Annotated[
        int | None, typer.Option(min=1, help="How many tables; without it until Ctrl-C.")
    ] = None,
) -> None:
    """Show the busiest queues of a vhost of a running node, with their rates, live."""
    with node_client(node, "warren top") as client:
        if sys.stdout.isatty():
            # An interrupt is how people end it.
            with suppress(KeyboardInterrupt):
                _show(client, sort, interval, rows, count)
            return
        for found in _samples(client, sort, interval, count or 1):
            print_rows(
                [queue_rows.TITLES, *map(queue_rows.cells, found[:rows])], queue_rows.TEXT_COLUMNS
            )


def _samples(
    client: AdminClient, sort: queue_rows.QueueSort, interval_s: float, count: int | None
) -> Iterator[list[queue_rows.QueueRow]]:
    """The queues in order, `count` times, with their rates in the `interval_s` before."""
    before = {queue.id: queue for queue in queue_rows.all_queues(client)}
    began_s = time.monotonic()
    taken = 0
    while count is None or taken < count:
        time.sleep(interval_s)
        queues = queue_rows.all_queues(client)
        now_s = time.monotonic()
        rows = [
            queue_rows.with_rates_since(queue, before.get(queue.id, queue), now_s - began_s)
            for queue in queues
        ]
        yield queue_rows.in_order(rows, sort)
        before = {queue.id: queue for queue in queues}
        began_s = now_s
        taken += 1


def _show(
    client: AdminClient,
    sort: queue_rows.QueueSort,
    interval_s: float,
    limit: int,
    count: int | None,
) -> None:
    # Imported only here: other output needs no rich.
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        for found in _samples(client, sort, interval_s, count):
            live.update(_table(found[:limit]), refresh=True)


def _table(rows: list[queue_rows.QueueRow]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold")
    for index, title in enumerate(queue_rows.TITLES):
        table.add_column(title, justify="left" if index < queue_rows.TEXT_COLUMNS else "right")
    for row in rows:
        # Names of queues may look like rich's markup.
        table.add_row(*map(Text, queue_rows.cells(row)))
    return table
