"""A client of one broker that performs steps, and tells what it sees of each.

The client has channels 1 to 3 on one connection and channel 4 on another, and opens them again when
a step needs one that was closed. After each step it waits until the broker is at rest. Then it
calls channel.flow on all channels: the answers come behind everything that the broker has sent.
"""

import contextlib
import itertools
from collections.abc import Iterator

from tests.differential.brokers import ComparedBroker
from tests.differential.client_channel import ClientChannel
from tests.differential.observation import MadeNames, show_item, show_method
from tests.differential.steps import Step, Values, body_of, method_of, properties_of
from tests.support.brokers.amqp_frames import BODY, frame, header_frame, method_frame
from tests.support.brokers.amqp_peer import ConnectionClosedError, Message, Peer
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    BasicGet,
    BasicPublish,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
)

CHANNELS = (1, 2, 3, 4)
FIRST, SECOND = 0, 1
# Methods behind which channel.flow would be out of turn until they are answered.
AWAITED = ("TxCommit",)
# Values of steps that name a queue or a consumer, which a broker may have made.
NAMES = ("queue", "consumer_tag", "routing_key")

Observation = list[str]


def connection_of(channel: int) -> int:
    """The connection of a channel."""
    return SECOND if channel == CHANNELS[-1] else FIRST


