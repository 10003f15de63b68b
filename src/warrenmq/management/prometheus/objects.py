"""The metrics of queues, connections and channels, from the columns of the node's listings.

Aggregated, a metric is the sum over all objects; otherwise each object has labels. A share of time
is no quantity to sum up, and a sum of counters would fall when an object ends: these two are for
single objects only.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from warrenmq.management.prometheus.metrics import (
    RABBITMQ,
    WARREN,
    Family,
    Kind,
    Sample,
    family,
)

# A row of a listing by its columns.
Row = dict[str, Any]


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

    def value(self, row: Row) -> float | None:
        """The value in `row`, None if there is none."""
        value = row[self.column]
        return None if value is None else float(value)


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


class Objects(NamedTuple):
    """The objects of one listing, as a page shows them.

    `labels` names the columns that tell objects apart by the label of each. `rows` have the
    columns of the metrics and these.
    """

    labels: dict[str, str]
    rows: list[Row]

    def families(self, metrics: Metrics, infix: str, is_aggregated: bool) -> Iterator[Family]:
        """The metrics, summed up or one sample an object."""
        for metric in metrics:
            if is_aggregated and not metric.is_summed:
                continue
            samples = self._samples(metric.value)
            labels = tuple(self.labels)
            if is_aggregated:
                samples = [((), sum(value for _, value in samples))]
                labels = ()
            name = f"{metric.owner}_{infix}{metric.name}"
            yield family(name, metric.kind, metric.help, labels, samples)

    def _samples(self, value_of: Callable[[Row], float | None]) -> list[Sample]:
        samples = []
        columns = list(self.labels.values())
        for row in self.rows:
            value = value_of(row)
            if value is not None:
                samples.append((tuple([str(row[column]) for column in columns]), value))
        return samples

    def classes(self, infix: str, is_aggregated: bool) -> Family:
        """Ready messages of queues by class, alpha (in memory) to delta (on disk only)."""
        found: dict[tuple[str, ...], float] = {}
        columns = () if is_aggregated else tuple(self.labels.values())
        for row in self.rows:
            key = tuple([str(row[column]) for column in columns])
            left = row["messages_ready"]
            for name in IN_MEMORY_CLASSES:
                left -= row[name]
                found[*key, name] = found.get((*key, name), 0.0) + row[name]
            found[*key, "delta"] = found.get((*key, "delta"), 0.0) + left
        labels = () if is_aggregated else tuple(self.labels)
        text = "Ready messages by class, alpha (in memory) to delta (on disk only)"
        return family(
            f"{WARREN}_{infix}queue_messages", "gauge", text, (*labels, "class"), found.items()
        )


def columns_of(metrics: Iterable[ColumnMetric], *others: str) -> list[str]:
    """The columns that `metrics` show, and `others`, each once."""
    return list(dict.fromkeys([*others, *(metric.column for metric in metrics)]))
