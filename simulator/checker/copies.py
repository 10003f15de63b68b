"""Rules 8 and 9: one master in an epoch, and copies that are equal.

Only nodes know epochs and copies. A history that has no such reports breaks neither rule.
"""

from __future__ import annotations

from simulator.checker.events import CopyReport, EpochConfirm, MasterReport
from simulator.checker.facts import Facts
from simulator.checker.violation import Rule, Violation


def judge_masters(facts: Facts) -> list[Violation]:
    """Epochs with two masters, and confirms of an epoch after those of a newer one (rule 8)."""
    found = []
    masters: dict[tuple[str, int], str] = {}
    reports: list[MasterReport | EpochConfirm] = [*facts.masters, *facts.epoch_confirms]
    for report in sorted(reports, key=lambda each: each.at_us):
        master = masters.setdefault((report.queue, report.epoch), report.node)
        if master != report.node:
            text = f"epoch {report.epoch} has the masters {master} and {report.node}"
            found.append(Violation(Rule.MASTER, report.queue, text, (), (report.at_us,)))
    newest: dict[str, int] = {}
    for confirm in facts.epoch_confirms:
        epoch = newest.setdefault(confirm.queue, confirm.epoch)
        if confirm.epoch < epoch:
            text = f"{confirm.node} confirmed in epoch {confirm.epoch} after epoch {epoch} had"
            found.append(Violation(Rule.MASTER, confirm.queue, text, (), (confirm.at_us,)))
        newest[confirm.queue] = max(epoch, confirm.epoch)
    return found


def judge_copies(facts: Facts) -> list[Violation]:
    """Copies in sync that differ from the first one of their queue and round (rule 9)."""
    found = []
    firsts: dict[tuple[str, int], CopyReport] = {}
    for copy in facts.copies:
        if copy.is_in_sync:
            first = firsts.setdefault((copy.queue, copy.round), copy)
            difference = _difference(first, copy)
            if difference:
                found.append(Violation(Rule.COPIES, copy.queue, difference, (), (copy.at_us,)))
    return found


def _difference(one: CopyReport, other: CopyReport) -> str:
    """The first difference in words; "" if the copies are equal."""
    for mine, its in zip(one.messages, other.messages, strict=False):
        if mine != its:
            return f"{one.node} has {mine}, {other.node} has {its}"
    if len(one.messages) != len(other.messages):
        counts = f"{len(one.messages)} messages, {other.node} has {len(other.messages)}"
        return f"{one.node} has {counts}"
    return ""