class Station:
    """A client of `broker`; after each step it lets `pause_ms` pass by the broker's clock.

    `one_by_one`: it waits after each message of a burst until the broker is at rest.
    """

    def __init__(self, broker: ComparedBroker, pause_ms: int = 0, one_by_one: bool = False) -> None:
        self.broker = broker
        # Queues and exchanges that the client has declared, with the channel it did that on.
        self.queues: dict[str, int] = {}
        self.exchanges: dict[str, int] = {}
        self._names = MadeNames()
        self._pause_ms = pause_ms
        self._one_by_one = one_by_one
        self._peers: dict[int, Peer] = {}
        # Channels by number: the open ones, and the ones that this step has closed.
        self._channels: dict[int, ClientChannel] = {}
        self._steps = 0
        # A connection has ended during this step.
        self._has_ended = False
        # Chance may have lost messages in RabbitMQ: one of the channels that ended with their
        # connection requeued them to a consumer without acks of another one.
        self.may_have_lost = False
        # Channels have ended with their connection, one of them with unacked messages and another
        # one with consumers, which RabbitMQ may give these messages before they end as well.
        self.ended_together = False

    def perform(self, step: Step) -> Observation:
        """Perform a step; returns what the client sees until the broker is at rest."""
        self._steps += 1
        found: Observation = []
        with self._watching(connection_of(step.channel), found):
            found += self._perform(step)
        self.broker.rest()
        if self._pause_ms:
            self.broker.elapse(self._pause_ms)
        for connection, peer in list(self._peers.items()):
            with self._watching(connection, found):
                self._flow(peer, list(peer.channels))
        return found + self._observe()

    def close(self) -> None:
        """Close both connections."""
        for connection in list(self._peers):
            self._end_connection(connection, True)

    # -- steps -------------------------------------------------------------------------------------

    def _perform(self, step: Step) -> Observation:
        if step.kind == "SetPolicy":
            value = step.values["value"]
            assert isinstance(value, dict)
            is_set = self.broker.set_policy(step.text("component"), step.text("name"), value)
            return [f"policy set: {is_set}"]
        if step.kind == "ClearPolicy":
            self.broker.clear_policy(step.text("component"), step.text("name"))
            return []
        if step.kind in ("CloseConnection", "DropConnection"):
            self._end_connection(connection_of(step.channel), step.kind == "CloseConnection")
            return []
        if step.kind == "CloseChannel" and step.channel not in self._channels:
            return []
        channel = self._open(step.channel)
        if step.kind == "Drain":
            return self._drain(channel, step.text("queue"))
        return [] if self._send(channel, step) else ["skipped"]

    def _send(self, channel: ClientChannel, step: Step) -> bool:
        """Send what a step sends, and wait until its channel has handled it; False: nothing."""
        peer, number = channel.peer.peer, channel.number
        if step.kind == "CloseChannel":
            self._call(channel, ChannelClose(200, b"bye", 0, 0))
            peer.channels.pop(number, None)
            return True
        if step.kind == "Publish":
            self._publish(channel, step.values)
        elif step.kind == "Settle":
            settle = channel.settle(step)
            if settle is None:
                return False
            peer.method(number, settle)
        elif channel.is_avoided(step):
            return False
        else:
            self._note(step)
            channel.expect(step)
            method = method_of(step.kind, self._real(step.values))
            if step.kind in AWAITED:
                self._call(channel, method)
            else:
                peer.method(number, method)
        self._flow(peer, [number])
        while channel.unconfirmed and number in peer.channels:
            self._read(peer)
        return True

    def _note(self, step: Step) -> None:
        """Note what is declared, for the end of the sequence."""
        if step.kind == "QueueDeclare" and not step.flag("passive"):
            self.queues.setdefault(step.text("queue"), step.channel)
        elif step.kind == "ExchangeDeclare" and not step.flag("passive"):
            self.exchanges.setdefault(step.text("exchange"), step.channel)

    def _real(self, values: Values) -> Values:
        """The values with the names that this broker has made."""
        return {
            name: self._names.name(value) if name in NAMES and isinstance(value, str) else value
            for name, value in values.items()
        }

    def _publish(self, channel: ClientChannel, values: Values) -> None:
        bodies, properties = values["bodies"], values.get("properties", {})
        assert isinstance(bodies, list)
        assert isinstance(properties, dict)
        raw, number = properties_of(properties), channel.number
        limit = channel.peer.peer.frame_max - 8
        method = BasicPublish(
            str(values.get("exchange", "")).encode(),
            self._names.name(str(values.get("key", ""))).encode(),
            bool(values.get("mandatory", False)),
            bool(values.get("immediate", False)),
        )
        for text in bodies:
            if number not in channel.peer.peer.channels:
                break
            body = body_of(text)
            channel.publish()
            channel.peer.peer.send(
                method_frame(number, method),
                header_frame(number, len(body), raw),
                *(frame(BODY, number, body[at : at + limit]) for at in range(0, len(body), limit)),
            )
            if self._one_by_one:
                self._flow(channel.peer.peer, [number])
                self.broker.rest()

    def _drain(self, channel: ClientChannel, queue: str) -> Observation:
        """Take all messages of a queue; a broker may close the channel instead."""
        found: Observation = []
        get = BasicGet(self._names.name(queue).encode(), True)
        while True:
            self._call(channel, get)
            message = channel.peer.replies[-1]
            if not isinstance(message, Message):
                return found
            channel.peer.log.remove(message)
            found.append(f"drained {show_item(message, self._names, self.broker.now_s())}")

    # -- connections and channels ------------------------------------------------------------------

    def _open(self, number: int) -> ClientChannel:
        connection = connection_of(number)
        if connection not in self._peers:
            self._peers[connection] = self.broker.peer().open()
        peer = self._peers[connection]
        if number not in peer.channels:
            self._channels[number] = ClientChannel(peer.channel(number))
            peer.channels[number].log.clear()
        return self._channels[number]

    def _end_connection(self, connection: int, is_orderly: bool) -> None:
        peer = self._peers.pop(connection, None)
        if peer is None:
            return
        self._end(connection)
        for number in peer.channels:
            del self._channels[number]
        if is_orderly:
            peer.close()
        else:
            peer.drop()

    def _end(self, connection: int) -> None:
        """Note that a connection ends."""
        self._has_ended = True
        channels = [
            channel
            for number, channel in self._channels.items()
            if connection_of(number) == connection
        ]
        self.may_have_lost |= any(
            consumer.no_ack for channel in channels for consumer in channel.consumers.values()
        ) and any(channel.outstanding for channel in channels)
        self.ended_together |= any(
            (one.outstanding or one.uncommitted) and other.consumers
            for one, other in itertools.permutations(channels, 2)
        )

    @contextlib.contextmanager
    def _watching(self, connection: int, found: Observation) -> Iterator[None]:
        """Tell of a connection that the broker closes meanwhile, and answer."""
        try:
            yield
        except (ConnectionClosedError, EOFError) as error:
            peer = self._peers.pop(connection)
            peer.is_closed = True
            self._end(connection)
            if isinstance(error, ConnectionClosedError):
                found.append(show_method(peer.await_close(), self._names))
                peer.finish_close()
            else:
                found.append("the socket is closed")
            peer.drop()

    # -- reading -----------------------------------------------------------------------------------

    def _flow(self, peer: Peer, numbers: list[int]) -> None:
        """Wait until the broker has handled, and told, everything on these channels."""
        numbers = [number for number in numbers if number in peer.channels]
        for number in numbers:
            peer.method(number, ChannelFlow(True))
        for number in numbers:
            replies = self._channels[number].peer.replies
            while number in peer.channels:
                if replies and isinstance(replies[-1], ChannelFlowOk):
                    replies.pop()
                    break
                self._read(peer)

    def _call(self, channel: ClientChannel, method: Method) -> None:
        """Send a method, and wait for its reply or for the close of the channel."""
        channel.peer.send(method)
        known = len(channel.peer.replies)
        while len(channel.peer.replies) == known:
            self._read(channel.peer.peer)

    def _read(self, peer: Peer) -> None:
        """Read a frame; note confirms, and answer the close of a channel."""
        if not peer.read():
            raise TimeoutError(f"{self.broker.name} is silent at step {self._steps}")
        for number, channel in list(peer.channels.items()):
            self._channels[number].read_confirm()
            if channel.replies and isinstance(channel.replies[-1], ChannelClose):
                peer.method(number, ChannelCloseOk())
                del peer.channels[number]

    def _observe(self) -> Observation:
        """What came on all channels; forgets those that are closed."""
        found: Observation = []
        # Channels of a connection end side by side, and requeue to each other's consumers.
        has_ended = self._has_ended
        self._has_ended = False
        for number, channel in sorted(self._channels.items()):
            peer = channel.peer.peer
            if peer is not self._peers.get(connection_of(number)):
                channel.ignore_deliveries()
            found += channel.observe(self._steps, self._names, self.broker.now_s(), not has_ended)
            if peer.is_closed or number not in peer.channels:
                del self._channels[number]
        return found
