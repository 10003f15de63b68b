"""An idle node flushes its journal at once (S19); a busy node flushes by its timer (S18).

The node's clock moves only when a test moves it, and its timers fire only when a test calls them.
So every flush has the reason that the test names.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.amqp_peer import ChannelPeer, Peer
from tests.support.brokers.node_thread import NodeThread
from warrenmq.store.journal.journal import FLUSH_INTERVAL_MS, Journal


class StandingClock:
    def __init__(self, now_ms: int) -> None:
        self.time_ms = now_ms

    def now_ms(self) -> int:
        return self.time_ms


class HeldTimers:
    """The node's event loop, whose timers only the test calls."""

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        self.timers: list[tuple[float, Callable[..., object]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *arguments: object
    ) -> object:
        self.timers.append((delay_s, callback))
        return object()


class StillNode:
    def __init__(self, thread: NodeThread) -> None:
        self.thread = thread
        self.node = thread.node
        self.loop: Any = self.node.loop
        self.clock = StandingClock(self.node.clock.now_ms() + 1000)
        self.held = HeldTimers(self.loop)
        self.peers: list[Peer] = []
        (self.driver,) = self.node._drivers()
        # The flush timer of the start must fire before the test takes over the timers.
        eventually(lambda: not self.driver._has_timer, "the timer has run out")
        thread.call(self._hold)
        self.journal: Journal = next(iter(self.node.broker.vhosts.values())).journal

    def _hold(self) -> None:
        assert not self.driver._has_timer
        node: Any = self.node
        node.clock = self.clock
        node.loop = self.held

    def peer(self) -> Peer:
        self.peers.append(self.thread.peer())
        return self.peers[-1]

    def let_go(self) -> None:
        def go() -> None:
            self.node.loop = self.loop
            for delay_s, callback in self.held.timers:
                self.loop.call_later(delay_s, callback)

        self.thread.call(go)

    def is_written(self) -> bool:
        def look() -> bool:
            return len(self.journal.batch.positions) == 0 and len(self.journal.in_flight) == 0

        return self.thread.call(look)

    def advance(self, ms: int) -> None:
        self.clock.time_ms += ms


@pytest.fixture
def still(tmp_path: Path) -> Iterator[StillNode]:
    thread = NodeThread(tmp_path)
    still = StillNode(thread)
    yield still
    for peer in still.peers:
        peer.drop()
    still.let_go()
    thread.stop()


def durable_queue(still: StillNode) -> tuple[ChannelPeer, bytes]:
    channel = still.peer().open().channel()
    return channel, channel.declare(b"q", durable=True).queue


def published(channel: ChannelPeer, queue: bytes, count: int) -> None:
    """Publish a persistent message without confirm; the queue must then have `count` messages."""
    channel.publish(queue, b"x", PERSISTENT)
    assert channel.count(queue) == count


def test_a_publish_to_an_idle_node_waits_for_no_timer(still: StillNode) -> None:
    channel, queue = durable_queue(still)
    still.advance(FLUSH_INTERVAL_MS)
    published(channel, queue, 1)
    eventually(still.is_written, "the journal is written")


def test_a_node_with_something_to_do_is_not_idle(still: StillNode) -> None:
    channel, queue = durable_queue(still)
    published(channel, queue, 1)
    still.advance(FLUSH_INTERVAL_MS - 1)

    def look_in_the_middle_of_a_turn() -> bool:
        still.advance(1)
        still.node.schedule_turn()
        still.node._on_idle(still.driver)
        return len(still.journal.batch.positions) == 1

    assert still.thread.call(look_in_the_middle_of_a_turn)


def test_a_publish_behind_another_waits_for_the_timer(still: StillNode) -> None:
    channel, queue = durable_queue(still)
    # The declaration was flushed at this time, so the interval has not passed.
    published(channel, queue, 1)
    assert not still.is_written()
    timers = [timer for timer in still.held.timers if timer[0] == FLUSH_INTERVAL_MS / 1000]
    assert len(timers) == 1
    still.advance(FLUSH_INTERVAL_MS)
    still.thread.call(timers[0][1])
    eventually(still.is_written, "the journal is written")


def test_a_trickle_costs_one_sync_for_each_interval(still: StillNode) -> None:
    channel, queue = durable_queue(still)
    before = still.journal.last_sealed()
    still.advance(FLUSH_INTERVAL_MS)
    published(channel, queue, 1)
    eventually(still.is_written, "the journal is written")
    for number in range(2, 2 + FLUSH_INTERVAL_MS - 1):
        still.advance(1)
        published(channel, queue, number)
    assert still.journal.last_sealed() == before + 1
    still.advance(1)
    published(channel, queue, 2 + FLUSH_INTERVAL_MS - 1)
    eventually(still.is_written, "the journal is written")
    assert still.journal.last_sealed() == before + 2
