"""Heartbeats both ways, by the client's interval (protocol section 1)."""

from tests.support.brokers.amqp_frames import HEARTBEAT, frame
from tests.support.brokers.fixtures import Amqp


def test_the_broker_sends_heartbeats_at_half_the_interval(amqp: Amqp) -> None:
    peer = amqp.connect(heartbeat=2)
    for _ in range(2):
        # Only the engine can tell how soon, since its clock waits for the test.
        found = peer.next_frame(3.9 if amqp.memory is not None else None)
        assert found is not None
        assert (found.kind, found.channel, found.payload) == (HEARTBEAT, 0, b"")
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
    assert 20_000 <= engine.now_ms - started_ms <= 30_000


def test_the_clients_interval_counts_even_when_it_is_longer(amqp: Amqp) -> None:
    engine = amqp.engine()
    peer = amqp.connect(heartbeat=600)
    started_ms = engine.now_ms
    peer.frames_until_end(3600)
    assert 1_200_000 <= engine.now_ms - started_ms <= 1_800_000


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
