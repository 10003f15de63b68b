"""Flow control from the disk: who is stopped, when, and when they go on. On a real disk: tests/kill/test_slow_disk.py."""

from tests.support.amqp_frames import PERSISTENT
from tests.support.amqp_peer import ChannelPeer, Peer
from tests.support.memory_broker import EngineLink, MemoryBroker
from warren.broker.connection import Connection
from warren.broker.disk_flow import STOP_BYTES, STORE_STOP_BYTES
from warren.broker.throttle import FLOW_SHOWN_MS

BODY = bytes(100_000)
MANY = STOP_BYTES // len(BODY) + 1


def channel_of(memory: MemoryBroker) -> ChannelPeer:
    return Peer(memory.connect()).open().channel()


def connection_of(channel: ChannelPeer) -> Connection:
    link = channel.peer.link
    assert isinstance(link, EngineLink)
    assert link.connection is not None
    return link.connection


def is_reading(channel: ChannelPeer) -> bool:
    return connection_of(channel).is_reading


def state(channel: ChannelPeer, memory: MemoryBroker) -> str:
    return connection_of(channel).throttle.shown_state(memory.now_ms)


def test_who_publishes_to_a_disk_that_lags_is_stopped_until_half_is_written() -> None:
    memory = MemoryBroker()
    flood, other = channel_of(memory), channel_of(memory)
    flood.declare(b"q", durable=True)
    memory.holds_commits = True
    for _ in range(MANY - 1):
        flood.publish(b"q", BODY, PERSISTENT)
    other.publish(b"q", b"early", PERSISTENT)
    assert is_reading(flood)
    assert state(flood, memory) == "running"
    flood.publish(b"q", BODY, PERSISTENT)
    assert not is_reading(flood)
    assert state(flood, memory) == "flow"
    # Who has published before, and not since, goes on: it may be about to ack.
    assert is_reading(other)
    other.qos(1)
    other.consume(b"q")
    assert other.message().body == BODY
    # What waits for the disk while it is on its way counts as well.
    batch = memory.vhost.journal.seal()
    assert memory.vhost.journal.pending_bytes == 0
    memory.pump()
    assert not is_reading(flood)
    memory.vhost.journal.on_done(batch, True)
    memory.pump()
    assert is_reading(flood)
    throttle = connection_of(flood).throttle
    assert (throttle.flow_count, memory.broker.disk_flow.stop_count) == (1, 1)
    # Shown for a while, since nobody would ever see it.
    assert state(flood, memory) == "flow"
    memory.now_ms += FLOW_SHOWN_MS
    assert state(flood, memory) == "running"


def test_a_batch_that_fails_lets_go_on_too() -> None:
    memory = MemoryBroker()
    flood = channel_of(memory)
    flood.declare(b"q", durable=True)
    memory.holds_commits = True
    for _ in range(MANY):
        flood.publish(b"q", BODY, PERSISTENT)
    assert not is_reading(flood)
    memory.failing_commits = 1
    memory.holds_commits = False
    memory.pump()
    assert is_reading(flood)


def test_transient_messages_do_not_wait_for_the_disk() -> None:
    memory = MemoryBroker()
    flood, transient = channel_of(memory), channel_of(memory)
    flood.declare(b"q", durable=True)
    memory.holds_commits = True
    for _ in range(MANY):
        flood.publish(b"q", BODY, PERSISTENT)
    transient.publish(b"q", b"transient")
    assert not is_reading(flood)
    assert is_reading(transient)


def test_a_stopped_connection_may_end() -> None:
    memory = MemoryBroker()
    flood = channel_of(memory)
    flood.declare(b"q", durable=True)
    memory.holds_commits = True
    for _ in range(MANY):
        flood.publish(b"q", BODY, PERSISTENT)
    flood.peer.drop()
    memory.holds_commits = False
    memory.pump()
    assert channel_of(memory).count(b"q") == MANY


def test_an_alarm_and_a_slow_disk_together() -> None:
    memory = MemoryBroker()
    flood = channel_of(memory)
    flood.declare(b"q", durable=True)
    memory.holds_commits = True
    for _ in range(MANY):
        flood.publish(b"q", BODY, PERSISTENT)
    memory.broker.memory_used(1, memory.now_ms)
    for _ in range(20):
        flood.publish(b"q", BODY, PERSISTENT)
    assert state(flood, memory) == "blocked"
    memory.holds_commits = False
    memory.pump()
    # The window of the blocked connection is still full.
    assert not is_reading(flood)
    memory.broker.set_vm_memory_high_watermark(10, 0, memory.now_ms)
    memory.pump()
    assert is_reading(flood)
    assert flood.count(b"q") == MANY + 20


def test_a_store_that_is_behind_stops_whoever_publishes() -> None:
    memory = MemoryBroker()
    lane = memory.vhost.store.lane
    transient, consumer, idle = channel_of(memory), channel_of(memory), channel_of(memory)
    transient.declare(b"q")
    lane.waiting_bytes = STORE_STOP_BYTES
    memory.pump()
    transient.publish_each(b"q", b"1", b"2")
    assert is_reading(transient)
    lane.waiting_bytes += 1
    memory.pump()
    transient.publish(b"q", b"3")
    assert not is_reading(transient)
    consumer.qos(1)
    consumer.consume(b"q")
    for body in (b"1", b"2", b"3"):
        message = consumer.message()
        assert message.body == body
        consumer.ack(message.deliver.delivery_tag)
    assert is_reading(consumer)
    assert is_reading(idle)
    lane.waiting_bytes = STORE_STOP_BYTES // 2 + 1
    memory.pump()
    assert not is_reading(transient)
    lane.waiting_bytes = STORE_STOP_BYTES // 2
    memory.pump()
    assert is_reading(transient)
