"""Rule 14: what a purge or a deletion removed, and was answered, never comes.

A takeover may undo it as it undoes acks, around the start of a fault. A message that was handed out
before is not removed, so a first delivery that is marked as redelivered is right if a hidden
delivery is possible.
"""

from __future__ import annotations

from simulator.checker.events import Removal
from simulator.checker.facts import Facts, MessageFacts
from simulator.checker.repeats import OVERTAKING_US, hidden_max
from simulator.checker.violation import Rule, Violation


def judge_removals(facts: Facts, window_us: int) -> list[Violation]:
    """First deliveries after an answered removal of messages that were confirmed before it."""
    found = []
    for queue, removals in facts.removals.items():
        for removal in removals:
            if not removal.is_answered or _is_near_fault(facts, removal, window_us):
                continue
            firsts = [
                message.deliveries[queue][0]
                for message in facts.messages.values()
                if _was_removed(message, queue, removal)
            ]
            marked = [first for first in firsts if first.event.redelivered]
            if marked and len(marked) <= hidden_max(facts, queue, removal.at_us, window_us):
                firsts = [first for first in firsts if not first.event.redelivered]
            for first in firsts:
                text = f"delivered to {first.event.session} after it was removed"
                moments = (removal.asked_us, removal.at_us, first.at_us)
                names = (first.event.message,)
                found.append(Violation(Rule.REMOVED, queue, text, names, moments))
    return found


def _is_near_fault(facts: Facts, removal: Removal, window_us: int) -> bool:
    return any(
        removal.asked_us - window_us <= fault.at_us <= removal.at_us + window_us
        for fault in facts.faults
        if fault.kind not in _REMOVING
    )


# Kinds of faults that are removals themselves.
_REMOVING = ("purge", "delete")


def _was_removed(message: MessageFacts, queue: str, removal: Removal) -> bool:
    deliveries = message.deliveries.get(queue, [])
    return (
        len(deliveries) > 0
        and message.is_promised
        and message.confirms[0].at_us < removal.asked_us
        and deliveries[0].at_us > removal.at_us + OVERTAKING_US
    )
