"""No message waits for ever: a consumer that can take one gets it, whatever else happens."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.brokers.model_sockets import ModelSocket, SocketConsumer, check_woken
from tests.support.stores.model_store import ModelHost
from tests.support.stores.paging_queues import ADDRESS
from warrenmq.queues.backing.variable_queue import EMPTY, UNLIMITED
from warrenmq.queues.memory.account import AHEAD_SHARE
from warrenmq.queues.memory.transit import LARGE_BYTES
from warrenmq.queues.queue import Queue
from warrenmq.store.model.message import Message

ROOM = 150_000
TRANSIT = 200_000
BODIES = {size: bytes(size) for size in (10, 40_000, LARGE_BYTES + 1, 150_000, 250_000)}


def small_host() -> ModelHost:
    host = ModelHost(page_batch=2, segment_entries=4)
    host.memory.page_above = AHEAD_SHARE * ROOM
    host.memory.transit.set_room(TRANSIT)
    return host


def publish(queue: Queue, size: int, expiration_ms: int = -1) -> None:
    host = queue.backing.host
    assert isinstance(host, ModelHost)
    queue.publish(Message(ADDRESS, b"\x00\x00", BODIES[size], True, 0), expiration_ms, host.now_ms)


def on_disk(host: ModelHost, size: int, count: int) -> Queue:
    queue = host.declare(is_lazy=True)
    for _ in range(count):
        publish(queue, size)
    host.settle_down()
    assert queue.backing.memory.ram_count == 0
    return queue


@pytest.mark.parametrize("prefetch", [0, 10])
def test_a_consumer_goes_on_with_large_messages_when_its_socket_was_written(prefetch: int) -> None:
    host = small_host()
    queue = on_disk(host, 250_000, 4)
    socket = ModelSocket(host)
    consumer = socket.consume(queue, prefetch)
    for count in range(1, 5):
        host.settle_down()
        assert consumer.count == count
        check_woken(queue)
        socket.write()


def test_queues_of_a_channel_go_on_with_large_messages_when_its_prefetch_has_room() -> None:
    host = small_host()
    queues = [on_disk(host, 250_000, 2) for _ in range(3)]
    socket = ModelSocket(host)
    socket.set_prefetch(1)
    consumers = [socket.consume(queue) for queue in queues]
    for _ in range(6):
        host.settle_down()
        socket.write()
        host.settle_down()
        for queue in queues:
            check_woken(queue)
        (holder,) = [consumer for consumer in consumers if consumer.taken]
        holder.ack()
    assert [consumer.count for consumer in consumers] == [2, 2, 2]


def test_more_room_wakes_those_who_wait_for_it() -> None:
    host = small_host()
    queue = on_disk(host, 150_000, 1)
    host.memory.transit.change(TRANSIT)
    consumer = ModelSocket(host).consume(queue)
    host.settle_down()
    assert consumer.count == 0
    host.memory.transit.set_room(4 * TRANSIT)
    host.settle_down()
    assert consumer.count == 1


QUEUES = st.integers(0, 2)
SOCKETS = st.integers(0, 2)


class LivenessMachine(RuleBasedStateMachine):
    """Three queues and three sockets; the test runs turns and seals, and loads in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.host = small_host()
        self.queues: list[Queue] = []
        self.sockets = [ModelSocket(self.host) for _ in range(3)]

    @initialize(
        lazy=st.lists(st.booleans(), min_size=3, max_size=3), prefetch=st.sampled_from([0, 0, 1, 3])
    )
    def declare(self, lazy: list[bool], prefetch: int) -> None:
        self.queues = [self.host.declare(is_lazy=is_lazy) for is_lazy in lazy]
        for socket in self.sockets:
            socket.set_prefetch(prefetch)

    def consumers(self) -> list[SocketConsumer]:
        return [consumer for socket in self.sockets for consumer in socket.consumers]

    @rule(
        number=QUEUES,
        sizes=st.lists(st.sampled_from(list(BODIES)), min_size=1, max_size=5),
        expiration_ms=st.sampled_from([-1, -1, -1, 0, 300]),
    )
    def publish(self, number: int, sizes: list[int], expiration_ms: int) -> None:
        for size in sizes:
            publish(self.queues[number], size, expiration_ms)

    @rule(number=QUEUES, socket=SOCKETS, prefetch=st.sampled_from([0, 1, 2]), no_ack=st.booleans())
    def consume(self, number: int, socket: int, prefetch: int, no_ack: bool) -> None:
        self.sockets[socket].consume(self.queues[number], prefetch, no_ack)

    @precondition(lambda self: self.consumers())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.consumers())).cancel()

    @precondition(lambda self: any(consumer.taken for consumer in self.consumers()))
    @rule(data=st.data(), is_ack=st.booleans())
    def settle(self, data: st.DataObject, is_ack: bool) -> None:
        consumer = data.draw(
            st.sampled_from([consumer for consumer in self.consumers() if consumer.taken])
        )
        if is_ack:
            consumer.ack()
        else:
            consumer.requeue()

    @rule(socket=SOCKETS)
    def write(self, socket: int) -> None:
        self.sockets[socket].write()

    @rule(socket=SOCKETS, count=st.sampled_from([0, 1, 3]))
    def qos(self, socket: int, count: int) -> None:
        self.sockets[socket].set_prefetch(count)

    @rule(number=QUEUES)
    def get(self, number: int) -> None:
        queue = self.queues[number]

        def look(now_ms: int) -> None:
            if queue.get(True, now_ms) is None and queue.head_state(now_ms) != EMPTY:
                queue.when_head(look)

        look(self.host.now_ms)

    @rule(number=QUEUES)
    def purge(self, number: int) -> None:
        self.queues[number].purge(self.host.now_ms)

    @rule(number=QUEUES, count=st.sampled_from([0, 1, UNLIMITED]))
    def squeeze(self, number: int, count: int) -> None:
        self.queues[number].backing.memory.set_target(count)

    @rule(number=QUEUES, is_lazy=st.booleans())
    def mode(self, number: int, is_lazy: bool) -> None:
        self.queues[number].backing.memory.set_mode(is_lazy)

    @rule(room=st.sampled_from([0, TRANSIT, 4 * TRANSIT]))
    def limit(self, room: int) -> None:
        self.host.memory.transit.set_room(room)

    @rule(ms=st.sampled_from([50, 1000]))
    def tick(self, ms: int) -> None:
        self.host.now_ms += ms
        for queue in self.queues:
            queue.drop_expired_head(self.host.now_ms)

    @rule()
    def turn(self) -> None:
        self.host.turn()

    @rule()
    def seal(self) -> None:
        self.host.seal()
        self.host.commit()

    @precondition(lambda self: self.host.loads)
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.host.loads) - 1))
        self.host.loads.pop(place)()

    @rule()
    def rest(self) -> None:
        self.host.settle_down()

    @invariant()
    def everybody_is_woken(self) -> None:
        for queue in self.queues:
            check_woken(queue)

    def teardown(self) -> None:
        """With all sockets written and all messages acked, each consumed queue is empty."""
        busy = True
        while busy:
            self.host.settle_down()
            busy = False
            for socket in self.sockets:
                if socket.unsent:
                    busy = True
                    socket.write()
                for consumer in socket.consumers:
                    if consumer.taken:
                        busy = True
                        consumer.ack()
        self.host.check()
        for queue in self.queues:
            assert queue.backing.ready.count == 0 or not queue.consumers
        assert self.host.memory.transit.used_bytes == 0


TestLiveness = LivenessMachine.TestCase
TestLiveness.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
