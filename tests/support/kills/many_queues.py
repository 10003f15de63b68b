"""A node with very many durable queues of a few persistent messages, and pipelining clients.

`ManyQueues` knows what was confirmed: after each start every queue must exist with at least its
confirmed messages, in order and once. Every tenth queue is lazy: its messages are in an index of
its own on disk; messages of the other queues are in the journal.
"""

import contextlib
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import islice

from tests.support.brokers.amqp_frames import (
    BODY,
    PERSISTENT,
    frame,
    header_frame,
    method_frame,
    table,
)
from tests.support.brokers.amqp_peer import ChannelPeer, ConnectionClosedError, Message
from tests.support.brokers.process import BrokerProcess
from tests.support.kills.ledger import connect
from warrenmq.broker.definitions.metadata import Change, PutQueue
from warrenmq.broker.definitions.metadata_sqlite import SqliteMetadata
from warrenmq.wire.methods import BasicAck, BasicGet, BasicPublish, QueueDeclare, QueueDeclareOk

# Long, so that a busy machine cuts short neither a start nor a stop.
PATIENCE_S = 300.0
# Requests in flight of one client.
WINDOW = 2000
# Channels of a client that declares.
CHANNELS = 200
LAZY = table(x__queue__mode="lazy")


def slices(numbers: Iterable[int]) -> Iterator[list[int]]:
    """Split `numbers` into lists of WINDOW."""
    rest = iter(numbers)
    while part := list(islice(rest, WINDOW)):
        yield part


