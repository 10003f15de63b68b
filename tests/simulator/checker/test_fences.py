"""Histories with replaced masters, purges and dead letters, and the rules that judge them."""

import pytest

from simulator.checker.events import (
    LOST,
    Ack,
    AnyEvent,
    Confirm,
    Delivery,
    FaultEnd,
    FaultStart,
    MasterReport,
    Publish,
    QueueDrained,
    Reject,
    Removal,
    Requeue,
    SessionEnd,
    SessionStart,
    SyncCall,
    SyncReply,
)
from simulator.checker.facts import Facts
from simulator.checker.repeats import UndoneAck, undone_acks
from simulator.checker.verdict import judge
from simulator.checker.violation import Rule

S = 1_000_000
# How long acks may be undone, and how long a replaced master may hand out.
BOUND_MS = 5000


def published(name: str = "m", sequence: int = 0) -> list[AnyEvent]:
    """A message that is confirmed at 1 s."""
    return [Publish(S, name, "p", "p-0", sequence, ("q",), 7), Confirm(S, name)]


def session(name: str, at_s: float = 1, queue: str = "q", is_single: bool = False) -> SessionStart:
    return SessionStart(int(at_s * S), name, queue, "n", 9, is_single)


def delivery(at_s: float, to: str, tag: int = 1, name: str = "m", again: bool = False) -> Delivery:
    return Delivery(int(at_s * S), to, tag, name, again, 7)


def settled(at_s: float, of: str, tag: int = 1) -> list[AnyEvent]:
    at_us = int(at_s * S)
    return [Ack(at_us, of, tag), SyncCall(at_us, of), SyncReply(at_us, of)]


def fault(at_s: float, kind: str = "cut", hands_over: bool = False) -> FaultStart:
    return FaultStart(int(at_s * S), kind, kind, "n", hands_over=hands_over)


def moved(at_s: float, epoch: int, node: str) -> MasterReport:
    return MasterReport(int(at_s * S), "q", epoch, node)


def fed(name: str, first_s: int, last_s: int) -> list[AnyEvent]:
    """A message a second for a single active consumer."""
    events: list[AnyEvent] = []
    for tag, at_s in enumerate(range(first_s, last_s + 1)):
        message = f"{name}{tag}"
        events += [Publish(S, message, name, f"{name}-0", tag, ("q",), 7)]
        events.append(delivery(at_s, name, tag, message))
    return events


DRAINED = QueueDrained(90 * S, "q")
TWO_SESSIONS: list[AnyEvent] = [*published(), session("a"), session("b")]

VIOLATIONS: dict[str, tuple[Rule, list[AnyEvent]]] = {
    "a replaced master hands out": (
        Rule.FENCE,
        [*TWO_SESSIONS, fault(2), delivery(8, "a"), delivery(9, "b", again=True),
         *settled(10, "b")],
    ),
    "two single consumers": (
        Rule.SINGLE,
        [session("a", is_single=True), session("b", is_single=True), fault(2),
         *fed("a", 2, 14), *fed("b", 4, 16)],
    ),
    "a master that moves has given its messages to others before": (
        Rule.FENCE,
        [*TWO_SESSIONS, moved(1, 1, "n1"), fault(2, "policy", True), delivery(8, "a"),
         delivery(9, "b", again=True), *settled(10, "b"), moved(12, 2, "n2")],
    ),
    "a master moves twice": (
        Rule.MOVES,
        [moved(1, 1, "n1"), fault(2), moved(3, 2, "n2"), moved(8, 3, "n1")],
    ),
    "a purged message": (
        Rule.REMOVED,
        [*published(), Removal(20 * S, "q", 19 * S, True), session("a", 21), delivery(22, "a"),
         *settled(23, "a")],
    ),
    "a dead letter is lost": (
        Rule.LOST,
        [*published(), session("a"), delivery(2, "a"), Reject(3 * S, "a", 1, "letters"),
         SyncCall(3 * S, "a"), SyncReply(4 * S, "a"), QueueDrained(9 * S, "letters")],
    ),
    "more flags than handed out after a hand-over": (
        Rule.FLAG,
        [*published(), session("a"), fault(2, "drain", True), FaultEnd(3 * S, "drain"),
         *[each for number in range(20) for each in published(f"m{number}", number + 1)],
         *[delivery(4, "a", number + 1, f"m{number}", True) for number in range(20)],
         *[each for number in range(20) for each in settled(5, "a", number + 1)],
         delivery(6, "a", 99), *settled(6, "a", 99)],
    ),
}  # fmt: skip

