"""A channel as its client knows it: consumers, outstanding deliveries, confirms it waits for.

Queues work side by side in RabbitMQ, so the deliveries of one step are told consumer by consumer.
Outstanding deliveries have places in that order. A settle of several deliveries ends with the last
one of a step, because their tags within the step are a matter of chance.
"""

from dataclasses import dataclass, field

from tests.differential.observation import MadeNames, show_content, show_item
from tests.differential.steps import Step
from tests.support.brokers.amqp_peer import ChannelPeer, Message
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicConsumeOk,
    BasicDeliver,
    BasicGetOk,
    BasicNack,
    BasicReject,
    BasicReturn,
    ChannelClose,
    ChannelFlowOk,
    ConfirmSelectOk,
    TxCommitOk,
    TxRollbackOk,
    TxSelectOk,
)

# No sequence is long enough to bring a delivery with this tag.
UNKNOWN_TAG = 9999


@dataclass
class Delivery:
    """An outstanding delivery: its tag, and the number of the step that brought it.

    `queue`: as a step named it. `consumer`: the consumer's tag, "" for basic.get.
    """

    tag: int
    step: int
    queue: str
    consumer: str


@dataclass
class Consumer:
    """A consumer of a queue, by the name that the step gave the queue."""

    queue: str
    no_ack: bool


@dataclass
class ClientChannel:
    """A channel that is open, or was until the step that is going on."""

    peer: ChannelPeer
    consumers: dict[str, Consumer] = field(default_factory=dict)
    # The consumer that consume-ok will name, and whether basic.get is without acks.
    starting: Consumer | None = None
    gets_no_ack: bool = False
    gets_from: str = ""
    outstanding: list[Delivery] = field(default_factory=list)
    # Deliveries that a transaction settles when it commits.
    uncommitted: list[Delivery] = field(default_factory=list)
    settled_tag: int = UNKNOWN_TAG
    is_transactional: bool = False
    is_confirming: bool = False
    # Consumers share a limit (basic.qos with global).
    shares_limit: bool = False
    # Publishes in confirm mode: all, and the ones of earlier steps, which are all confirmed.
    published: int = 0
    published_before: int = 0
    unconfirmed: set[int] = field(default_factory=set)

    @property
    def number(self) -> int:
        return self.peer.number

    # -- what a step does --------------------------------------------------------------------------

    def is_avoided(self, step: Step) -> bool:
        """Whether the outcome of a step does not compare.

        Chance decides in RabbitMQ when queues compete for a limit that consumers share. And when a
        channel sets one, RabbitMQ counts what the channel has got by basic.get, for good.
        """
        if step.kind in ("BasicRecover", "BasicRecoverAsync"):
            return is_mixed(self.outstanding)
        queues = {consumer.queue for consumer in self.consumers.values()}
        if step.kind == "BasicConsume":
            return self.shares_limit and not queues <= {step.text("queue")}
        if step.kind != "BasicQos" or not step.flag("global_"):
            return False
        return len(queues) > 1 or any(not delivery.consumer for delivery in self.outstanding)

    def expect(self, step: Step) -> None:
        """Note what the answer to a method will mean."""
        if step.kind == "BasicConsume":
            self.starting = Consumer(step.text("queue"), step.flag("no_ack"))
            if step.flag("nowait"):
                self.consumers.setdefault(step.text("consumer_tag"), self.starting)
        elif step.kind == "BasicGet":
            self.gets_no_ack = step.flag("no_ack")
            self.gets_from = step.text("queue")
        elif step.kind == "BasicQos":
            self.shares_limit = step.flag("global_") and step.values["prefetch_count"] != 0
        elif step.kind == "BasicCancel":
            self.consumers.pop(step.text("consumer_tag"), None)
        elif step.kind in ("BasicRecover", "BasicRecoverAsync"):
            self.outstanding.clear()

    def settle(self, step: Step) -> Method | None:
        """The method that settles the deliveries a step names.

        None when there are none, or the outcome does not compare.
        """
        how, requeue = step.text("how"), step.flag("requeue")
        place, multiple = step.values["place"], step.flag("multiple")
        gone: list[Delivery] = []
        if place == "all":
            tag = 0
            gone = list(self.outstanding) if multiple else []
        elif not isinstance(place, int):
            tag = self.settled_tag if place == "settled" else UNKNOWN_TAG
        elif not self.outstanding:
            return None
        else:
            chosen = self.outstanding[place % len(self.outstanding)]
            tag, gone = chosen.tag, [chosen]
            if multiple:
                gone = [other for other in self.outstanding if other.step <= chosen.step]
                tag = max(other.tag for other in gone)
        if how != "ack" and is_mixed(gone):
            return None
        self.outstanding = [other for other in self.outstanding if other not in gone]
        if gone:
            self.settled_tag = tag
        if self.is_transactional:
            self.uncommitted += gone
        if how == "ack":
            return BasicAck(tag, multiple)
        return BasicNack(tag, multiple, requeue) if how == "nack" else BasicReject(tag, requeue)

    def publish(self) -> None:
        """Note a publish."""
        if self.is_confirming:
            self.published += 1
            self.unconfirmed.add(self.published)

    def read_confirm(self) -> None:
        """Note the confirm that has just come, if it was one."""
        last = self.peer.log[-1] if self.peer.log else None
        if isinstance(last, BasicAck | BasicNack):
            self.unconfirmed = {
                number
                for number in self.unconfirmed
                if (number > last.delivery_tag if last.multiple else number != last.delivery_tag)
            }

    # -- what came of it ---------------------------------------------------------------------------

    def ignore_deliveries(self) -> None:
        """Forget the deliveries that have come since the last step."""
        self.peer.log = [
            item
            for item in self.peer.log
            if not (isinstance(item, Message) and isinstance(item.method, BasicDeliver))
        ]

    def observe(
        self, step: int, names: MadeNames, now_s: float, is_ordered: bool = True
    ) -> list[str]:
        """Tell what has come since the last step; `step`: number of this step.

        `is_ordered`: the order of a consumer's deliveries is told too.
        """
        told = _Told(self, step, names, now_s)
        for item in self.peer.log:
            told.tell(item)
        self.peer.log.clear()
        self.peer.replies.clear()
        self.peer.events.clear()
        return [f"{self.number}: {line}" for line in told.lines(is_ordered)]


