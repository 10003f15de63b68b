"""Model sockets whose consumers take messages until the client stops reading.

Everything that a consumer waits in is the product's own: the circle of a queue, the room of a
channel, the rotation of a connection.
"""

from tests.support.stores.model_store import ModelHost
from warrenmq.broker.flow.room import ChannelRoom
from warrenmq.broker.flow.rotation import Rotation
from warrenmq.queues.entry import Consumer, Entry, QueueEnd
from warrenmq.queues.queue import Queue

# Unsent bytes at which a socket takes no more deliveries.
SOCKET_BYTES = 100_000
TURN_MESSAGES = 2


class ModelSocket:
    """One connection with one channel; delivered bytes are unsent until `write`."""

    def __init__(self, host: ModelHost) -> None:
        self.host = host
        self.room = ChannelRoom()
        self.rotation = Rotation()
        self.unsent = 0
        self.consumers: list[SocketConsumer] = []

    def can_take(self) -> bool:
        return self.unsent < SOCKET_BYTES

    def send(self, size: int) -> None:
        self.unsent += size
        self.host.memory.transit.change(size)

    def write(self) -> None:
        """Let the client read everything, and give turns to waiting consumers."""
        size, self.unsent = self.unsent, 0
        self.host.memory.transit.change(-size)
        while self.can_take() and (consumer := self.rotation.take()) is not None:
            self.room.give_turn(consumer, self.rotation, TURN_MESSAGES, self.host.now_ms)

    def consume(self, queue: Queue, prefetch: int = 0, no_ack: bool = False) -> "SocketConsumer":
        consumer = SocketConsumer(self, queue, prefetch, no_ack)
        self.consumers.append(consumer)
        queue.add_consumer(consumer)
        queue.deliver_ready(self.host.now_ms)
        return consumer

    def set_prefetch(self, count: int) -> None:
        """Set the prefetch count of the whole channel, as basic.qos does."""
        self.room.prefetch = count
        self.room.serve(self.host.now_ms)

    def serve(self, queue: QueueEnd) -> None:
        if self.room.prefetch:
            self.room.serve(self.host.now_ms)
        else:
            queue.deliver_ready(self.host.now_ms)


class SocketConsumer(Consumer):
    """A consumer on a `ModelSocket`; `taken` are its unacked messages."""

    def __init__(self, socket: ModelSocket, queue: Queue, prefetch: int, no_ack: bool) -> None:
        super().__init__(queue, b"c", no_ack, False, 0, prefetch)
        self.socket = socket
        self.taken: list[Entry] = []
        self.count = 0

    def _is_full(self) -> bool:
        return (
            self.prefetch_count != 0
            and self.unacked_count >= self.prefetch_count
            and not self.no_ack
        )

    def can_take(self) -> bool:
        return not self._is_full() and self.socket.room.is_open() and self.socket.can_take()

    def wait_for_room(self) -> None:
        if not self._is_full() and not self.socket.room.wait(self):
            self.socket.rotation.add(self)

    def deliver(self, entry: Entry) -> None:
        assert entry.has_content
        self.count += 1
        room = self.socket.room
        room.turn_left -= 1
        if not self.no_ack:
            room.unacked_count += 1
            self.taken.append(entry)
            self.socket.host.out.append(entry)
        self.socket.send(int(entry.body_bytes))

    def ack(self) -> None:
        """Ack the oldest message."""
        entry = self.taken.pop(0)
        self.socket.room.take_back(self)
        self.socket.host.settle(entry)
        self.socket.serve(self.queue)

    def requeue(self) -> None:
        """Requeue all unacked messages."""
        entries, self.taken = self.taken, []
        room = self.socket.room
        for _ in entries:
            room.take_back(self)
        room.close_while_waited_for()
        if entries:
            self.socket.host.requeue(*entries)
        room.serve(self.socket.host.now_ms)

    def cancel(self) -> None:
        self.socket.consumers.remove(self)
        self.queue.remove_consumer(self, self.socket.host.now_ms)
        self.requeue()

    def on_queue_deleted(self) -> None:
        pass


def check_woken(queue: Queue) -> None:
    """Assert that something will wake each waiter of this queue; see `backing/read_ahead.py`."""
    if queue.backing.ready.count == 0 or queue.demand.awaits_older or queue.is_deleted:
        return
    if (
        queue.backing.loader.current is not None
        or queue.backing in queue.backing.host.memory.transit.waiting
    ):
        return
    if queue.backing.has_arrivals and queue.backing.is_listed:
        return
    assert queue.demand.circle.is_empty(), (
        "consumers wait for messages that are ready, and nobody wakes them"
    )
    assert not queue.demand.waiters, (
        "somebody waits for a head that is ready, and nobody wakes them"
    )
