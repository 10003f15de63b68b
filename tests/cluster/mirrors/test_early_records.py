"""Records of queues that a node does not know wait, within bounds of bytes and time."""

from warrenmq.cluster.mirrors.early_records import EARLY_BYTES_MAX, EARLY_MS, EarlyRecords

B, C = b"b", b"c"


def test_records_come_in_their_order_once_their_queue_is_known() -> None:
    early = EarlyRecords()
    assert early.keep(1, B, b"one", 0)
    assert early.keep(2, B, b"other", 0)
    assert early.keep(1, C, b"two", 5)
    assert early.take(1) == [(B, b"one"), (C, b"two")]
    assert early.take(1) == []
    assert early.size_bytes == len(b"other")


def test_records_of_a_queue_that_is_gone_do_not_wait_for_ever() -> None:
    early = EarlyRecords()
    for key in range(1000):
        early.keep(key, B, b"late", key * EARLY_MS // 10)
        early.keep(key, C, b"late", key * EARLY_MS // 10)
        early.expire(key * EARLY_MS // 10)
        assert early.size_bytes <= 10 * 2 * len(b"late")
    assert early.take(980) == []
    assert early.take(999) == [(B, b"late"), (C, b"late")]


def test_records_of_a_lost_link_are_dropped() -> None:
    early = EarlyRecords()
    early.keep(1, B, b"one", 0)
    early.keep(1, C, b"two", 0)
    early.keep(2, B, b"three", 0)
    early.drop_of(B)
    assert early.size_bytes == len(b"two")
    early.expire(EARLY_MS)
    assert early.size_bytes == 0
    assert early.take(1) == early.take(2) == []


def test_too_many_bytes_are_refused() -> None:
    early = EarlyRecords()
    half = bytes(EARLY_BYTES_MAX // 2)
    assert early.keep(1, B, half, 0) and early.keep(2, B, half, 0)
    assert not early.keep(3, B, b"x", 0)
    assert early.size_bytes == 0
    assert early.keep(3, B, b"x", 0)
