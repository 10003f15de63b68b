"""Random alarms among publishes, acks and other methods change no outcome.
Some bodies come in two frames with other frames between, so that alarms begin and end within them.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.brokers.amqp_frames import BODY, frame, header_frame, method_frame
from tests.support.brokers.amqp_peer import Message, Peer
from tests.support.brokers.memory_broker import MemoryBroker
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    BasicAck,
    BasicNack,
    BasicPublish,
    ConnectionBlocked,
    ConnectionUnblocked,
    QueueDeclare,
)

CHANNELS = 3
PREFETCH = 2
ENORMOUS = 1 << 59

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, CHANNELS - 1)),
        st.tuples(st.just("begin"), st.integers(0, CHANNELS - 1)),
        st.tuples(st.just("settle"), st.integers(0, CHANNELS - 1)),
        st.tuples(st.just("ask"), st.integers(0, CHANNELS - 1)),
        st.tuples(st.just("memory"), st.integers(0, 1)),
        st.tuples(st.just("disk"), st.integers(0, 1)),
    ),
    max_size=60,
)


class Run:
    """One connection whose channels all publish and consume the messages of the others."""

    def __init__(self) -> None:
        self.memory = MemoryBroker()
        broker = self.memory.broker
        broker.memory_used(1000, 0)
        broker.disk_free(1000, 0)
        self.set_low(memory=False, disk=False)
        self.peer = Peer(self.memory.connect()).open(capabilities={"connection.blocked": True})
        self.channels = [self.peer.channel() for _ in range(CHANNELS)]
        for number, channel in enumerate(self.channels):
            queue = b"q%d" % number
            channel.declare(queue)
            channel.confirm_select()
            channel.qos(PREFETCH)
        for number, channel in enumerate(self.channels):
            channel.consume(b"q%d" % ((number + 1) % CHANNELS))
        self.published = [0] * CHANNELS
        # Channels that have sent half a body.
        self.open: set[int] = set()
        self.confirmed = [0] * CHANNELS
        self.received: list[list[bytes]] = [[] for _ in range(CHANNELS)]
        self.unsettled: list[list[int]] = [[] for _ in range(CHANNELS)]

    def notices(self) -> list[type[Method]]:
        """The methods received on channel 0."""
        found: list[type[Method]] = []
        while self.peer.has_control():
            found.append(type(self.peer.expect(Method)))
        return found

    def set_low(self, memory: bool | None = None, disk: bool | None = None) -> None:
        broker, now_ms = self.memory.broker, self.memory.now_ms
        if memory is not None:
            broker.set_vm_memory_high_watermark(0 if memory else ENORMOUS, 0, now_ms)
        if disk is not None:
            broker.set_disk_free_limit(ENORMOUS if disk else 0, 0, now_ms)
        self.memory.pump()

    def take(self) -> None:
        """Process everything received so far."""
        while self.peer.read(0.001):
            pass
        for number, channel in enumerate(self.channels):
            while channel.events:
                item = channel.events.popleft()
                if isinstance(item, Message):
                    self.received[number].append(item.body)
                    self.unsettled[number].append(item.deliver.delivery_tag)
                else:
                    assert isinstance(item, BasicAck)
                    assert item.delivery_tag > self.confirmed[number]
                    self.confirmed[number] = item.delivery_tag

    def begin(self, number: int) -> None:
        """Send a message except its last octet."""
        self.finish(number)
        self.open.add(number)
        self.published[number] += 1
        body = b"%d" % (1000 * self.published[number])
        self.peer.send(
            method_frame(number + 1, BasicPublish(b"", b"q%d" % number)),
            header_frame(number + 1, len(body)),
            frame(BODY, number + 1, body[:-1]),
        )

    def finish(self, number: int) -> None:
        """Send the last octet of an open body: a channel can do nothing else within one."""
        if number in self.open:
            self.open.remove(number)
            self.peer.send(frame(BODY, number + 1, b"0"))

    def publish(self, number: int) -> None:
        self.finish(number)
        self.published[number] += 1
        self.channels[number].publish(b"q%d" % number, b"%d" % self.published[number])

    def settle(self, number: int) -> bool:
        """Settle the oldest delivery, if any; even under an alarm the next one takes its place."""
        self.take()
        self.finish(number)
        unsettled = self.unsettled[number]
        if not unsettled:
            return False
        tag = unsettled.pop(0)
        self.channels[number].send(BasicAck(tag) if tag % 2 else BasicNack(tag, False, False))
        self.take()
        queue = self.memory.vhost.queues[b"q%d" % ((number + 1) % CHANNELS)]
        assert len(unsettled) == PREFETCH or queue.ready_count == 0
        return True


@settings(max_examples=150, deadline=None)
@given(OPERATIONS)
def test_nothing_is_lost_doubled_or_out_of_order(operations: list[tuple[str, int]]) -> None:
    run = Run()
    questions = [0] * CHANNELS
    for operation, number in operations:
        if operation == "publish":
            run.publish(number)
        elif operation == "begin":
            run.begin(number)
        elif operation == "settle":
            run.settle(number)
        elif operation == "ask":
            run.finish(number)
            questions[number] += 1
            run.channels[number].send(QueueDeclare(b"q%d" % number, True))
        elif operation == "memory":
            run.set_low(memory=bool(number))
        else:
            run.set_low(disk=bool(number))
    run.set_low(False, False)
    for number in range(CHANNELS):
        run.finish(number)
    for number in range(CHANNELS):
        while run.settle(number):
            pass
    assert run.confirmed == run.published
    for number in range(CHANNELS):
        count = run.published[(number + 1) % CHANNELS]
        assert [body.removesuffix(b"000") for body in run.received[number]] == [
            b"%d" % body for body in range(1, count + 1)
        ]
        assert len(run.channels[number].replies) == questions[number]
    notices = run.notices()
    assert notices[::2] == [ConnectionBlocked] * (len(notices) // 2)
    assert notices[1::2] == [ConnectionUnblocked] * (len(notices) // 2)
    assert run.memory.broker.alarms.kept_bytes == 0
    assert run.memory.broker.memory_account.unfinished_bytes == 0
