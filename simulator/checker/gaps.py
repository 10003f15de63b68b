"""Rule 10: for how long each fault keeps the publishers of a queue waiting.

A gap is the time between two confirms of a queue that follow each other, or between the last one
and the end of publishing if a later publish waits for its confirm. The part of it that lies between
the start of a fault and the start of the next one counts for that fault. The publishers must have
gone on publishing to all queues for this to mean anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from simulator.checker.events import FaultStart
from simulator.checker.facts import Facts
from simulator.checker.violation import Rule, Violation


@dataclass(frozen=True)
class Gap:
    """The longest time without a confirm that a fault caused, in microseconds."""

    fault: FaultStart
    queue: str
    start_us: int
    end_us: int

    @property
    def length_ms(self) -> float:
        """The length in milliseconds."""
        return (self.end_us - self.start_us) / 1000


def longest_gaps(facts: Facts) -> list[Gap]:
    """The longest gap of each fault under which a queue was confirmed before, in fault order."""
    confirms = _confirm_times(facts)
    gaps = []
    for number, fault in enumerate(facts.faults):
        later = facts.faults[number + 1 :]
        until_us = later[0].at_us if later else facts.publishing_end_us
        of_fault = [
            Gap(fault, queue, max(start_us, fault.at_us), min(end_us, until_us))
            for queue, times in confirms.items()
            for start_us, end_us in pairwise(times)
            if start_us < until_us and end_us > fault.at_us
        ]
        if of_fault:
            gaps.append(max(of_fault, key=lambda gap: gap.length_ms))
    return gaps


def _confirm_times(facts: Facts) -> dict[str, list[int]]:
    """Moments of the confirms by queue, and the end of publishing if a publish waits for one."""
    times: dict[str, list[int]] = {}
    last_publishes: dict[str, int] = {}
    for message in facts.messages.values():
        for queue in message.publish.queues:
            last_publishes[queue] = message.publish.at_us
        for confirm in message.confirms[:1]:
            if confirm.at_us < facts.publishing_end_us:
                for queue in message.publish.queues:
                    times.setdefault(queue, []).append(confirm.at_us)
    for queue, some in times.items():
        some.sort()
        if last_publishes[queue] > some[-1]:
            some.append(facts.publishing_end_us)
    return times


def judge_gaps(gaps: list[Gap]) -> list[Violation]:
    """The gaps that are longer than their faults allow."""
    found = []
    for gap in gaps:
        limit_ms = gap.fault.gap_limit_ms
        if limit_ms is not None and gap.length_ms > limit_ms:
            text = f"no confirm for {gap.length_ms:.0f} ms after {gap.fault.fault}, limit {limit_ms} ms"
            found.append(Violation(Rule.GAP, gap.queue, text, (), (gap.start_us, gap.end_us)))
    return found
