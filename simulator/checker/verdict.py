"""The verdict on a history: the broken rules, the gaps, and what was excused.

verdict = judge(read_history([path]))
assert verdict.is_clean, verdict.text()
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from simulator.checker.copies import judge_copies, judge_masters
from simulator.checker.events import AnyEvent
from simulator.checker.facts import Facts
from simulator.checker.fences import (
    judge_hand_outs,
    judge_moves,
    judge_single_consumers,
)
from simulator.checker.gaps import Gap, judge_gaps, longest_gaps
from simulator.checker.losses import judge_answers, judge_ghosts, judge_losses
from simulator.checker.order import judge_order
from simulator.checker.removals import judge_removals
from simulator.checker.repeats import judge_flags, judge_repeats
from simulator.checker.violation import Rule, Violation

# Time around the start of a fault in which acks may be undone: detection takes up to 4 s.
WINDOW_MS: Final = 5000
# Violations of one rule that the text shows.
_SHOWN: Final = 20


@dataclass(frozen=True)
class Verdict:
    """The violations of a history; moments are in microseconds."""

    start_us: int
    # In the order of the rules.
    violations: list[Violation]
    # The longest gap of each fault.
    gaps: list[Gap]
    # Queues that were not drained to the end, so that losses cannot be judged.
    undrained: list[str]
    # How much happened, and how often a fault excused what would be a violation, by name.
    counts: Counter[str]

    @property
    def is_clean(self) -> bool:
        """Whether no rule was broken, and every queue was drained."""
        return not self.violations and not self.undrained

    def broken(self) -> set[Rule]:
        """The rules that were broken."""
        return {violation.rule for violation in self.violations}

    def text(self) -> str:
        """The verdict for people, a line for each finding."""
        lines = []
        shown: Counter[Rule] = Counter()
        for violation in self.violations:
            shown[violation.rule] += 1
            if shown[violation.rule] <= _SHOWN:
                lines.append(violation.line(self.start_us))
        for rule, count in shown.items():
            if count > _SHOWN:
                lines.append(f"rule {rule.value}, {rule.name.lower()}: {count - _SHOWN} more")
        for queue in self.undrained:
            lines.append(f"queue {queue} was not drained: what it lost is not known")
        for gap in self.gaps:
            start_s = (gap.start_us - self.start_us) / 1e6
            lines.append(
                f"{gap.fault.fault} ({gap.fault.kind} of {gap.fault.node}): no confirm of queue"
                f" {gap.queue} for {gap.length_ms:.0f} ms from {start_s:.3f} s on"
            )
        lines.append(", ".join(f"{count} {name}" for name, count in self.counts.items() if count))
        lines.append("clean" if self.is_clean else f"{len(self.violations)} violations")
        return "\n".join(lines)


def judge(
    events: list[AnyEvent], window_ms: int = WINDOW_MS, hand_out_ms: int | None = None
) -> Verdict:
    """Judge a history by all rules. Raises HistoryError if its events contradict each other.

    window_ms: how long around the start of a fault acks may be undone (`repeats.py`). hand_out_ms:
    how long after the start of a fault a master may hand out what others hand out, too
    (`fences.py`); None leaves rules 11 to 13 out.
    """
    facts = Facts(events)
    window_us = window_ms * 1000
    gaps = longest_gaps(facts)
    counts = Counter(
        {
            "published": len(facts.messages),
            "confirmed": sum(bool(message.confirms) for message in facts.messages.values()),
            "nacked": sum(bool(message.nacks) for message in facts.messages.values()),
            "returned": sum(bool(message.returns) for message in facts.messages.values()),
            "delivered": sum(len(session.deliveries) for session in facts.sessions.values()),
            "faults": len(facts.faults),
        }
    )
    violations = [
        *judge_losses(facts),
        *judge_ghosts(facts),
        *judge_answers(facts),
        *judge_order(facts),
        *judge_flags(facts, window_us, counts),
        *judge_repeats(facts, window_us, counts),
        *judge_masters(facts),
        *judge_copies(facts),
        *judge_gaps(gaps),
        *judge_removals(facts, window_us),
    ]
    if hand_out_ms is not None:
        violations += judge_hand_outs(facts, hand_out_ms * 1000)
        violations += judge_single_consumers(facts, hand_out_ms * 1000)
        violations += judge_moves(facts)
    violations.sort(key=lambda violation: violation.rule)
    undrained = [queue for queue in facts.queues if queue not in facts.drained]
    return Verdict(facts.start_us, violations, gaps, undrained, counts)
