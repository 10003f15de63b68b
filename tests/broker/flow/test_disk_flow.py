"""Flow control from the disk stops and resumes the right publishers at the right limits.

tests/kill/test_slow_disk.py tests it on a real disk.
"""

from tests.support.brokers.amqp_frames import PERSISTENT, header_frame, method_frame
from tests.support.brokers.amqp_peer import ChannelPeer, Peer
from tests.support.brokers.memory_broker import EngineLink, MemoryBroker
from warrenmq.broker.connection.connection import Connection
from warrenmq.broker.flow.disk_flow import DEBT_STOP_BYTES, STOP_BYTES, STORE_STOP_BYTES
from warrenmq.broker.flow.throttle import FLOW_SHOWN_MS
from warrenmq.queues.turn import TURN_STEPS_MAX
from warrenmq.store.figures import StoreFigures, debt_to_pay, payable_bytes
from warrenmq.store.jobs.job import CompactContents, StoreJob
from warrenmq.store.settings import GARBAGE_ALLOWANCE_BYTES
from warrenmq.wire.methods import BasicPublish
from warrenmq.wire.properties import NO_PROPERTIES

BODY = bytes(100_000)
MANY = STOP_BYTES // len(BODY) + 1


def channel_of(memory: MemoryBroker) -> ChannelPeer:
    return Peer(memory.connect()).open().channel()


def flooding(memory: MemoryBroker) -> ChannelPeer:
    """Return a channel that has published more to `q` than may wait for a silent disk."""
    flood = channel_of(memory)
    flood.declare(b"q", durable=True)
    memory.holds_commits = True
    for _ in range(MANY):
        flood.publish(b"q", BODY, PERSISTENT)
    return flood


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
    # A client without a publish since the limit is not stopped: it may be about to ack.
    assert is_reading(other)
    other.qos(1)
    other.consume(b"q")
    assert other.message().body == BODY
    # Bytes of a sealed batch count until the disk has written it.
    batch = memory.vhost.journal.seal()
    assert memory.vhost.journal.pending_bytes == 0
    memory.pump()
    assert not is_reading(flood)
    memory.vhost.journal.on_done(batch, True, memory.now_ms)
    memory.pump()
    assert is_reading(flood)
    throttle = connection_of(flood).throttle
    assert (throttle.flow_count, memory.broker.disk_flow.stop_count) == (1, 1)
    # The state `flow` is shown for FLOW_SHOWN_MS after its end, or an operator would never see it.
    assert state(flood, memory) == "flow"
    memory.now_ms += FLOW_SHOWN_MS
    assert state(flood, memory) == "running"


def test_a_batch_that_fails_lets_go_on_too() -> None:
    memory = MemoryBroker()
    flood = flooding(memory)
    assert not is_reading(flood)
    memory.failing_commits = 1
    memory.holds_commits = False
    memory.pump()
    assert is_reading(flood)


def test_transient_messages_do_not_wait_for_the_disk() -> None:
    memory = MemoryBroker()
    transient = channel_of(memory)
    flood = flooding(memory)
    transient.publish(b"q", b"transient")
    assert not is_reading(flood)
    assert is_reading(transient)


def test_a_stopped_connection_may_end() -> None:
    memory = MemoryBroker()
    flood = flooding(memory)
    flood.peer.drop()
    memory.holds_commits = False
    memory.pump()
    assert channel_of(memory).count(b"q") == MANY


def test_an_alarm_and_a_slow_disk_together() -> None:
    memory = MemoryBroker()
    flood = flooding(memory)
    memory.broker.memory_used(1, memory.now_ms)
    for _ in range(20):
        flood.publish(b"q", BODY, PERSISTENT)
    assert state(flood, memory) == "blocked"
    memory.holds_commits = False
    memory.pump()
    # The blocked connection's window of unprocessed bytes is still full.
    assert not is_reading(flood)
    memory.broker.set_vm_memory_high_watermark(10, 0, memory.now_ms)
    memory.pump()
    assert is_reading(flood)
    assert flood.count(b"q") == MANY + 20


def test_a_store_that_is_behind_stops_whoever_publishes() -> None:
    memory = MemoryBroker()
    lane = memory.vhost.store.jobs.lane
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


def test_publishers_wait_for_queues_that_page_slower_than_they_publish() -> None:
    memory = MemoryBroker()
    flood, idle = channel_of(memory), channel_of(memory)
    flood.declare(b"q")
    broker = memory.broker
    flood.publish_each(b"q", *[bytes(1000)] * (4 * TURN_STEPS_MAX))
    assert is_reading(flood)
    held = broker.memory_monitor.account.ram_bytes
    # The paging threshold is half of the memory. Paging to it takes the queue more than one turn.
    broker.set_vm_memory_high_watermark(held, 0, memory.now_ms)
    broker.end_turn(memory.now_ms)
    memory.vhost.advance(memory.now_ms)
    assert memory.vhost.host.has_more
    publish = BasicPublish(b"", b"q", False)
    connection_of(flood).receive(
        method_frame(flood.number, publish) + header_frame(flood.number, 0, NO_PROPERTIES),
        memory.now_ms,
    )
    assert not is_reading(flood)
    assert is_reading(idle)
    memory.pump()
    assert is_reading(flood)
    assert broker.memory_monitor.account.ram_bytes <= broker.memory_monitor.account.stop_above
    assert broker.disk_flow.stop_count == 1


