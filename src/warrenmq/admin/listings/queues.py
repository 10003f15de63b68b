"""The listing of queues.

`protocol/queue_columns.py` describes the columns; this module has their values. Differences to
RabbitMQ's columns:

* `messages_ram` and the other `*_ram` columns count contents in memory, as RabbitMQ does, but
  `message_bytes_ram` and `message_bytes_paged_out` are bytes of addresses, properties and bodies,
  where RabbitMQ counts bodies.
* `head_message_timestamp` is that of the oldest ready message; RabbitMQ takes unacked ones too.
* `disk_writes` counts messages when they are written, so a message that is settled before that is
  not counted. A message that is first journaled and then moved to the index counts once.
* `messages_persistent` has the messages that outlive a restart. A reader group makes the journal
  keep messages that were published as transient.
* `leader`, `members` and `online` are those of quorum queues, and of mirrored queues too.
* `oldest_unacknowledged_seconds` comes from the oldest OLDEST_PER_CHANNEL unacked deliveries of
  each channel of this node, so that it costs the same however many there are.
* A quorum queue has all figures of other queues, where RabbitMQ shows nothing. As there,
  `exclusive` is empty: no quorum queue is.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from warrenmq.admin.listings.columns import Columns, ListingOf, chosen, table_value, vhost_of
from warrenmq.admin.listings.mirrors import COPY_COLUMNS, MIRROR_COLUMNS
from warrenmq.admin.listings.pids import channel_pid, connection_pid, queue_pid
from warrenmq.admin.protocol.control import List
from warrenmq.admin.protocol.queue_columns import Cost, costs_of
from warrenmq.broker.broker import Broker
from warrenmq.broker.channel.channel import ChannelConsumer
from warrenmq.broker.connection.connection import Connection
from warrenmq.broker.mirrors import MirrorFacts
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.queues.arguments import CLASSIC, QUORUM
from warrenmq.queues.backing.paged_queue import PagedQueue
from warrenmq.queues.backing.variable_queue import READY
from warrenmq.queues.entry import QueueEnd
from warrenmq.queues.queue import Queue
from warrenmq.queues.queue_figures import QueueFigures
from warrenmq.vocabulary.names import name_text
from warrenmq.wire.errors import ConnectionException
from warrenmq.wire.properties import decode_properties

# Unacked deliveries of a channel that the listing looks at, the oldest ones.
OLDEST_PER_CHANNEL: Final = 16


@dataclass(frozen=True)
class ListedQueue:
    """A queue of a vhost; `copies`: None if it is not mirrored, or if no column asks for them.

    `oldest_unacked_s`: for how long its oldest unacked delivery waits at least (s), None without
    one, or if no column asks for it.
    """

    broker: Broker
    vhost: Vhost
    queue: Queue
    copies: MirrorFacts | None = None
    oldest_unacked_s: float | None = None

    @cached_property
    def figures(self) -> QueueFigures:
        """The figures of the queue, taken once for all columns that show one."""
        return QueueFigures(self.queue)

    def owner_pid(self) -> str | None:
        """The pid of the connection of an exclusive queue."""
        owner = self.queue.definition.owner
        return connection_pid(self.broker, owner) if isinstance(owner, Connection) else None

    def exclusive_consumer(self) -> ChannelConsumer | None:
        """The consumer that has the queue for itself."""
        if not self.queue.exclusive_consumer:
            return None
        consumer = self.queue.consumers[0]
        return consumer if isinstance(consumer, ChannelConsumer) else None

    def exclusive_consumer_pid(self) -> str | None:
        """The pid of that consumer's channel."""
        consumer = self.exclusive_consumer()
        return None if consumer is None else channel_pid(self.broker, consumer.channel)

    def exclusive_consumer_tag(self) -> str | None:
        """The tag of that consumer."""
        consumer = self.exclusive_consumer()
        return None if consumer is None else name_text(consumer.tag)

    def effective_definition(self) -> dict[str, Any] | None:
        """The definition that results from the policy and the operator policy of the queue."""
        policies = self.vhost.policies.of_queue(self.queue)
        return None if policies is None else policies.definition

    def is_quorum(self) -> bool:
        """Whether the queue was declared as a quorum queue."""
        return self.queue.settings.traits.is_quorum

    def of_copies(self, name: str) -> Any:
        """A column about the copies; a queue without mirrors is its own only copy."""
        if self.copies is not None:
            return COPY_COLUMNS[name](self.copies)
        node = self.broker.settings.node_name
        alone = {"leader": node, "members": [node], "online": [node]}
        return alone.get(name) if self.is_quorum() else None

    def capacity(self) -> float:
        """The share of time in which consumers could take messages; 0 without consumers."""
        if not self.queue.consumers:
            return 0
        return self.queue.consumer_use.share(self.queue.backing.store.now_ms)

    def persistent_count(self) -> int:
        """Messages that outlive a restart; 0 for a queue that is not durable."""
        if not self.queue.durable:
            return 0
        count = self.queue.ready_count + self.queue.unacked_count
        return count - sum([level.transient_count for level in self.queue.backings()])

    def persistent_bytes(self) -> int:
        """Bytes of the bodies of these messages."""
        if not self.queue.durable:
            return 0
        size = 0
        for level in self.queue.backings():
            size += level.ready.body_bytes + level.unacked.body_bytes - level.transient_bytes
        # After a start, the bytes of messages on disk are an estimate.
        return max(0, size)

    def head_timestamp(self) -> int | None:
        """The timestamp of the oldest ready message, while its content is in memory."""
        levels = [each.ready for each in self.queue.backings() if each.ready.count > 0]
        if not levels or levels[0].head_state() != READY:
            return None
        ready = levels[0]
        try:
            return decode_properties(ready.head().message.properties).timestamp
        except ConnectionException:
            return None


