"""Helpers for tests of paging queues: fill, drain, compare shapes, and a consumer."""

from tests.support.stores.model_store import ModelHost
from warrenmq.queues.entry import Consumer, Entry
from warrenmq.queues.queue import Queue
from warrenmq.store.model.message import Message

SMALL = 10
LARGE = 200
ADDRESS = b"\x00\x01q"


class Taker(Consumer):
    """Keeps the entries that it gets; `room` is its prefetch count."""

    def __init__(self, host: ModelHost, queue: Queue, room: int, no_ack: bool = False) -> None:
        super().__init__(queue, b"c", no_ack, False, 0, 0)
        self.host = host
        self.room = room
        self.taken: list[Entry] = []

    def can_take(self) -> bool:
        return len(self.taken) < self.room

    def deliver(self, entry: Entry) -> None:
        self.taken.append(entry)
        if not self.no_ack:
            self.host.out.append(entry)

    def on_queue_deleted(self) -> None:
        self.room = 0


def fill(
    queue: Queue, count: int, size: int = SMALL, persistent: bool = True, expiration_ms: int = -1
) -> None:
    host = queue.backing.host
    assert isinstance(host, ModelHost)
    for _ in range(count):
        body = b"%0*d" % (size, queue.next_seq)
        queue.publish(
            Message(ADDRESS, b"\x00\x00", body, persistent, 0), expiration_ms, host.now_ms
        )
    host.seal()
    host.commit()


def shape(queue: Queue) -> tuple[int, int, int, int, int]:
    """Numbers of messages in q4, q3, delta, q2 and q1."""
    ready = queue.backing.ready
    return (
        int(ready.q4.count),
        int(ready.q3.count),
        int(ready.delta.count),
        int(ready.q2.count),
        int(ready.q1.count),
    )


def forms(queue: Queue) -> list[int]:
    return [
        int(queue.backing.ready.at(place).form)
        for place in range(int(queue.backing.ready.entry_count))
    ]


def drain(host: ModelHost, queue: Queue) -> list[int]:
    """Take everything; returns the seq ids in the order of taking."""
    found = []
    while (entry := host.take(queue, True)) is not None:
        found.append(int(entry.seq))
        assert int(entry.message.body) == entry.seq
    return found


def lazy(host: ModelHost, count: int, size: int = SMALL) -> Queue:
    queue = host.declare(durable=False, is_lazy=True)
    fill(queue, count, size, False)
    host.settle_down()
    assert shape(queue) == (0, 0, count, 0, 0)
    return queue