def test_a_store_in_debt_stops_publishers_until_it_is_paid() -> None:
    """Publishers stop when compaction is slower than the garbage, until it has caught up (W10)."""
    memory = MemoryBroker()
    store = memory.vhost.store
    contents = store.contents.persistent
    held: list[StoreJob] = []
    holds = True

    def run_jobs(now_ms: int) -> list[StoreJob]:
        jobs: list[StoreJob] = store.take_jobs(now_ms)
        for job in jobs:
            if holds and isinstance(job, CompactContents):
                held.append(job)
                continue
            memory.driver.runner.run(job)
            job.finished()
        return jobs

    memory.driver.run_jobs = run_jobs  # type: ignore[method-assign]  # the compactor's thread is slow here
    flood, consumer = channel_of(memory), channel_of(memory)
    flood.declare(b"q", durable=True)
    consumer.consume(b"q")
    # The third file is being written; one message of each full file stays.
    large = bytes(6_000_000)
    tags = []
    for _ in range(8):
        flood.publish(b"q", large, PERSISTENT)
        tags.append(consumer.message().deliver.delivery_tag)
    assert contents.file_count == 3
    for place, tag in enumerate(tags):
        if place not in (0, 3):
            consumer.ack(tag)
    memory.advance(2000)
    assert len(held) == 1 and StoreFigures(store).debt_bytes == 0
    # Pretend that the first file has this much garbage.
    beyond = int(StoreFigures(store).disk_bytes - 2 * StoreFigures(store).live_bytes)
    add_garbage(memory, GARBAGE_ALLOWANCE_BYTES - beyond + 2 * DEBT_STOP_BYTES)
    assert debt_to_pay(store) == 2 * DEBT_STOP_BYTES
    flood.publish(b"q", b"small")
    assert is_reading(flood)
    # Growth of the debt up to DEBT_STOP_BYTES stops no publisher.
    add_garbage(memory, DEBT_STOP_BYTES)
    flood.publish(b"q", b"small")
    assert is_reading(flood)
    add_garbage(memory, 1000)
    flood.publish(b"q", b"small")
    assert not is_reading(flood)
    assert is_reading(consumer)
    memory.advance(10_000)
    assert not is_reading(flood)
    holds = False
    for job in held:
        memory.driver.runner.run(job)
        job.finished()
    # The second checkpoint after the compaction deletes the copied files.
    assert StoreFigures(store).deletable_bytes > DEBT_STOP_BYTES
    memory.advance(5000)
    assert is_reading(flood)
    assert StoreFigures(store).debt_bytes == 0 and StoreFigures(store).deletable_bytes == 0
    assert debt_to_pay(store) == 0
    flood.publish(b"q", b"small")
    assert is_reading(flood)


def add_garbage(memory: MemoryBroker, size: int) -> None:
    """Pretend that the first content file has `size` more bytes of garbage, and update the debt."""
    contents = memory.vhost.store.contents.persistent
    contents.files[0].size_bytes += size
    contents.total_bytes += size
    memory.advance(2000)


def test_debt_that_grows_while_the_disk_does_not_stops_nobody() -> None:
    """Debt that a purge makes of live messages stops no publisher; only its growth does."""
    memory = MemoryBroker()
    contents = memory.vhost.store.contents.persistent
    flood, other = channel_of(memory), channel_of(memory)
    flood.declare(b"q", durable=True)
    other.declare(b"other")
    debt = memory.vhost.store.debt
    for _ in range(8):
        flood.publish(b"q", bytes(6_000_000), PERSISTENT)
    assert contents.file_count == 3
    # Pretend that the first file has this much more, all of it alive.
    size = 3 * GARBAGE_ALLOWANCE_BYTES
    contents.files[0].valid_bytes += size
    contents.valid_bytes += size
    add_garbage(memory, size)
    assert debt.payable_bytes == 0
    memory.driver.run_jobs = lambda now_ms: []  # type: ignore[method-assign]  # a slow disk
    contents.files[0].valid_bytes -= size
    contents.valid_bytes -= size
    memory.advance(2000)
    assert debt.payable_bytes > DEBT_STOP_BYTES
    assert debt.grown_bytes < 1000
    other.publish(b"other", b"small")
    assert is_reading(other)
    # Growth counts from the lowest debt.
    add_garbage(memory, -DEBT_STOP_BYTES)
    add_garbage(memory, DEBT_STOP_BYTES)
    assert abs(int(debt.grown_bytes) - DEBT_STOP_BYTES) < 1000
    add_garbage(memory, 10_000)
    other.publish(b"other", b"small")
    assert not is_reading(other)


def test_nobody_waits_for_what_the_store_does_not_give_back() -> None:
    """Debt that the store cannot pay stops no publisher.

    Such debt exceeds twice the live bytes, but lies in the journal's window or in the file being
    written.
    """
    memory = MemoryBroker()
    store = memory.vhost.store
    flood = channel_of(memory)
    flood.declare(b"q", durable=True)
    flood.publish(b"q", bytes(5000), PERSISTENT)
    store.contents.persistent.files[-1].size_bytes += 2 * GARBAGE_ALLOWANCE_BYTES
    store.contents.persistent.total_bytes += 2 * GARBAGE_ALLOWANCE_BYTES
    store.journal.file_size_limit = 2 * GARBAGE_ALLOWANCE_BYTES
    store.journal.files[-1].size_bytes += 4 * GARBAGE_ALLOWANCE_BYTES
    assert StoreFigures(store).debt_bytes > 4 * GARBAGE_ALLOWANCE_BYTES
    assert payable_bytes(store) < DEBT_STOP_BYTES
    memory.advance(3000)
    flood.publish(b"q", b"small")
    assert is_reading(flood)
