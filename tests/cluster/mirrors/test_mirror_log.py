"""The log tells who died, which mirror leads now and why, and sums up when queues are many."""

import logging

import pytest

from tests.cluster.groups.copies import copy, made, master_of, member, new_group
from tests.support.brokers.memory_node import VirtualClock
from warrenmq.cluster.groups.group import Group
from warrenmq.cluster.groups.transitions import (
    STOPPED,
    chained,
    create,
    died,
    drop,
    in_sync,
    join,
    out_of_sync,
    promote,
    promote_unsafe,
    rejoin,
    transfer,
)
from warrenmq.cluster.mirrors.log.group_lines import lines_of
from warrenmq.cluster.mirrors.log.mirror_log import BURST_MS, LINES_MAX, QUIET_MS, MirrorLog

A, B, C = b"a", b"b", b"c"


def told(before: Group, group: Group | None, *nodes: bytes) -> list[str]:
    """The lines that the nodes write about a change, by default all of them."""
    return [
        line.text for node in nodes or (A, B, C) for line in lines_of(before, made(group), node)
    ]


def test_a_promotion_says_who_died_and_why_this_mirror_leads() -> None:
    group = new_group(A, B, C)
    dead = made(died(group, group.master))
    promoted = made(promote(dead, member(dead, B).id, 0, {B, C}))
    text = (
        "Promoting mirror on node 'b' to leader: the leader on node 'a' has died or is silent, "
        "and this mirror is the oldest in sync within reach"
    )
    # Both changes are one decision, or two.
    assert told(group, promoted) == told(dead, promoted) == [text]
    down = "The leader on node 'a' has died or is silent, and the queue is down until a copy takes over"
    assert told(group, dead, B) == [down] and told(group, dead, A) == []
    back = made(rejoin(promoted, copy(A, "2")))
    assert told(promoted, back) == ["The mirror on node 'a' is back"]


def test_a_stop_and_an_unsafe_promotion_are_told_apart() -> None:
    group = made(join(create(copy(A)), copy(B)))
    stopped = made(died(group, group.master, STOPPED))
    unsafe = promote_unsafe(stopped, member(stopped, B).id, 0, {B})
    [line] = lines_of(stopped, made(unsafe), B)
    assert line.level == logging.WARNING and line.text == (
        "Promoting unsynchronised mirror on node 'b' to leader: the leader on node 'a' has "
        "stopped, and no copy in sync is left; messages that it lacks are lost"
    )


def test_a_leader_that_restarts_or_hands_over_promotes_nobody() -> None:
    alone = create(copy(A))
    restarted = made(rejoin(alone, copy(A, "2")))
    again = made(promote(restarted, member(restarted, A).id, 0, {A}))
    assert told(restarted, again) == ["Node 'a' leads again after its restart"]
    group = new_group(A, B)
    moved = transfer(group, master_of(group), member(group, B).id, 0, True)
    assert told(group, moved) == ["Node 'b' leads now: node 'a' has handed over"]


def test_the_leader_tells_what_becomes_of_its_mirrors() -> None:
    group = new_group(A, B, C)
    by = master_of(group)
    late = made(out_of_sync(group, by, copy(B)))
    assert told(group, late) == ["The mirror on node 'b' is not in sync any more"]
    assert told(late, in_sync(late, by, copy(B))) == ["The mirror on node 'b' is in sync"]
    buried = chained(died(group, member(group, B).id), lambda dead: out_of_sync(dead, by, copy(B)))
    assert told(group, buried) == [
        "The mirror on node 'b' is gone: its node has stopped, died or is silent"
    ]
    assert told(group, drop(group, by, B)) == ["Dropping queue mirror on node 'b'"]
    assert told(create(copy(A)), join(create(copy(A)), copy(B))) == ["Adding mirror on node 'b'"]


def test_thousands_of_queues_have_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "warren.mirrors")
    clock = VirtualClock()
    log = MirrorLog(clock.now_ms)
    for number in range(5000):
        log.write(f"queue 'q{number}' in vhost '/'", f"{number} of a", "a dies", logging.WARNING)
    log.write("queue 'r' in vhost '/'", "b dies")
    assert len(caplog.messages) == LINES_MAX + 1
    assert caplog.messages[0] == "Mirrored queue 'q0' in vhost '/': 0 of a"
    clock.advance(QUIET_MS)
    log.tick()
    assert caplog.messages[LINES_MAX + 1 :] == [f"Mirrored queues, {5000 - LINES_MAX} more: a dies"]
    assert caplog.records[-1].levelno == logging.WARNING
    # An event that never rests is told of now and then.
    caplog.clear()
    for _ in range(BURST_MS // 100):
        for number in range(10):
            log.write(f"queue 'q{number}'", "a dies")
        clock.advance(100)
        log.tick()
    assert caplog.messages[LINES_MAX:] == [
        f"Mirrored queues, {BURST_MS // 10 - LINES_MAX} more: a dies"
    ]
    for _ in range(LINES_MAX + 1):
        log.write("queue 'q'", "a dies")
    log.flush()
    assert caplog.messages[-1] == "Mirrored queues, 1 more: a dies"