def is_mixed(deliveries: list[Delivery]) -> bool:
    """Whether several consumers of a channel may have got these from one queue.

    RabbitMQ returns and rejects what each of them has got one after the other.
    """
    consumers: dict[str, set[str]] = {}
    for delivery in deliveries:
        consumers.setdefault(delivery.queue, set()).add(delivery.consumer)
    # "" is the queue that the channel has declared last.
    return any(len(tags) > 1 for tags in consumers.values()) or (
        "" in consumers and len(consumers) > 1
    )


class _Told:
    """What has come on a channel during one step."""

    def __init__(self, channel: ClientChannel, step: int, names: MadeNames, now_s: float) -> None:
        self._channel = channel
        self._step = step
        self._names = names
        self._now_s = now_s
        self._replies: list[str] = []
        # Deliveries by consumer; an outstanding one has a `Delivery`.
        self._deliveries: dict[str, list[tuple[str, Delivery | None]]] = {}
        self._tags: list[int] = []
        self._cancelled: list[str] = []
        self._acked: set[int] = set()
        self._nacked: set[int] = set()
        self._unconfirmed = set(range(channel.published_before + 1, channel.published + 1))
        channel.published_before = channel.published

    def tell(self, item: Method | Message) -> None:
        """Take what came next."""
        method = item.method if isinstance(item, Message) else item
        channel = self._channel
        if isinstance(item, Message) and isinstance(method, BasicDeliver):
            self._deliver(item, method)
        elif isinstance(method, BasicAck | BasicNack):
            self._confirm(method)
        elif isinstance(method, BasicCancel):
            tag = self._tag(method.consumer_tag)
            channel.consumers.pop(tag, None)
            self._cancelled.append(tag)
        elif not isinstance(method, ChannelFlowOk):
            if isinstance(method, BasicReturn):
                # The confirm of a returned message comes after it.
                self._replies.append(f"confirmed {len(self._acked)}")
            self._replies.append(show_item(item, self._names, self._now_s))
            self._learn(method)

    def lines(self, is_ordered: bool) -> list[str]:
        """All of it, the same for brokers that do the same."""
        found = list(self._replies)
        for tag in sorted(self._deliveries):
            deliveries = self._deliveries[tag]
            if not is_ordered:
                deliveries = sorted(deliveries, key=lambda delivery: delivery[0])
            found += [f"{tag} gets {shown}" for shown, _ in deliveries]
            self._channel.outstanding += [delivery for _, delivery in deliveries if delivery]
        if self._tags:
            found.append(f"tags {sorted(self._tags)}")
        if self._acked or self._nacked:
            found.append(f"acks {sorted(self._acked)}, nacks {sorted(self._nacked)}")
        return found + [f"cancelled {tag}" for tag in sorted(self._cancelled)]

    def _deliver(self, message: Message, deliver: BasicDeliver) -> None:
        tag = self._tag(deliver.consumer_tag)
        consumer = self._channel.consumers.get(tag)
        shown = self._names.alias(
            f"{deliver.redelivered} {deliver.exchange!r} {deliver.routing_key!r} "
            f"{show_content(message, self._now_s)}"
        )
        delivery = None
        if consumer is None:
            shown += " before its consume-ok"
        elif not consumer.no_ack:
            delivery = Delivery(deliver.delivery_tag, self._step, consumer.queue, tag)
        self._deliveries.setdefault(tag, []).append((shown, delivery))
        self._tags.append(deliver.delivery_tag)

    def _confirm(self, confirm: BasicAck | BasicNack) -> None:
        numbers = {
            number
            for number in self._unconfirmed
            if number == confirm.delivery_tag
            or (confirm.multiple and number < confirm.delivery_tag)
        }
        self._unconfirmed -= numbers
        if isinstance(confirm, BasicAck):
            self._acked |= numbers
        else:
            self._nacked |= numbers

    def _learn(self, method: Method) -> None:
        channel = self._channel
        if isinstance(method, BasicConsumeOk) and channel.starting is not None:
            channel.consumers[self._tag(method.consumer_tag)] = channel.starting
        elif isinstance(method, BasicGetOk) and not channel.gets_no_ack:
            channel.outstanding.append(
                Delivery(method.delivery_tag, self._step, channel.gets_from, "")
            )
        elif isinstance(method, ConfirmSelectOk):
            channel.is_confirming = True
        elif isinstance(method, TxSelectOk):
            channel.is_transactional = True
        elif isinstance(method, TxCommitOk):
            channel.uncommitted.clear()
        elif isinstance(method, TxRollbackOk):
            channel.outstanding = sorted(
                channel.outstanding + channel.uncommitted, key=lambda delivery: delivery.step
            )
            channel.uncommitted.clear()
        elif isinstance(method, ChannelClose):
            channel.consumers.clear()

    def _tag(self, consumer_tag: bytes) -> str:
        return self._names.alias(consumer_tag.decode())
