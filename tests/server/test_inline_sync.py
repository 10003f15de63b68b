"""Which batches are synced on the loop."""

from warren.server.inline_sync import BATCH_BYTES_MAX, FAST_IN_A_ROW, FAST_MS, InlineSync


def fast_disk() -> InlineSync:
    policy = InlineSync()
    for _ in range(FAST_IN_A_ROW):
        policy.took(200, FAST_MS / 2)
    return policy


def test_small_batches_of_a_lone_socket_are() -> None:
    policy = fast_disk()
    assert policy.allows(200, 1)
    assert not policy.allows(BATCH_BYTES_MAX + 1, 1)
    assert not policy.allows(200, 2)


def test_a_disk_must_have_been_fast_before() -> None:
    policy = InlineSync()
    for _ in range(FAST_IN_A_ROW - 1):
        policy.took(200, FAST_MS / 2)
        assert not policy.allows(200, 1)
    policy.took(200, FAST_MS / 2)
    assert policy.allows(200, 1)


def test_one_slow_sync_is_enough_to_leave_the_loop() -> None:
    policy = fast_disk()
    policy.took(200, FAST_MS + 1)
    assert not policy.allows(200, 1)
    for _ in range(FAST_IN_A_ROW):
        policy.took(200, FAST_MS / 2)
    assert policy.allows(200, 1)


def test_large_batches_say_nothing_about_the_disk() -> None:
    policy = fast_disk()
    policy.took(BATCH_BYTES_MAX + 1, 50)
    assert policy.allows(200, 1)
