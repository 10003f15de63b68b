"""Heartbeats both ways, by the client's interval (protocol section 1)."""

from tests.support.brokers.amqp_frames import HEARTBEAT, frame
from tests.support.brokers.fixtures import Amqp
from tests.support.brokers.memory_broker import STEP_MS
from warrenmq.broker.connection.heartbeat_timers import SLOT_MS
from warrenmq.wire.methods import BasicAck, ConnectionBlocked, ConnectionUnblocked


def test_the_broker_sends_heartbeats_at_half_the_interval(amqp: Amqp) -> None:
    peer = amqp.connect(heartbeat=1)
    # The client is silent, so it is dropped after three intervals: as events, the broker has sent
    # at least five heartbeats before, and none but heartbeats.
    kinds = [found.kind for found in peer.frames_until_end()]
    assert kinds == [HEARTBEAT] * len(kinds)
    assert len(kinds) >= 5


def test_when_the_broker_sends_heartbeats(amqp: Amqp) -> None:
    engine = amqp.engine()
    peer = amqp.connect(heartbeat=2)
    started_ms = engine.now_ms
    for number in range(1, 8):
        found = peer.next_frame()
        assert found is not None
        assert (found.kind, found.channel, found.payload) == (HEARTBEAT, 0, b"")
        late_ms = engine.now_ms - started_ms - number * 1000
        assert 0 <= late_ms <= SLOT_MS + STEP_MS
        peer.send(frame(HEARTBEAT, 0, b""))


def test_no_heartbeats_with_interval_0(amqp: Amqp) -> None:
    peer = amqp.connect(heartbeat=0)
    assert peer.next_frame(1.0 if amqp.uri else 600.0) is None


def test_a_silent_client_is_dropped_after_two_to_three_intervals(amqp: Amqp) -> None:
    amqp.slow_in_real_time()
    peer = amqp.connect(heartbeat=2)
    peer.channel()
    amqp.pause(3500)
    assert not peer.channels[1].events
    peer.channels[1].quiet()
    # No close frame comes: only heartbeats and the end.
    assert {found.kind for found in peer.frames_until_end()} == {HEARTBEAT}


def test_when_a_silent_client_is_dropped(amqp: Amqp) -> None:
    engine = amqp.engine()
    peer = amqp.connect(heartbeat=10)
    started_ms = engine.now_ms
    peer.frames_until_end(60)
    assert 30_000 <= engine.now_ms - started_ms <= 30_000 + 3 * (SLOT_MS + STEP_MS)


def test_the_clients_interval_counts_even_when_it_is_longer(amqp: Amqp) -> None:
    engine = amqp.engine()
    peer = amqp.connect(heartbeat=600)
    started_ms = engine.now_ms
    peer.frames_until_end(3600)
    assert 1_800_000 <= engine.now_ms - started_ms <= 1_800_000 + 3 * (SLOT_MS + STEP_MS)


def test_any_byte_is_a_sign_of_life(amqp: Amqp) -> None:
    amqp.slow_in_real_time()
    peer = amqp.connect(heartbeat=1)
    channel = peer.channel()
    half = frame(HEARTBEAT, 0, b"")
    for _ in range(8):
        peer.send(half[:4])
        amqp.pause(400)
        peer.send(half[4:])
        amqp.pause(400)
    channel.declare(exclusive=True)


def test_traffic_of_ours_replaces_heartbeats(amqp: Amqp) -> None:
    engine = amqp.engine()
    peer = amqp.connect(heartbeat=4)
    channel = peer.channel()
    queue = channel.declare(exclusive=True).queue
    engine.advance(4000)
    peer.link.receive(0)
    for _ in range(20):
        engine.advance(500)
        assert peer.link.receive(0) is None, "a heartbeat beside traffic"
        channel.count(queue)


def test_a_blocked_client_that_only_waits_is_not_dropped(amqp: Amqp) -> None:
    engine = amqp.engine()
    peer = amqp.connect(heartbeat=2, capabilities={"connection.blocked": True})
    channel = peer.channel()
    channel.declare(b"q")
    channel.confirm_select()
    engine.broker.memory_used(1000, engine.now_ms)
    engine.broker.set_vm_memory_high_watermark(0, 0, engine.now_ms)
    channel.publish(b"q", b"1")
    peer.expect(ConnectionBlocked)
    # The socket is read, and nothing comes, until the client gets its confirm.
    engine.advance(60_000)
    engine.broker.set_vm_memory_high_watermark(1 << 40, 0, engine.now_ms)
    engine.pump()
    peer.expect(ConnectionUnblocked)
    assert isinstance(channel.confirms(1)[0], BasicAck)
    # Its silence counts again, as from the start.
    resumed_ms = engine.now_ms
    peer.frames_until_end(60)
    assert 4_000 <= engine.now_ms - resumed_ms <= 6_000 + 3 * SLOT_MS