class ManyQueues:
    """`count` queues in `node`; each message names its queue and its round."""

    def __init__(self, node: BrokerProcess, count: int) -> None:
        node.start_timeout_s = PATIENCE_S
        node.stop_timeout_s = PATIENCE_S
        self.node = node
        self.count = count
        self.rounds = 0
        # Confirmed rounds of each queue.
        self.confirmed: list[list[int]] = [[] for _ in range(count)]
        # Published rounds of each queue.
        self.published: list[list[int]] = [[] for _ in range(count)]
        self.random = random.Random(count)

    def name(self, number: int) -> bytes:
        """The name of queue `number`."""
        return b"many %06d" % number

    def arguments(self, number: int) -> bytes:
        """The arguments of queue `number`."""
        return LAZY if number % 10 == 0 else b""

    # -- making them -------------------------------------------------------------------------------

    def define(self) -> None:
        """Write all definitions into the data directory of a node that has run and is stopped."""
        metadata = SqliteMetadata(self.node.directory / "data" / "node.sqlite")
        changes: list[Change] = []
        for one in range(self.count):
            changes.append(
                PutQueue(b"/", one + 1, self.name(one), True, False, self.arguments(one))
            )
        metadata.apply(changes)
        metadata.close()

    def declare(self) -> None:
        """Declare all queues with one client."""
        peer = connect(self.node)
        # A channel waits for each of its declarations; one commit serves the requests of many
        # channels.
        channels = [peer.channel() for _ in range(CHANNELS)]
        for part in slices(range(self.count)):
            declares = [
                QueueDeclare(self.name(one), False, True, arguments=self.arguments(one))
                for one in part
            ]
            peer.send(
                *(
                    method_frame(one % CHANNELS + 1, declare)
                    for one, declare in zip(part, declares, strict=True)
                )
            )
            for one in part:
                assert channels[one % CHANNELS].expect(QueueDeclareOk).queue == self.name(one)
        peer.close()

    # -- messages ----------------------------------------------------------------------------------

    def publish(self, numbers: Iterable[int]) -> None:
        """Publish the next round: a persistent message to each of these queues, all confirmed."""
        peer = connect(self.node)
        channel = peer.channel()
        channel.confirm_select()
        listed = list(numbers)
        self.send(channel, listed)
        assert self.take_confirms(channel, listed)
        peer.close()

    def send(self, channel: ChannelPeer, numbers: list[int]) -> None:
        """Publish the next round without waiting for confirms."""
        self.rounds += 1
        for one in numbers:
            self.published[one].append(self.rounds)
        for part in slices(numbers):
            channel.peer.send(*(self._message(channel.number, one) for one in part))

    def take_confirms(self, channel: ChannelPeer, numbers: list[int]) -> bool:
        """Record the confirms of this round; False when the connection ends before the last one."""
        done = 0
        while done < len(numbers):
            try:
                event = channel.event()
            except (EOFError, ConnectionClosedError):
                return False
            assert isinstance(event, BasicAck) and (
                event.multiple or event.delivery_tag == done + 1
            )
            for one in numbers[done : event.delivery_tag]:
                self.confirmed[one].append(self.rounds)
            done = event.delivery_tag
        return True

    def _message(self, channel: int, number: int) -> bytes:
        body = b"%d %d" % (number, self.rounds)
        return (
            method_frame(channel, BasicPublish(b"", self.name(number)))
            + header_frame(channel, len(body), PERSISTENT)
            + frame(BODY, channel, body)
        )

    def some(self, count: int) -> list[int]:
        """`count` numbers of queues, chosen at random."""
        return self.random.sample(range(self.count), min(count, self.count))

    # -- checks ------------------------------------------------------------------------------------

    def check_counts(self) -> None:
        """Assert that every queue exists with a possible number of messages."""
        peer = connect(self.node)
        channel = peer.channel()
        for part in slices(range(self.count)):
            peer.send(
                *(method_frame(channel.number, QueueDeclare(self.name(one), True)) for one in part)
            )
            for one in part:
                count = channel.expect(QueueDeclareOk).message_count
                assert len(self.confirmed[one]) <= count <= len(self.published[one]), self.name(one)
        peer.close()

    def check_messages(self, numbers: Iterable[int]) -> None:
        """Assert that these queues have the right messages, and requeue the messages."""
        peer = connect(self.node)
        channel = peer.channel()
        for part in slices(numbers):
            for one in part:
                get = method_frame(channel.number, BasicGet(self.name(one)))
                peer.send(get * (len(self.published[one]) + 1))
            for one in part:
                replies = [channel.reply() for _ in range(len(self.published[one]) + 1)]
                found = [item.body for item in replies if isinstance(item, Message)]
                rounds = [int(body.removeprefix(b"%d " % one)) for body in found]
                assert rounds == sorted(set(rounds)), self.name(one)
                assert set(self.confirmed[one]) <= set(rounds) <= set(self.published[one]), (
                    self.name(one)
                )
        peer.close()

    # -- ends --------------------------------------------------------------------------------------

    def stop(self) -> float:
        """Stop the node in order; returns the duration in s."""
        started = time.monotonic()
        assert self.node.stop() == 0
        return time.monotonic() - started

    def stop_while_publishing(self, patience_s: float = PATIENCE_S) -> float:
        """Publish, tell the node to stop meanwhile, and kill it if it runs after `patience_s`.

        Some messages are in flight at that time. Returns the duration of the stop in s, 0
        if the node was killed.
        """
        numbers = self.some(WINDOW)
        peer = connect(self.node)
        channel = peer.channel()
        channel.confirm_select()
        self.send(channel, numbers)
        stops = self._stops()
        # The node would wait for a client that does not answer the close.
        client = threading.Thread(target=self._be_closed, args=(channel, numbers), daemon=True)
        client.start()
        self.node.begin_stop()
        deadline = time.monotonic() + PATIENCE_S
        while self._stops() == stops:
            assert time.monotonic() < deadline, "it does not begin to stop"
            time.sleep(0.001)
        started = time.monotonic()
        process = self.node.process
        assert process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
        taken_s = time.monotonic() - started
        self.node.kill()
        status = process.returncode
        client.join(PATIENCE_S)
        assert not client.is_alive()
        assert status in (0, -signal.SIGKILL)
        return taken_s if status == 0 else 0.0

    def _be_closed(self, channel: ChannelPeer, numbers: list[int]) -> None:
        self.take_confirms(channel, numbers)
        try:
            channel.peer.await_close(PATIENCE_S)
            channel.peer.finish_close()
        except (EOFError, ConnectionClosedError):
            channel.peer.drop()

    def _stops(self) -> int:
        return self.node.log_path.read_text().count("warren.node: stopping")
