"""The rows of `warren queues` and `warren top`: figures of queues, sorted."""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Annotated, Final, NamedTuple

import typer

from warrenmq.admin.client.client import AdminClient
from warrenmq.admin.protocol.figures import ListQueues, QueueList, QueueStatus
from warrenmq.offline.sizes import size_text

TITLES: Final = (
    "name", "mode", "ready", "unacked", "bytes", "in/s", "out/s", "ack/s", "alpha", "beta", "gamma",
    "delta", "RAM", "target",
)  # fmt: skip
# The first columns are texts, the others numbers.
TEXT_COLUMNS: Final = 2


class QueueSort(Enum):
    """The column that rows are sorted by: names ascend, figures descend."""

    NAME = "name"
    MESSAGES = "messages"
    READY = "ready"
    UNACKED = "unacked"
    BYTES = "bytes"
    IN = "in"
    OUT = "out"
    ACK = "ack"
    RAM = "ram"


SortBy = Annotated[QueueSort, typer.Option("--sort", help="What comes first: the highest of it.")]


class QueueRow(NamedTuple):
    """A queue, and its rates in messages per second: published, delivered, acked."""

    queue: QueueStatus
    in_rate: float
    out_rate: float
    ack_rate: float


_KEYS: Final[dict[QueueSort, Callable[[QueueRow], float]]] = {
    QueueSort.MESSAGES: lambda row: row.queue.ready + row.queue.unacked,
    QueueSort.READY: lambda row: row.queue.ready,
    QueueSort.UNACKED: lambda row: row.queue.unacked,
    QueueSort.BYTES: lambda row: row.queue.body_bytes or 0,
    QueueSort.IN: lambda row: row.in_rate,
    QueueSort.OUT: lambda row: row.out_rate,
    QueueSort.ACK: lambda row: row.ack_rate,
    QueueSort.RAM: lambda row: row.queue.ram_bytes,
}


def all_queues(client: AdminClient) -> list[QueueStatus]:
    """Figures of all queues of the session's vhost."""
    page = client.request(ListQueues(), QueueList)
    queues = list(page.queues)
    while not page.is_last:
        page = client.request(ListQueues(queues[-1].id), QueueList)
        queues.extend(page.queues)
    return queues


def with_rates(queue: QueueStatus) -> QueueRow:
    """The queue with the rates that its node measures every few seconds."""
    rates = queue.rates
    return QueueRow(queue, rates.published, rates.taken, rates.acked)


def with_rates_since(queue: QueueStatus, before: QueueStatus, seconds: float) -> QueueRow:
    """The queue with its rates since its figures were those of `before`, `seconds` ago."""
    return QueueRow(
        queue,
        (queue.published - before.published) / seconds,
        (queue.delivered - before.delivered) / seconds,
        (queue.settled - before.settled) / seconds,
    )


def in_order(rows: Iterable[QueueRow], sort: QueueSort) -> list[QueueRow]:
    """The rows in the order of `sort`, equal ones in that of their names."""
    by_name = sorted(rows, key=lambda row: row.queue.name)
    key = _KEYS.get(sort)
    return by_name if key is None else sorted(by_name, key=key, reverse=True)


def cells(row: QueueRow) -> tuple[str, ...]:
    """The row as texts, one for each of TITLES; a figure that an older node lacks is `?`."""
    queue = row.queue
    forms = (queue.alpha.count, queue.beta.count, queue.gamma.count, queue.delta.count)
    rates = (row.in_rate, row.out_rate, row.ack_rate)
    return (
        queue.name,
        queue.mode,
        str(queue.ready),
        str(queue.unacked),
        "?" if queue.body_bytes is None else size_text(queue.body_bytes),
        *[f"{rate:.1f}" for rate in rates],
        *map(str, forms),
        size_text(queue.ram_bytes),
        "none" if queue.target_ram_count is None else str(queue.target_ram_count),
    )
