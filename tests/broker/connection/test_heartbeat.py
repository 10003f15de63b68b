"""The heartbeat timers of one connection, by a clock of the test's own."""

from warrenmq.broker.connection.heartbeat import PROBE_MS, Heartbeats

INTERVAL_MS = 1000


def started() -> Heartbeats:
    heartbeats = Heartbeats()
    heartbeats.start(INTERVAL_MS, 0)
    # The reply that opens the connection.
    heartbeats.on_output()
    return heartbeats


def beats(heartbeats: Heartbeats, upto_ms: int, sent_at_ms: set[int]) -> list[int]:
    """When heartbeats are sent, if something else is sent at `sent_at_ms`."""
    found: list[int] = []
    for now_ms in range(0, upto_ms + 1, 50):
        if now_ms in sent_at_ms:
            heartbeats.on_output()
        if heartbeats.take_beat(now_ms):
            found.append(now_ms)
            heartbeats.on_output()
    return found


def death(heartbeats: Heartbeats, received_at_ms: set[int], paused_ms: range) -> int:
    """When the peer counts as dead, if something arrives at `received_at_ms`."""
    for now_ms in range(0, 60_000, 50):
        if now_ms in received_at_ms:
            heartbeats.has_received = True
        if heartbeats.is_peer_dead(now_ms in paused_ms, now_ms):
            return now_ms
    return -1


def test_an_own_heartbeat_does_not_replace_the_next() -> None:
    assert beats(started(), 3000, set()) == [500, 1000, 1500, 2000, 2500, 3000]


def test_the_first_heartbeat_always_comes_and_traffic_replaces_the_others() -> None:
    sent_at_ms = set(range(100, 2000, 100))
    assert beats(started(), 3000, sent_at_ms) == [500, 2500, 3000]


def test_a_late_look_does_not_delay_the_next() -> None:
    heartbeats = started()
    assert heartbeats.take_beat(790)
    heartbeats.on_output()
    assert heartbeats.due_ms == 1000


def test_silence_of_two_checks_is_death() -> None:
    assert death(started(), {50}, range(0)) == 3000
    assert death(started(), {50, 1050}, range(0)) == 4000
    assert death(started(), set(range(0, 9000, 900)), range(0)) == 11_000


def test_a_pause_excuses_silence_and_begins_the_count_anew() -> None:
    assert death(started(), {50}, range(1900, 20_100)) == 23_000


def test_a_check_after_a_stall_leaves_time_to_read() -> None:
    heartbeats = started()
    assert not heartbeats.is_peer_dead(False, 1000)
    assert not heartbeats.is_peer_dead(False, 9000)
    assert not heartbeats.is_peer_dead(False, 9050)
    heartbeats.has_received = True
    assert not heartbeats.is_peer_dead(False, 9500)
    assert not heartbeats.is_peer_dead(False, 10_500)


def test_probes_go_out_during_a_pause_only() -> None:
    heartbeats = started()
    sent = [
        now_ms for now_ms in range(0, 10_000, 500) if heartbeats.take_probe(now_ms >= 3000, now_ms)
    ]
    assert sent == [2500 + PROBE_MS, 2500 + 2 * PROBE_MS, 2500 + 3 * PROBE_MS]
    off = Heartbeats()
    assert not any(off.take_probe(True, now_ms) for now_ms in range(0, 10_000, 500))
