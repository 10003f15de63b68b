"""The AMQP clients of a history: connections, channels, consumers, and everything that they see.

Each channel number has one way of publishing: with confirms, plain, or in transactions; all
channels consume. A channel that waits for an answer does nothing until the answer comes, so
operations take effect in the order in which they are sent. Clients report everything that they see
to the oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from simulator.models.messages import (
    NO_OWNER,
    OUT,
    READY,
    RESERVING,
    UNSURE,
    Copy,
    QueueModel,
    Violation,
)
from simulator.models.oracle import Oracle
from simulator.models.sinks import StagedMessages
from simulator.operations import (
    Operation,
)
from simulator.sessions.alarms import PASSING
from simulator.sessions.groups import GroupSessions
from simulator.sessions.publishes import PublishSessions
from simulator.sessions.sinks import SinkSessions
from simulator.sessions.states import (
    CONFIRM,
    PLAIN,
    TRANSACTION,
    ChannelModel,
    ConsumerModel,
    Delivery,
)
from simulator.sessions.topology import TOPOLOGY_OPERATIONS, TopologySessions
from simulator.simulated.client import SimulatedClient, method_frame
from simulator.simulated.node import SimulatedNode
from warrenmq.broker.connection.states import RUNNING
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverOk,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionClose,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)

# (connection, mode) of each channel of a history.
CHANNELS: Final = ((0, CONFIRM), (0, TRANSACTION), (1, CONFIRM), (1, PLAIN), (2, PLAIN))
RESOURCE_ERROR: Final = 506


def _nothing(_method: Method, _properties: bytes, _body: bytes) -> None:
    """Ignore an answer that carries no data."""


class Sessions:
    """The clients of one node, until the node goes down."""

    def __init__(
        self, node: SimulatedNode, oracle: Oracle, staged: StagedMessages, first_number: int
    ) -> None:
        self.node = node
        self.oracle = oracle
        self.channels: dict[int, ChannelModel] = {}
        self._clients: dict[int, SimulatedClient] = {}
        # Channels of connections that the broker has closed, by slot.
        self._lost: dict[int, ChannelModel] = {}
        # Copies delivered in this turn, by queue id.
        self._delivered: dict[int, list[Copy]] = {}
        # Queues for which basic.get-empty came in this turn.
        self._said_empty: list[QueueModel] = []
        # The order of deliveries within this turn says nothing, so it is not checked.
        self._is_mixed = False
        self.topology = TopologySessions(node, oracle, self)
        self.groups = GroupSessions(node, oracle)
        self.publishes = PublishSessions(node, oracle, self.channels, first_number)
        self.alarms = self.publishes.alarms
        self.sinks = SinkSessions(node, staged, self.publishes.take_number)

    # -- turns -------------------------------------------------------------------------------------

    def end_operation(self) -> None:
        """Let the node answer, and check the deliveries of the turn."""
        self.node.turn()
        self.groups.take_answers()
        self.sinks.take_answers()
        if self.sinks.staged.has_published or self.alarms.has_released:
            # The node has published after it decided its answers, and before clients got them.
            self._is_mixed = True
            self.sinks.staged.has_published = self.alarms.has_released = False
        said_empty, self._said_empty = self._said_empty, []
        if not self._is_mixed:
            self.oracle.check_empty(said_empty, self.node.now_ms)
        delivered = self._delivered
        if delivered:
            self._delivered = {}
            if not self._is_mixed:
                for queue_id, copies in delivered.items():
                    self.oracle.check_order(self.oracle.queues[queue_id], copies, self.node.now_ms)
        self._is_mixed = False
        for channel in self.channels.values():
            if channel.returns:
                raise Violation(
                    "return",
                    f"message {channel.returns[0][1].number} is mandatory and was not returned",
                )

    def is_waiting(self) -> bool:
        """True while an answer of the admin protocol is outstanding."""
        return self.groups.is_waiting() or self.sinks.is_waiting()

    def run(self, operation: Operation) -> bool:
        """Run the operation of a client; False when it means nothing at its turn."""
        if operation.kind == "drop_connection":
            return self._drop(operation.number(0))
        if operation.kind in TOPOLOGY_OPERATIONS:
            return self.topology.run(operation)
        if operation.kind.startswith("group_"):
            return self.groups.run(operation)
        if operation.kind.startswith("sink_"):
            return self.sinks.run(operation)
        channel = self._channel(operation.number(0))
        if (
            channel is None
            or not channel.is_free()
            or (channel.deferred and operation.kind not in PASSING)
        ):
            return False
        match operation.kind:
            case "publish" | "publish_large":
                return self.publishes.publish(channel, operation)
            case "publish_to":
                return self.publishes.publish_to(channel, operation)
            case "consume":
                return self._consume(channel, operation)
            case "get":
                return self._get(channel, operation)
            case "ack":
                return self._settle(
                    channel, operation.number(1), bool(operation.number(2)), False, True
                )
            case "nack":
                return self._settle(
                    channel,
                    operation.number(1),
                    bool(operation.number(2)),
                    bool(operation.number(3)),
                    False,
                )
            case _:
                return self._change_channel(channel, operation.kind)

    def close_all(self) -> None:
        """Disconnect every client; no message is unacked afterwards."""
        self.groups.close_all()
        self.sinks.close_all()
        for number in sorted(self._clients):
            self._drop(number)
            # Messages of a closed client may go to the next one, which must take them before it
            # closes.
            self.end_operation()

    # -- connections and channels ------------------------------------------------------------------

    def _channel(self, slot: int) -> ChannelModel | None:
        channel = self.channels.get(slot)
        if channel is not None:
            return channel
        connection, mode = CHANNELS[slot]
        client = self._clients.get(connection)
        if client is None:
            client = SimulatedClient(self.node.broker, self._receiver(connection), self.node.now_ms)
            self._clients[connection] = client
        channel = ChannelModel(slot + 1, connection, mode, client)
        self.channels[slot] = channel
        client.open_channel(channel.number, self.node.now_ms)
        if mode == CONFIRM:
            self.ask(channel, ConfirmSelect(False), ConfirmSelectOk)
        elif mode == TRANSACTION:
            self.ask(channel, TxSelect(), TxSelectOk)
        self.end_operation()
        return self.channels.get(slot)

    def _receiver(self, connection: int) -> Callable[[int, Method, bytes, bytes], None]:
        def receive(number: int, method: Method, properties: bytes, body: bytes) -> None:
            if number == 0:
                self._on_connection_method(connection, method)
                return
            channel = self.channels.get(number - 1)
            if channel is not None:
                self._on_method(channel, method, properties, body)
            elif number - 1 in self._lost and isinstance(method, BasicDeliver):
                self._on_late_delivery(self._lost[number - 1], method, properties, body)

        return receive

    def _drop(self, connection: int) -> bool:
        client = self._clients.pop(connection, None)
        if client is None:
            return False
        self._forget_channels(connection)
        # The channels requeue their messages one after another, so the order says nothing.
        self._is_mixed = True
        client.engine.shell = None
        self.node.broker.disconnect(client.engine, self.node.now_ms)
        return True

    def _forget_channels(self, connection: int) -> None:
        for slot in sorted(self.channels):
            if CHANNELS[slot][0] == connection:
                self._release(self.channels[slot])
        gone = [
            self.channels.pop(slot)
            for slot in list(self.channels)
            if CHANNELS[slot][0] == connection
        ]
        for channel in gone:
            for consumer in channel.consumers.values():
                self.topology.consumer_gone(consumer.queue)
        self.topology.connection_gone(connection)

    def _release(self, channel: ChannelModel) -> None:
        # The deliveries of the channel are ready before the broker gives them to others.
        channel.is_lost = True
        deliveries = list(channel.unacked.values())
        for settled, _ in channel.settles:
            deliveries.extend(settled.values())
        for delivery in deliveries:
            self._requeue(delivery.copy)
            # RESERVING is also ready, but in a queue of which a reader group may have reserved
            # messages.
            if delivery.copy.state in (READY, RESERVING) and self._has_careless_consumer(
                channel.client, delivery.copy.queue
            ):
                delivery.copy.state = UNSURE

    def _has_careless_consumer(self, client: SimulatedClient, queue: QueueModel) -> bool:
        """Whether a no-ack consumer of this connection may have got messages of another channel."""
        return any(
            consumer.no_ack and consumer.queue is queue
            for channel in self.channels.values()
            if channel.client is client
            for consumer in channel.consumers.values()
        )

    def _requeue(self, copy: Copy) -> None:
        if not copy.queue.is_deleting and copy.state == OUT:
            self.oracle.requeue(copy)

    def before_output(self) -> None:
        """Requeue the messages of closed connections before other clients get them."""
        self.topology.take_back_unstored()
        for connection in sorted(self._clients):
            client = self._clients[connection]
            if client.engine.state > RUNNING and not client.is_lost:
                client.is_lost = True
                self._is_mixed = True
                for slot, channel in self.channels.items():
                    if CHANNELS[slot][0] == connection:
                        self._lost[slot] = channel
                self._forget_channels(connection)

    def _on_connection_method(self, connection: int, method: Method) -> None:
        if isinstance(method, ConnectionClose):
            is_disk = method.reply_code == RESOURCE_ERROR and self.node.failed_commits > 0
            if not is_disk:
                raise Violation(
                    "closed", f"connection closed: {method.reply_code} {method.reply_text.decode()}"
                )
            client = self._clients.pop(connection, None)
            if client is not None:
                client.engine.shell = None
                self.node.broker.disconnect(client.engine, self.node.now_ms)

    def ask(
        self,
        channel: ChannelModel,
        method: Method,
        answer: type[Method],
        then: Callable[[Method, bytes, bytes], None] = _nothing,
    ) -> None:
        """Send `method`; `then` gets the answer."""
        channel.expected.append((answer, then))
        self._send(channel, method_frame(channel.number, method))

    def _send(self, channel: ChannelModel, frames: bytes) -> None:
        channel.client.send(frames, self.node.now_ms)

    # -- what arrives ------------------------------------------------------------------------------

    def _on_method(
        self, channel: ChannelModel, method: Method, properties: bytes, body: bytes
    ) -> None:
        if isinstance(method, BasicDeliver):
            consumer = channel.consumers[method.consumer_tag]
            copy = self._take(consumer.queue, method.redelivered, properties, body)
            if consumer.no_ack:
                self.oracle.settle(copy)
            else:
                consumer.unacked += 1
                channel.unacked[method.delivery_tag] = Delivery(copy, consumer)
        elif isinstance(method, BasicAck | BasicNack):
            self._on_confirm(
                channel, method.delivery_tag, method.multiple, isinstance(method, BasicAck)
            )
        elif isinstance(method, BasicReturn):
            content = channel.returns.popleft()[1] if channel.returns else None
            if content is None or (content.body, content.properties) != (body, properties):
                raise Violation("return", f"{body[:16]!r}... was returned, which is not due")
        elif isinstance(method, ChannelClose):
            raise Violation(
                "closed", f"channel closed: {method.reply_code} {method.reply_text.decode()}"
            )
        else:
            if not channel.expected or not isinstance(method, channel.expected[0][0]):
                if not (channel.expected and isinstance(method, BasicGetEmpty)):
                    raise Violation("answer", f"unexpected {type(method).__name__}")
            _, then = channel.expected.popleft()
            then(method, properties, body)

    def _take(self, queue: QueueModel, redelivered: bool, properties: bytes, body: bytes) -> Copy:
        copy = self.oracle.deliver(queue, body, properties, redelivered, self.node.now_ms)
        self._delivered.setdefault(queue.id, []).append(copy)
        return copy

    def _on_confirm(self, channel: ChannelModel, tag: int, multiple: bool, ok: bool) -> None:
        if tag not in channel.unconfirmed:
            raise Violation("confirm", f"publish {tag} was confirmed twice, or never made")
        first = min(channel.unconfirmed) if multiple else tag
        for number in range(first, tag + 1):
            publish = channel.unconfirmed.pop(number, None)
            if publish is None:
                raise Violation("confirm", f"publish {number} was confirmed twice")
            if ok:
                self.oracle.confirmed(publish.copies)
            elif self.node.failed_batches == publish.failed_batches:
                raise Violation(
                    "nack", f"publish {number} was nacked, and no commit has failed since"
                )
        if channel.returns and channel.returns[0][0] <= tag:
            raise Violation("return", f"publish {tag} was confirmed before it was returned")

    def _on_late_delivery(
        self, channel: ChannelModel, method: BasicDeliver, properties: bytes, body: bytes
    ) -> None:
        # The delivery was on its way when the broker closed the connection; without
        # acknowledgements the message is settled all the same.
        consumer = channel.consumers[method.consumer_tag]
        if consumer.no_ack and not consumer.queue.is_deleting:
            self.oracle.settle(self._take(consumer.queue, method.redelivered, properties, body))

    def free_channel(self, connection: int) -> ChannelModel | None:
        """A free channel without transactions; of `connection`, unless that is NO_OWNER."""
        for slot in (0, 2, 3, 4):
            if connection not in (NO_OWNER, CHANNELS[slot][0]):
                continue
            channel = self.channels.get(slot) or self._channel(slot)
            if channel is not None and channel.is_free() and not channel.deferred:
                return channel
        return None

    # -- consume and settle ------------------------------------------------------------------------

    def _consume(self, channel: ChannelModel, operation: Operation) -> bool:
        _, index, prefetch, no_ack = operation.values
        assert isinstance(index, int) and isinstance(prefetch, int)
        queue = self.topology.queue(index, channel.connection)
        if queue is None or len(channel.consumers) >= 3:
            return False
        self.topology.consumer_added(queue)
        channel.consumer_count += 1
        tag = b"c%d" % channel.consumer_count
        channel.consumers[tag] = ConsumerModel(tag, queue, prefetch, bool(no_ack))
        self.ask(channel, BasicQos(0, prefetch, False), BasicQosOk)
        consume = BasicConsume(queue.name.encode(), tag, False, bool(no_ack), False, False, b"")
        self.ask(channel, consume, BasicConsumeOk)
        return True

    def _get(self, channel: ChannelModel, operation: Operation) -> bool:
        queue = self.topology.queue(operation.number(1), channel.connection)
        if queue is None:
            return False
        queue.last_used_ms = self.node.now_ms
        no_ack = bool(operation.number(2))

        def got(method: Method, properties: bytes, body: bytes) -> None:
            if isinstance(method, BasicGetOk):
                copy = self._take(queue, method.redelivered, properties, body)
                if no_ack:
                    self.oracle.settle(copy)
                else:
                    channel.unacked[method.delivery_tag] = Delivery(copy, None)
            else:
                # Other clients may have got the queue's messages in this turn, and their deliveries
                # come later.
                self._said_empty.append(queue)

        self.ask(channel, BasicGet(queue.name.encode(), no_ack), BasicGetOk, got)
        return True

    def _settle(
        self, channel: ChannelModel, index: int, multiple: bool, requeue: bool, is_ack: bool
    ) -> bool:
        tags = sorted(channel.unacked)
        if not tags:
            return False
        tag = tags[min(index, len(tags) - 1)]
        chosen = [other for other in tags if other <= tag] if multiple else [tag]
        settled = {other: channel.unacked.pop(other) for other in chosen}
        if channel.mode == TRANSACTION:
            channel.settles.append((settled, requeue))
        else:
            self._apply_settle(settled, requeue)
        method = BasicAck(tag, multiple) if is_ack else BasicNack(tag, multiple, requeue)
        self._send(channel, method_frame(channel.number, method))
        return True

    def _apply_settle(self, settled: dict[int, Delivery], requeue: bool) -> None:
        for delivery in settled.values():
            if delivery.consumer is not None:
                delivery.consumer.unacked -= 1
            if requeue:
                self._requeue(delivery.copy)
            elif not delivery.copy.queue.is_deleting:
                # A queue that is being deleted ignores acks. If its deletion cannot be stored, the
                # next start finds the queue with all its messages.
                self.oracle.settle(delivery.copy)

    # -- the rest of a channel ---------------------------------------------------------------------

    def _change_channel(self, channel: ChannelModel, kind: str) -> bool:
        match kind:
            case "cancel" if channel.consumers:
                self._cancel(channel)
            case "recover" if channel.mode != TRANSACTION:
                settled, channel.unacked = channel.unacked, {}
                self._apply_settle(settled, True)
                self.ask(channel, BasicRecover(True), BasicRecoverOk)
            case "tx_commit" if channel.mode == TRANSACTION:
                self._commit(channel)
            case "tx_rollback" if channel.mode == TRANSACTION:
                for settled, _ in channel.settles:
                    channel.unacked.update(settled)
                channel.settles = []
                channel.publishes = []
                self.ask(channel, TxRollback(), TxRollbackOk)
            case "close_channel":
                self._release(channel)
                channel.unacked = {}
                channel.settles = []
                consumers = list(channel.consumers.values())
                channel.consumers = {}
                for consumer in consumers:
                    self.topology.consumer_gone(consumer.queue)

                def closed(_method: Method, _properties: bytes, _body: bytes) -> None:
                    del self.channels[channel.number - 1]

                self.ask(channel, ChannelClose(200, b"bye", 0, 0), ChannelCloseOk, closed)
            case _:
                return False
        return True

    def _cancel(self, channel: ChannelModel) -> None:
        tag = min(channel.consumers)
        queue = channel.consumers[tag].queue

        def cancelled(_method: Method, _properties: bytes, _body: bytes) -> None:
            channel.consumers.pop(tag, None)

        self.topology.consumer_gone(queue)
        self.ask(channel, BasicCancel(tag, False), BasicCancelOk, cancelled)

    def _commit(self, channel: ChannelModel) -> None:
        # Publishes and requeues of one commit reach a consumer in an order that says nothing.
        self._is_mixed = True
        copies: list[Copy] = []
        before: dict[int, int] = {}
        for publish in channel.publishes:
            known = self.oracle.topology.queues
            queues = [known[name] for name in publish.names if name in known]
            copies.extend(
                self.publishes.enqueue(publish.content, queues, publish.expiration_ms, before)
            )
            if publish.is_mandatory and not queues:
                channel.returns.append((0, publish.content))
        for settled, requeue in channel.settles:
            self._apply_settle(settled, requeue)
        channel.publishes = []
        channel.settles = []
        self.ask(channel, TxCommit(), TxCommitOk, lambda *_: self.oracle.confirmed(copies))
