"""Rules 5 and 6: which messages may come again, and which may be marked as redelivered.

A client cannot see what was handed out to a connection that broke before it read. So a message that
is redelivered at its first arrival is right if such a *hidden* delivery is possible: each session
that ended, or lived through a fault, may hide as many as its prefetch. This bounds how many
messages of a queue may be marked. A master that follows one that has died does not know what that
one has handed out last, and marks all messages that it has.

Only where masters hand over in good order, and without a fault, the flags are exact.

A fault may undo acks that no other copy has seen yet, and a master that is cut off may take acks in
vain until it notices. Such a repeat is counted, and is no violation, if the acked delivery came at
most `window_us` after the start of a fault, and the acks' synchronous call succeeded at most
`window_us` before it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from simulator.checker.facts import (
    NEVER,
    DeliveryFacts,
    Facts,
    SessionFacts,
    is_lone_crash_of,
)
from simulator.checker.fences import is_in_flight
from simulator.checker.violation import Rule, Violation

UNDONE_ACKS = "acks undone by a fault"
TAKEN_BACK = "dead letters taken back by a new master"
LOST_FLAGS = "flags lost in a crash"
CRASH_FLAGS = "flags set by a crash"
MASTER_FLAGS = "flags set by a new master"
HIDDEN_DELIVERIES = "deliveries that no client saw"
# The bytes of one connection may arrive so much later than bytes that another one sent later.
OVERTAKING_US = 20_000


def judge_repeats(facts: Facts, window_us: int, counts: Counter[str]) -> list[Violation]:
    """Deliveries of messages whose ack had taken effect (rule 6); adds excused ones to `counts`."""
    found = []
    for message in facts.messages.values():
        for queue, deliveries in message.own_deliveries:
            if len(deliveries) == 1:
                continue
            settled = min(deliveries, key=lambda delivery: delivery.settled_us)
            for delivery in deliveries:
                if delivery is settled or delivery.at_us <= settled.settled_us:
                    continue
                if _is_undone(facts, settled, window_us) or is_in_flight(
                    facts, queue, settled.settled_us
                ):
                    counts[UNDONE_ACKS] += 1
                    continue
                if facts.is_letter_taken_back(settled, delivery.at_us):
                    counts[TAKEN_BACK] += 1
                    continue
                text = f"acked by {settled.event.session} and delivered again to {delivery.event.session}"
                moments = (settled.acked_us, settled.settled_us, delivery.at_us)
                found.append(Violation(Rule.AGAIN, queue, text, (delivery.event.message,), moments))
    return found


@dataclass(frozen=True)
class UndoneAck:
    """An ack that had taken effect and was undone, with durations in microseconds.

    `age_us`: how old it was when another master took over; 0 if none did. `after_fault_us`: how
    long after the start of the last fault it took effect, negative before the first one.
    """

    age_us: int
    after_fault_us: int


def undone_acks(facts: Facts) -> list[UndoneAck]:
    """All acks that were undone, excused or not."""
    found = []
    for message in facts.messages.values():
        for queue, deliveries in message.own_deliveries:
            settled_us = min(delivery.settled_us for delivery in deliveries)
            again_us = deliveries[-1].at_us
            if again_us <= settled_us:
                continue
            moves = [each for each in facts.moves_of(queue) if settled_us < each < again_us]
            faults = [settled_us - each.at_us for each in facts.faults if each.at_us < again_us]
            after = [distance for distance in faults if distance >= 0]
            found.append(
                UndoneAck(
                    max(moves, default=settled_us) - settled_us,
                    min(after) if after else max(faults, default=0),
                )
            )
    return found


def _is_undone(facts: Facts, settled: DeliveryFacts, window_us: int) -> bool:
    """Whether a fault excuses that the ack of a delivery had no effect in the end."""
    return any(
        settled.at_us - window_us <= fault.at_us <= settled.settled_us + window_us
        for fault in facts.faults
    )


def judge_flags(facts: Facts, window_us: int, counts: Counter[str]) -> list[Violation]:
    """Duplicates without the flag, and flags on messages never handed out (rule 5)."""
    found: list[Violation] = []
    # First deliveries that are marked as redelivered, by queue.
    marked: dict[str, list[DeliveryFacts]] = {}
    for message in facts.messages.values():
        for queue, deliveries in message.own_deliveries:
            first = deliveries[0]
            if first.event.redelivered:
                after_us = message.publish.at_us
                if facts.lone_crash_between(queue, after_us, first.at_us):
                    counts[CRASH_FLAGS] += 1
                elif facts.new_master_between(
                    queue, after_us, first.at_us
                ) or _has_takeover_between(facts, after_us, first.at_us, window_us):
                    counts[MASTER_FLAGS] += 1
                else:
                    marked.setdefault(queue, []).append(first)
            found += _judge_duplicates(facts, queue, deliveries, counts)
    for queue, firsts in marked.items():
        found += _judge_marked(facts, queue, firsts, window_us, counts)
    return found


def _has_takeover_between(facts: Facts, after_us: int, before_us: int, window_us: int) -> bool:
    """Whether a copy may have taken over in this time and marked all messages.

    It may do so only after the fault: when etcd answers again, for instance.
    """
    return any(
        not fault.hands_over
        and not fault.is_lone_crash
        and fault.at_us < before_us
        and facts.fault_ends.get(fault.fault, NEVER) + window_us >= after_us
        for fault in facts.faults
    )


def _judge_duplicates(
    facts: Facts, queue: str, deliveries: list[DeliveryFacts], counts: Counter[str]
) -> list[Violation]:
    """Violations where a message came unmarked although it had been handed out before.

    An unmarked delivery is the first of its message. It may arrive after marked ones, if its client
    reads the rest of a connection that the broker has closed already; or if a fault let the broker
    take it back at once, and both were on their way to different connections.
    """
    found = []
    unmarked = [delivery for delivery in deliveries if not delivery.event.redelivered]
    for before, delivery in pairwise(unmarked):
        if _has_crash_between(facts, before, delivery):
            counts[LOST_FLAGS] += 1
        else:
            found.append(_came_again(queue, before, delivery))
    first = deliveries[0]
    if first.event.redelivered and unmarked:
        late = unmarked[0]
        if (
            not late.session.is_lost
            and not _has_crash_between(facts, first, late)
            and not _was_overtaken(facts, first, late)
        ):
            found.append(_came_again(queue, first, late))
    return found


def _was_overtaken(facts: Facts, first: DeliveryFacts, late: DeliveryFacts) -> bool:
    """Whether two deliveries may have been sent in the other order, after a fault."""
    if first.session is late.session:
        return False
    for fault in facts.faults:
        if fault.at_us > first.at_us:
            continue
        if late.at_us - first.at_us <= OVERTAKING_US:
            return True
        end_us = facts.fault_ends.get(fault.fault, NEVER)
        # TCP tries again after pauses that double, so the last one may be as long as the fault. A
        # node that has heard nothing for so long may take messages back in that time, too.
        if fault.keeps_packets and late.at_us <= 2 * end_us - fault.at_us:
            return True
    return False


def _has_crash_between(facts: Facts, before: DeliveryFacts, delivery: DeliveryFacts) -> bool:
    """Whether a lone crash may lie between the moments at which the broker sent two deliveries.

    The rest of a broken connection may be read long after it was sent.
    """
    sent_us = min(
        each.session.start.at_us if each.session.is_lost else each.at_us
        for each in (before, delivery)
    )
    queue = delivery.session.start.queue
    return facts.lone_crash_between(queue, sent_us, delivery.at_us)


def _came_again(queue: str, before: DeliveryFacts, delivery: DeliveryFacts) -> Violation:
    text = f"came again without the redelivered flag, to {delivery.event.session}"
    moments = (before.at_us, delivery.at_us)
    return Violation(Rule.FLAG, queue, text, (delivery.event.message,), moments)


def _judge_marked(
    facts: Facts,
    queue: str,
    firsts: list[DeliveryFacts],
    window_us: int,
    counts: Counter[str],
) -> list[Violation]:
    """Violations where more messages are marked than hidden deliveries were possible so far."""
    found = []
    firsts.sort(key=lambda delivery: delivery.at_us)
    excused = 0
    for first in firsts:
        if excused < hidden_max(facts, queue, first.at_us, window_us):
            excused += 1
            continue
        text = f"redelivered to {first.event.session}, but never handed out before"
        found.append(Violation(Rule.FLAG, queue, text, (first.event.message,), (first.at_us,)))
    counts[HIDDEN_DELIVERIES] += excused
    return found


def hidden_max(facts: Facts, queue: str, at_us: int, window_us: int) -> int:
    """How many messages may have been handed out until `at_us` without arriving at a client."""
    hidden = 0
    for session in facts.sessions_of[queue]:
        if session.start.at_us <= at_us:
            losses = _loss_count(facts, session, at_us, window_us)
            hidden += losses * (session.start.prefetch or len(facts.messages))
    return hidden


def _loss_count(facts: Facts, session: SessionFacts, at_us: int, window_us: int) -> int:
    """How often the broker may have taken back what it had sent to a session, until `at_us`.

    A lost session counts from the start: the broker may notice before the client. A session that
    lives through a fault, or begins before the fault is noticed, may get another master. A lone
    crash ends all sessions.
    """
    ends = 1 if session.is_lost or session.end_us <= at_us else 0
    return ends + sum(
        session.start.at_us - window_us <= fault.at_us <= min(at_us, session.end_us)
        for fault in facts.faults
        if not is_lone_crash_of(fault, session.start.queue)
    )