EXCUSED: dict[str, list[AnyEvent]] = {
    "a master hands out until the bound": [
        *TWO_SESSIONS, fault(2), delivery(6, "a"), delivery(9, "b", again=True), *settled(10, "b"),
    ],
    "a master moves long after the policy that asked for it": [
        *TWO_SESSIONS, moved(1, 1, "n1"), fault(2, "policy", True), delivery(8, "a"),
        moved(12, 2, "n2"), delivery(13, "b", again=True), *settled(14, "b"),
    ],
    "a consumer that gave its message back": [
        *TWO_SESSIONS, delivery(2, "a"), Requeue(3 * S, "a", 1), delivery(9, "b", again=True),
        *settled(10, "b"),
    ],
    "a consumer that went away": [
        *TWO_SESSIONS, delivery(2, "a"), SessionEnd(3 * S, "a", LOST),
        delivery(9, "b", again=True), *settled(10, "b"),
    ],
    "a single consumer follows another": [
        session("a", is_single=True), session("b", is_single=True), fault(2),
        *fed("a", 2, 6), *fed("b", 4, 16),
    ],
    "a takeover marks what nobody had": [
        *published(), session("a"), fault(2), FaultEnd(3 * S, "cut"),
        *[each for number in range(20) for each in published(f"m{number}", number + 1)],
        *[delivery(4, "a", number + 1, f"m{number}", True) for number in range(20)],
        *[each for number in range(20) for each in settled(5, "a", number + 1)],
        delivery(6, "a", 99), *settled(6, "a", 99),
    ],
    "a purge just before a fault": [
        *published(), Removal(20 * S, "q", 19 * S, True), fault(21), session("a", 21),
        delivery(22, "a"), *settled(23, "a"),
    ],
    "a purged message is gone": [*published(), Removal(2 * S, "q", S, True)],
    "a reject is undone": [
        *TWO_SESSIONS, fault(2), delivery(2, "a"), Reject(3 * S, "a", 1, "letters"),
        SyncCall(3 * S, "a"), SyncReply(4 * S, "a"), delivery(5, "b", again=True), *settled(6, "b"),
        QueueDrained(9 * S, "letters"),
    ],
    "a dead letter comes twice": [
        *published(), session("a"), session("l", 1, "letters"), fault(2), delivery(2, "a"),
        Reject(3 * S, "a", 1, "letters"), delivery(4, "l"), delivery(5, "l", 2),
        *settled(6, "l"), *settled(6, "l", 2), QueueDrained(9 * S, "letters"),
    ],
}  # fmt: skip


def sorted_by_time(events: list[AnyEvent]) -> list[AnyEvent]:
    return sorted(events, key=lambda event: event.at_us)


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation_is_found(name: str) -> None:
    rule, events = VIOLATIONS[name]
    verdict = judge(sorted_by_time([*events, DRAINED]), BOUND_MS, BOUND_MS)
    assert verdict.broken() == {rule}, verdict.text()


@pytest.mark.parametrize("name", EXCUSED)
def test_a_correct_broker_is_not_blamed(name: str) -> None:
    verdict = judge(sorted_by_time([*EXCUSED[name], DRAINED]), BOUND_MS, BOUND_MS)
    assert verdict.is_clean, verdict.text()


def test_the_age_of_an_undone_ack_is_told() -> None:
    events = [
        moved(0, 1, "n1"), *TWO_SESSIONS, fault(1), delivery(2, "a"), *settled(3, "a"),
        moved(8, 2, "n2"), delivery(9, "b", again=True),
    ]  # fmt: skip
    assert undone_acks(Facts(sorted_by_time(events))) == [UndoneAck(5 * S, 2 * S)]
