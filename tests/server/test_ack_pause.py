"""The pause in which single acks gather: who waits for it, and who never does."""

from __future__ import annotations

import pytest

from warrenmq.server.ack_pause import AckPause

# Turns that follow each other closely, and those of a paced client (ns).
CLOSE, APART = 20_000, 1_000_000


class Turns:
    """Ends turns at times of its own, and counts the sleeps."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000
        self.sleeps = 0
        self.pause = AckPause(self._sleep, lambda: self.now_ns)

    def _sleep(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)
        self.sleeps += 1

    def turn(self, *reads: bool, after_ns: int = CLOSE) -> None:
        self.now_ns += after_ns
        for is_at_ease in reads:
            self.pause.read(is_at_ease)
        self.pause.end_turn(self.now_ns)


def test_a_turn_of_acks_of_clients_with_plenty_of_work_is_followed_by_a_pause() -> None:
    turns = Turns()
    turns.turn(True)
    assert turns.sleeps == 0, "nothing came just before it"
    for reads in ([True], [True, True]):
        turns.turn(*reads)
    assert turns.sleeps == 2


@pytest.mark.parametrize("reads", [[False], [True, False], [False, True], []])
def test_other_reads_and_other_events_wait_for_nothing(reads: list[bool]) -> None:
    turns = Turns()
    turns.turn(True)
    turns.turn(*reads)
    assert turns.sleeps == 0
    turns.turn(True)
    assert turns.sleeps == 1, "the next turn is judged by itself"


def test_turns_that_are_far_apart_gather_nothing() -> None:
    turns = Turns()
    for _ in range(5):
        turns.turn(True, after_ns=APART)
    assert turns.sleeps == 0
