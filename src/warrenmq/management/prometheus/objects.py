"""The metrics of queues, connections and channels, from the columns of the node's listings.

Aggregated, a metric is the sum over all objects, which the node takes; otherwise each object has
labels. A share of time is no quantity to sum up, and a sum of counters would fall when an object
ends: these two are for single objects only.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from warrenmq.admin.protocol.totals import QueueSums
from warrenmq.management.prometheus.metrics import (
    RABBITMQ,
    WARREN,
    Family,
    Kind,
    ObjectFamily,
    Sample,
    family,
    label_text,
    object_family,
)
from warrenmq.management.prometheus.reading import Table


class ColumnMetric(NamedTuple):
    """A metric that shows a column: its name, kind and meaning."""

    name: str
    column: str
    kind: Kind
    help: str
    is_quantity: bool = True
    owner: str = RABBITMQ

    @property
    def is_summed(self) -> bool:
        """Whether the sum over all objects is a metric: one of counters would fall with an end."""
        return self.is_quantity and self.kind == "gauge"

    def full_name(self, infix: str) -> str:
        """The name with its owner; `infix` stands between them."""
        return f"{self.owner}_{infix}{self.name}"


Metrics = tuple[ColumnMetric, ...]


def _queue(name: str, column: str, text: str, kind: Kind = "gauge") -> ColumnMetric:
    return ColumnMetric(f"queue_{name}", column, kind, text)


QUEUE_COARSE: Final[Metrics] = (
    _queue("messages_ready", "messages_ready", "Messages ready to be delivered to consumers"),
    _queue(
        "messages_unacked",
        "messages_unacknowledged",
        "Messages delivered to consumers but not yet acknowledged",
    ),
    _queue("messages", "messages", "Sum of ready and unacknowledged messages"),
)
QUEUE_CONSUMERS: Final[Metrics] = (_queue("consumers", "consumers", "Consumers on a queue"),)
QUEUES: Final[Metrics] = (
    _queue("messages_ram", "messages_ram", "Ready and unacknowledged messages in memory"),
    _queue("messages_ready_ram", "messages_ready_ram", "Ready messages in memory"),
    _queue(
        "messages_unacked_ram", "messages_unacknowledged_ram", "Unacknowledged messages in memory"
    ),
    _queue("messages_persistent", "messages_persistent", "Persistent messages"),
    _queue("messages_paged_out", "messages_paged_out", "Ready messages whose content is on disk"),
    _queue("messages_bytes", "message_bytes", "Size in bytes of all bodies"),
    _queue("messages_ready_bytes", "message_bytes_ready", "Size in bytes of ready bodies"),
    _queue(
        "messages_unacked_bytes",
        "message_bytes_unacknowledged",
        "Size in bytes of unacknowledged bodies",
    ),
    _queue("messages_ram_bytes", "message_bytes_ram", "Size in bytes of contents in memory"),
    _queue(
        "messages_persistent_bytes",
        "message_bytes_persistent",
        "Size in bytes of persistent bodies",
    ),
    _queue(
        "messages_paged_out_bytes",
        "message_bytes_paged_out",
        "Size in bytes of ready contents on disk",
    ),
    _queue("process_memory_bytes", "memory", "Memory in bytes of the queue"),
    _queue("disk_reads", "disk_reads", "Messages read from disk", "counter"),
    _queue("disk_writes", "disk_writes", "Messages written to disk", "counter"),
    ColumnMetric(
        "queue_head_message_timestamp",
        "head_message_timestamp",
        "gauge",
        "Timestamp of the oldest ready message",
        False,
    ),
    ColumnMetric(
        "queue_consumer_capacity",
        "consumer_capacity",
        "gauge",
        "Share of the time in which consumers could take messages",
        False,
    ),
    ColumnMetric(
        "queue_consumer_utilisation",
        "consumer_utilisation",
        "gauge",
        "Another name of the consumer capacity",
        False,
    ),
    ColumnMetric("queue_paused", "paused", "gauge", "1 while a queue is paused", owner=WARREN),
    ColumnMetric(
        "queue_target_ram_messages",
        "target_ram_count",
        "gauge",
        "Messages that the queue may keep in memory; absent while it need not page",
        False,
        WARREN,
    ),
)
# The classes of ready messages (columns), of which delta is what the other three leave.
IN_MEMORY_CLASSES: Final = ("alpha", "beta", "gamma")

CONNECTIONS: Final[Metrics] = (
    ColumnMetric("connection_incoming_bytes", "recv_oct", "counter", "Bytes received"),
    ColumnMetric("connection_outgoing_bytes", "send_oct", "counter", "Bytes sent"),
    ColumnMetric("connection_channels", "channels", "gauge", "Channels on a connection"),
    ColumnMetric("connection_incoming_packets", "recv_cnt", "counter", "Reads of sockets"),
    ColumnMetric("connection_outgoing_packets", "send_cnt", "counter", "Writes to sockets"),
    ColumnMetric(
        "connection_pending_bytes",
        "send_pend",
        "gauge",
        "Bytes that wait to be sent",
        owner=WARREN,
    ),
)
CHANNELS: Final[Metrics] = (
    ColumnMetric("channel_consumers", "consumer_count", "gauge", "Consumers on a channel"),
    ColumnMetric(
        "channel_messages_unacked",
        "messages_unacknowledged",
        "gauge",
        "Delivered but not yet acknowledged messages",
    ),
    ColumnMetric(
        "channel_messages_unconfirmed",
        "messages_unconfirmed",
        "gauge",
        "Published but not yet confirmed messages",
    ),
    ColumnMetric(
        "channel_messages_uncommitted",
        "messages_uncommitted",
        "gauge",
        "Messages received in a transaction but not yet committed",
    ),
    ColumnMetric(
        "channel_acks_uncommitted",
        "acks_uncommitted",
        "gauge",
        "Message acknowledgements in a transaction not yet committed",
    ),
    ColumnMetric(
        "channel_prefetch",
        "global_prefetch_count",
        "gauge",
        "Total limit of unacknowledged messages",
    ),
    ColumnMetric(
        "consumer_prefetch",
        "prefetch_count",
        "gauge",
        "Limit of unacknowledged messages for each consumer",
    ),
)


def of_each_row(
    metrics: Metrics, infix: str, labels: dict[str, str], table: Table
) -> Iterator[ObjectFamily]:
    """The metrics of each object of `table`; `labels` names the columns that tell them apart."""
    texts = [label_text(labels, values) for values in table.texts(tuple(labels.values()))]
    for metric in metrics:
        name, values = metric.full_name(infix), table.column(metric.column)
        yield object_family(name, metric.kind, metric.help, texts, values)


def of_all(metrics: Metrics, infix: str, sums: object) -> Iterator[Family]:
    """The sums of the metrics over all objects; `sums` has them by the names of the columns."""
    for metric in metrics:
        if metric.is_summed:
            samples = [((), float(getattr(sums, metric.column)))]
            yield family(metric.full_name(infix), metric.kind, metric.help, (), samples)


def classes_of_each(infix: str, labels: dict[str, str], queues: Table) -> Family:
    """Ready messages of each queue by class."""
    samples: list[Sample] = []
    counts = zip(
        *(queues.column(name) for name in ("messages_ready", *IN_MEMORY_CLASSES)), strict=True
    )
    for values, (ready, *in_memory) in zip(
        queues.texts(tuple(labels.values())), counts, strict=True
    ):
        samples += [((*values, name), count) for name, count in _by_class(ready, in_memory)]
    return _classes(infix, tuple(labels), samples)


def classes_of_all(infix: str, sums: QueueSums) -> Family:
    """Ready messages of all queues by class."""
    in_memory = (sums.alpha, sums.beta, sums.gamma)
    counts = _by_class(sums.messages_ready, in_memory)
    return _classes(infix, (), [((name,), count) for name, count in counts])


def _by_class(ready: int, in_memory: Iterable[int]) -> list[tuple[str, float]]:
    counts = list(in_memory)
    return list(
        zip((*IN_MEMORY_CLASSES, "delta"), map(float, [*counts, ready - sum(counts)]), strict=True)
    )


def _classes(infix: str, labels: tuple[str, ...], samples: list[Sample]) -> Family:
    text = "Ready messages by class, alpha (in memory) to delta (on disk only)"
    name = f"{WARREN}_{infix}queue_messages"
    return family(name, "gauge", text, (*labels, "class"), samples)


def columns_of(metrics: Iterable[ColumnMetric], *others: str) -> list[str]:
    """The columns that `metrics` show, and `others`, each once."""
    return list(dict.fromkeys([*others, *(metric.column for metric in metrics)]))