def _find(broker: Broker, request: List) -> Iterator[ListedQueue]:
    vhost = vhost_of(broker, request)
    queues = chosen(vhost.queues, request.names)
    costs = costs_of(request.columns)
    mirrors = broker.mirrors if Cost.COPIES in costs else None
    ages = _oldest_unacked_s(broker, vhost) if Cost.CHANNELS in costs else {}

    def listed(queue: Queue) -> ListedQueue:
        copies = None if mirrors is None else mirrors.facts_of(vhost.name, queue.name)
        return ListedQueue(broker, vhost, queue, copies, ages.get(queue))

    return (listed(queue) for queue in queues if not queue.is_deleted)


def _oldest_unacked_s(broker: Broker, vhost: Vhost) -> dict[QueueEnd, float]:
    """By queue, for how long its oldest unacked delivery waits at least (s)."""
    found: dict[QueueEnd, float] = {}
    channels = [channel for each in broker.connections for channel in each.channels.values()]
    for channel in channels:
        if channel.vhost is not vhost:
            continue
        for entry in channel.unacked.oldest(OLDEST_PER_CHANNEL):
            age_s = channel.unacked.age_ms(entry.delivery_tag) / 1000
            found[entry.queue] = max(age_s, found.get(entry.queue, 0.0))
    return found


def _of_copies(name: str) -> Callable[[ListedQueue], Any]:
    return lambda each: each.of_copies(name)


def _of_mirrors(name: str) -> Callable[[ListedQueue], Any]:
    value = MIRROR_COLUMNS[name]
    return lambda each: None if each.copies is None else value(each.copies)


def _sum(figure: Callable[[PagedQueue], int]) -> Callable[[ListedQueue], int]:
    """The sum of `figure` over the levels of a queue; a queue without priorities has one."""
    return lambda each: sum([figure(level) for level in each.queue.backings()])


