"""Which batches are synced on the loop."""

from warren.server.inline_sync import BATCH_BYTES_MAX, PAUSE_MAX_MS, PAUSE_MIN_MS, SLOW_MS, InlineSync


def test_small_batches_of_a_lone_socket_are() -> None:
    policy = InlineSync()
    assert policy.allows(200, 1, 0)
    assert not policy.allows(BATCH_BYTES_MAX + 1, 1, 0)
    assert not policy.allows(200, 2, 0)


def test_a_slow_sync_sends_the_next_ones_to_the_thread_for_a_while() -> None:
    policy = InlineSync()
    policy.took(SLOW_MS + 1, now_ms=100)
    assert not policy.allows(200, 1, 100 + PAUSE_MIN_MS - 1)
    assert policy.allows(200, 1, 100 + PAUSE_MIN_MS)


def test_a_disk_that_stays_slow_is_tried_ever_more_seldom_and_a_fast_one_is_forgiven() -> None:
    policy = InlineSync()
    now_ms = 0
    pauses = []
    for _ in range(10):
        policy.took(50, now_ms)
        start_ms = now_ms
        while not policy.allows(200, 1, now_ms):
            now_ms += 1_000
        pauses.append(now_ms - start_ms)
    assert pauses == sorted(pauses)
    assert pauses[0] == PAUSE_MIN_MS
    assert pauses[-1] == PAUSE_MAX_MS
    for _ in range(10):
        policy.took(0.1, now_ms)
    policy.took(50, now_ms)
    assert policy.allows(200, 1, now_ms + PAUSE_MIN_MS)
