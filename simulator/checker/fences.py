"""Rules 11 and 12: a master that others replace stops handing out, and a single consumer is alone.

A fault may part a master from the copies that take over. What it hands out from then on comes
again, so it may do so for `bound_us` only. A hand-out shows as *undone* when its message comes
again although its consumer neither gave it back nor went away: then its master was replaced, and a
fault must have begun after the hand-out, or at most `bound_us` before it. Where the old and the new
master hear each other, what is in flight at the change may come again, too. A policy may move a
master long after it was set, once the next one is in sync: what consumers have then comes again.
"""

from __future__ import annotations

from itertools import pairwise

from simulator.checker.facts import NEVER, DeliveryFacts, Facts
from simulator.checker.violation import Rule, Violation

# The kind of a fault that lets few bytes of a second through, and loses none.
SLOW_LINK = "slow link"
# A client learns of a lost connection so much later than the broker, at most.
_LATE_LOSS_US = 5_000_000
# Longest time that a delivery or an ack takes from a master to its copies.
IN_FLIGHT_US = 1_000_000
# Deliveries of one consumer with longer pauses are several spells of it.
_PAUSE_US = 2_000_000


def judge_hand_outs(facts: Facts, bound_us: int) -> list[Violation]:
    """Hand-outs that were undone and came too late after the faults before them (rule 11)."""
    found = []
    for message in facts.messages.values():
        for queue, deliveries in message.own_deliveries:
            for before, again in pairwise(deliveries):
                if (
                    not _is_undone(before, again)
                    or _has_fault(facts, before, again, bound_us)
                    or is_in_flight(facts, queue, before.at_us)
                    or facts.is_transferred(queue, before.at_us, again.at_us)
                    or facts.is_letter_taken_back(before, again.at_us)
                ):
                    continue
                text = (
                    f"handed out to {before.event.session}, which kept it,"
                    f" and to {again.event.session}, long after a fault"
                )
                moments = (before.at_us, again.at_us)
                names = (message.publish.message,)
                found.append(Violation(Rule.FENCE, queue, text, names, moments))
    return found


def is_in_flight(facts: Facts, queue: str, at_us: int) -> bool:
    """Whether the master of a queue moves at about this moment."""
    return any(abs(moment - at_us) <= IN_FLIGHT_US for moment in facts.moves_of(queue))


def _is_undone(before: DeliveryFacts, again: DeliveryFacts) -> bool:
    session = before.session
    slack_us = _LATE_LOSS_US if session.is_lost else 0
    return before.requeued_us > again.at_us and session.end_us > again.at_us + slack_us


def _has_fault(facts: Facts, before: DeliveryFacts, again: DeliveryFacts, bound_us: int) -> bool:
    for fault in facts.faults:
        from_us = fault.at_us
        if fault.kind == SLOW_LINK:
            # Bytes that have gathered on a slow link may break it for some time after the fault.
            from_us = facts.fault_ends.get(fault.fault, NEVER)
        if fault.at_us <= again.at_us and before.at_us - bound_us <= from_us:
            return True
        end_us = facts.fault_ends.get(fault.fault, NEVER)
        # A connection that was on its way all the time may replace the first one after the fault.
        if fault.keeps_packets and end_us <= before.at_us <= end_us + bound_us:
            return True
    return False


def judge_single_consumers(facts: Facts, bound_us: int) -> list[Violation]:
    """Queues with a single active consumer that fed two for longer than the bound (rule 12)."""
    found = []
    for queue, sessions in facts.sessions_of.items():
        spells = [
            (*spell, session.start.session)
            for session in sessions
            if session.start.is_single
            for spell in _spells(session.deliveries)
        ]
        for one, other in pairwise(sorted(spells)):
            start_us, end_us = other[0], min(one[1], other[1])
            if one[2] != other[2] and end_us - start_us > bound_us:
                text = f"{one[2]} and {other[2]} are fed at the same time"
                found.append(Violation(Rule.SINGLE, queue, text, (), (start_us, end_us)))
    return found


def _spells(deliveries: list[DeliveryFacts]) -> list[tuple[int, int]]:
    """The times (from, to) in which a consumer was fed without a long pause."""
    spells: list[tuple[int, int]] = []
    for delivery in deliveries:
        if spells and delivery.at_us - spells[-1][1] <= _PAUSE_US:
            spells[-1] = (spells[-1][0], delivery.at_us)
        else:
            spells.append((delivery.at_us, delivery.at_us))
    return spells


def judge_moves(facts: Facts) -> list[Violation]:
    """Changes of a master without a fault of their own: at most one for each fault (rule 13)."""
    found = []
    for queue, moments in facts.moves.items():
        for number, moment in enumerate(moments, 1):
            faults = sum(fault.at_us <= moment for fault in facts.faults)
            if number > faults:
                text = f"change {number} of the master after {faults} faults"
                found.append(Violation(Rule.MOVES, queue, text, (), (moment,)))
    return found
