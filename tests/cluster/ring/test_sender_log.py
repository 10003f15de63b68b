"""What a member knows of one sender: it only rises, whatever repeats or arrives again."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.cluster.ring.frames import MalformedRingFrame, RingEntry
from warrenmq.cluster.ring.sender_log import SenderLog
from warrenmq.cluster.ring.view import MemberId

A = MemberId(1, b"a")
PAYLOADS = [b"p%d" % number for number in range(40)]


def entry(first: int, end: int, acked: int) -> RingEntry:
    return RingEntry(A, first, PAYLOADS[first:end], acked)


def log_of(end: int) -> SenderLog:
    log = SenderLog(A)
    log.merge(entry(0, end, -1))
    log.note_sent()
    return log


def knowledge(log: SenderLog) -> tuple[int, int, list[bytes], int]:
    return log.last_pub, log.last_ack, log.pending, log.pending_bytes


def test_broadcasts_are_numbered_from_0() -> None:
    log = SenderLog(A)
    assert [log.append(b"x"), log.append(b"yz")] == [0, 1]
    assert knowledge(log) == (1, -1, [b"x", b"yz"], 3)


def test_only_new_broadcasts_are_taken() -> None:
    log = log_of(3)
    assert log.merge(entry(0, 3, -1)) == []
    assert log.merge(entry(1, 5, -1)) == PAYLOADS[3:5]
    assert knowledge(log) == (4, -1, PAYLOADS[:5], 10)


def test_acked_broadcasts_are_dropped_once() -> None:
    log = log_of(4)
    assert log.merge(entry(4, 4, 1)) == []
    assert knowledge(log) == (3, 1, PAYLOADS[2:4], 4)
    assert log.ack(0) == []
    assert log.ack(3) == PAYLOADS[2:4]
    assert knowledge(log) == (3, 3, [], 0)


def test_broadcasts_that_are_missing_are_noticed() -> None:
    log = log_of(3)
    log.check(entry(3, 5, 2))
    log.check(entry(1, 2, 0))
    for missing in (entry(4, 6, 2), entry(4, 4, 3)):
        with pytest.raises(MalformedRingFrame):
            log.check(missing)


def test_a_newcomer_begins_with_what_is_pending() -> None:
    log = SenderLog(A)
    log.adopt(entry(5, 7, 4))
    assert knowledge(log) == (6, 4, PAYLOADS[5:7], 4)
    assert log.received == 4
    everything = log.everything()
    assert (everything.first, everything.pubs, everything.acked) == (5, PAYLOADS[5:7], 4)
    assert log.news() is None


def test_news_are_told_once() -> None:
    log = log_of(2)
    assert log.news() is None
    log.append(PAYLOADS[2])
    log.ack(0)
    news = log.news()
    assert news is not None
    assert (news.first, news.pubs, news.acked) == (2, PAYLOADS[2:3], 0)
    assert log.news() is None
    log.ack(2)
    news = log.news()
    assert news is not None
    assert (news.first, news.pubs, news.acked) == (3, [], 2)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5)), max_size=20), st.randoms())
def test_repeated_and_reordered_entries_give_the_same(
    steps: list[tuple[bool, int]], random: Random
) -> None:
    """A right neighbour that reads some entries again, late, knows what the left one knows."""
    left = SenderLog(A)
    right = SenderLog(A)
    taken: list[bytes] = []
    earlier: list[RingEntry] = []
    for is_ack, count in steps:
        if is_ack:
            left.ack(min(left.last_ack + count, left.sent_pub))
        else:
            for _ in range(count):
                left.append(b"%d" % left.last_pub)
        news = left.everything() if random.random() < 0.3 else left.news()
        if news is not None:
            earlier.append(news)
            for each in (news, random.choice(earlier)):
                right.check(each)
                taken += right.merge(each)
    assert knowledge(right) == knowledge(left)
    assert taken == [b"%d" % number for number in range(-1, left.last_pub)]
