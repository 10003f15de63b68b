"""Large messages on their way to sockets are bounded for the node, and none waits for ever."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.stores.model_store import ModelHost
from tests.support.stores.paging_queues import ADDRESS, Taker
from warrenmq.broker.output import STUCK_MS, Output
from warrenmq.queues.entry import Entry
from warrenmq.queues.memory.transit import LARGE_BYTES, Transit
from warrenmq.queues.queue import Queue
from warrenmq.store.model.message import Message

MIB = 1 << 20


class Socket(Taker):
    """A consumer whose socket has its deliveries until the test calls `write`."""

    def __init__(self, host: ModelHost, queue: Queue) -> None:
        super().__init__(host, queue, 1 << 30)
        self.unsent = 0

    def deliver(self, entry: Entry) -> None:
        super().deliver(entry)
        self.unsent += int(entry.body_bytes)
        self.host.memory.transit.change(entry.body_bytes)

    def write(self) -> None:
        size, self.unsent = self.unsent, 0
        self.host.memory.transit.change(-size)


def queue_with(host: ModelHost, is_lazy: bool, sizes: list[int]) -> Queue:
    queue = host.declare(is_lazy=is_lazy)
    for size in sizes:
        queue.publish(
            Message(ADDRESS, b"\x00\x00", b"%0*d" % (size, queue.next_seq), True, 0), -1, 0
        )
    host.settle_down()
    return queue


def start(host: ModelHost, queues: list[Queue]) -> list[Socket]:
    sockets = [Socket(host, queue) for queue in queues]
    for queue, socket in zip(queues, sockets, strict=True):
        queue.add_consumer(socket)
        queue.deliver_ready(host.now_ms)
    host.settle_down()
    return sockets


SIZES = st.lists(
    st.sampled_from([100, LARGE_BYTES, LARGE_BYTES + 1, 100_000, 500_000]), min_size=1, max_size=6
)


@given(st.lists(st.tuples(st.booleans(), SIZES), min_size=1, max_size=6))
def test_sockets_together_hold_no_more_than_the_room(
    queues: list[tuple[bool, list[int]]],
) -> None:
    host = ModelHost(page_batch=8)
    transit = host.memory.transit
    transit.room_bytes = 400_000
    small = sum(size for _, sizes in queues for size in sizes if size <= LARGE_BYTES)
    sockets = start(host, [queue_with(host, is_lazy, sizes) for is_lazy, sizes in queues])
    for _ in range(100):
        # Half of the room may be in use, and then one more message of any size.
        assert transit.used_bytes <= transit.room_bytes // 2 + 500_000 + small
        busy = [socket for socket in sockets if socket.unsent]
        if not busy:
            break
        busy[0].write()
        host.settle_down()
    for (_, sizes), socket in zip(queues, sockets, strict=True):
        assert [int(entry.body_bytes) for entry in socket.taken] == sizes
    assert transit.used_bytes == 0


def test_what_is_published_to_an_empty_queue_waits_for_room_as_well() -> None:
    host = ModelHost(page_batch=8)
    host.memory.transit.room_bytes = 4 * MIB
    queue = queue_with(host, False, [])
    (socket,) = start(host, [queue])
    for _ in range(10):
        queue.publish(Message(ADDRESS, b"\x00\x00", b"x" * MIB, True, 0), -1, 0)
    assert 2 * MIB <= socket.unsent <= 4 * MIB
    while socket.unsent:
        socket.write()
        host.settle_down()
    assert len(socket.taken) == 10


def test_what_stands_still_takes_no_room_up_to_a_second_room() -> None:
    host = ModelHost(page_batch=8)
    transit = host.memory.transit
    transit.set_room(4 * MIB)
    queue = queue_with(host, False, [MIB])
    transit.change(7 * MIB)
    (socket,) = start(host, [queue])
    assert socket.unsent == 0
    transit.change_stuck(7 * MIB)
    host.settle_down()
    assert socket.unsent == MIB
    socket.write()
    # The message would bring more than twice the room on its way.
    transit.change(2 * MIB)
    transit.change_stuck(2 * MIB)
    queue.publish(Message(ADDRESS, b"\x00\x00", b"x" * MIB, True, 0), -1, 0)
    host.settle_down()
    assert socket.unsent == 0
    assert transit.is_wanted()
    socket.room = 0
    assert not transit.is_wanted()


def test_a_socket_that_takes_less_than_64_kib_a_second_stands_still() -> None:
    transit = Transit(1 << 40)
    out = Output(transit)
    out.content(1, b"\x00\x00", bytes(MIB))
    size = int(out.size_bytes)
    out.take()
    out.set_unsent(size)
    # The first check may come at any time after the first byte.
    out.note_progress(5000)
    out.note_progress(5000 + STUCK_MS - 1)
    assert transit.stuck_bytes == 0
    out.note_progress(5000 + STUCK_MS)
    assert transit.stuck_bytes == transit.used_bytes == size
    out.set_unsent(size - LARGE_BYTES + 1)
    out.note_progress(7000)
    assert transit.stuck_bytes == transit.used_bytes == size - LARGE_BYTES + 1
    assert out.stuck_ms(7000) == 2000
    out.set_unsent(size - LARGE_BYTES)
    out.note_progress(7500)
    assert (transit.stuck_bytes, out.stuck_ms(7500)) == (0, 0)
    # More gathered bytes are no progress.
    out.content(1, b"\x00\x00", bytes(MIB))
    more = int(out.size_bytes)
    out.take()
    out.set_unsent(size - LARGE_BYTES + more)
    out.note_progress(7500 + STUCK_MS)
    assert transit.stuck_bytes == transit.used_bytes == size - LARGE_BYTES + more
    out.drop()
    assert (transit.stuck_bytes, transit.used_bytes) == (0, 0)
    # After an idle time no socket stands still at once.
    out.note_progress(100_000)
    out.content(1, b"\x00\x00", bytes(MIB))
    out.note_progress(100_500)
    assert transit.stuck_bytes == 0


def test_large_bodies_are_sent_without_a_copy_and_counted() -> None:
    transit = Transit(1 << 40)
    out = Output(transit)
    body = bytes(MIB)
    out.content(1, b"\x00\x00", body)
    assert transit.used_bytes == out.size_bytes > MIB
    parts = out.take()
    assert all(isinstance(part, bytes) or part.obj is body for part in parts)
    assert sum(len(part) for part in parts if isinstance(part, memoryview)) == MIB
    out.set_unsent(1000)
    assert transit.used_bytes == 1000
    out.set_unsent(0)
    assert transit.used_bytes == 0
    out.content(1, b"\x00\x00", body)
    out.drop()
    assert transit.used_bytes == 0