_DEFINITION: Columns[ListedQueue] = {
    "name": lambda each: name_text(each.queue.name),
    "vhost": lambda each: name_text(each.vhost.name),
    "id": lambda each: each.queue.id,
    "pid": lambda each: queue_pid(each.broker, each.queue),
    "type": lambda each: QUORUM if each.is_quorum() else CLASSIC,
    "state": lambda each: (
        "paused" if each.queue.is_paused else each.of_copies("state") or "running"
    ),
    "paused": lambda each: each.queue.is_paused,
    "durable": lambda each: each.queue.durable,
    "auto_delete": lambda each: each.queue.definition.auto_delete,
    "exclusive": lambda each: None if each.is_quorum() else each.queue.definition.owner is not None,
    "arguments": lambda each: table_value(each.queue.definition.arguments),
    "owner_pid": ListedQueue.owner_pid,
    "policy": lambda each: each.vhost.policies.policy_of(each.queue),
    "operator_policy": lambda each: each.vhost.policies.operator_policy_of(each.queue),
    "effective_policy_definition": ListedQueue.effective_definition,
    "mode": lambda each: "lazy" if each.queue.settings.is_lazy else "default",
    **{name: _of_copies(name) for name in COPY_COLUMNS if name != "state"},
    **{name: _of_mirrors(name) for name in MIRROR_COLUMNS},
}
_CONSUMERS: Columns[ListedQueue] = {
    "consumers": lambda each: len(each.queue.consumers),
    "consumer_capacity": ListedQueue.capacity,
    "consumer_utilisation": ListedQueue.capacity,
    "exclusive_consumer_pid": ListedQueue.exclusive_consumer_pid,
    "exclusive_consumer_tag": ListedQueue.exclusive_consumer_tag,
}
_MESSAGES: Columns[ListedQueue] = {
    "messages": lambda each: each.queue.ready_count + each.queue.unacked_count,
    "messages_ready": lambda each: each.queue.ready_count,
    "messages_unacknowledged": lambda each: each.queue.unacked_count,
    "oldest_unacknowledged_seconds": lambda each: each.oldest_unacked_s,
    "messages_ram": lambda each: each.figures.ram_count,
    "messages_ready_ram": _sum(lambda level: level.ready.ram_count),
    "messages_unacknowledged_ram": _sum(lambda level: level.unacked.ram_count),
    "messages_persistent": ListedQueue.persistent_count,
    "messages_paged_out": _sum(lambda level: level.ready.count - level.ready.ram_count),
    "head_message_timestamp": ListedQueue.head_timestamp,
}
_BYTES: Columns[ListedQueue] = {
    "memory": lambda each: each.figures.ram_bytes,
    "message_bytes": lambda each: each.figures.body_bytes,
    "message_bytes_ready": _sum(lambda level: level.ready.body_bytes),
    "message_bytes_unacknowledged": _sum(lambda level: level.unacked.body_bytes),
    "message_bytes_persistent": ListedQueue.persistent_bytes,
    "message_bytes_ram": _sum(lambda level: level.ready.alpha_bytes + level.unacked.content_bytes),
    "message_bytes_paged_out": _sum(
        lambda level: (
            level.ready.beta_bytes + level.ready.gamma_bytes + level.ready.delta.content_bytes
        )
    ),
    "disk_reads": _sum(lambda level: level.counters.read),
    "disk_writes": _sum(lambda level: level.ledger.written_count),
}
# The parts of the queue, youngest first, and the forms of its ready messages.
_PARTS: Columns[ListedQueue] = {
    "q1": lambda each: each.figures.q1,
    "q2": lambda each: each.figures.q2,
    "delta": lambda each: each.figures.delta_part,
    "q3": lambda each: each.figures.q3,
    "q4": lambda each: each.figures.q4,
    "alpha": lambda each: each.figures.alpha.count,
    "beta": lambda each: each.figures.beta.count,
    "gamma": lambda each: each.figures.gamma.count,
    "target_ram_count": lambda each: each.figures.target_ram_count,
}

QUEUES = ListingOf(_DEFINITION | _CONSUMERS | _MESSAGES | _BYTES | _PARTS, _find)
