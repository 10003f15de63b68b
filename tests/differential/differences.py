"""Differences between warren and RabbitMQ that are intended.

docs/differences.md and docs/protocol-notes.md tell users of them. A sequence ends with the first
one that leaves the brokers in different states.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.differential.steps import Step

Lines = list[str]

# The number of consumers in declare-ok.
_DECLARED = re.compile(r"(?<=QueueDeclareOk\('q\d', )(\d+), \d+")

# The body of a message, which no other message has unless it is empty.
_BODY = re.compile(r" b'(m\d+|)[.]*'$", re.MULTILINE)


@dataclass(frozen=True)
class Intended:
    """An intended difference: why it is one, and how to tell it by a step and what each shows.

    `argument`: one that some queue of the sequence has, or "". `is_harmless`: the brokers are in
    the same state all the same.
    """

    reason: str
    applies: Callable[[Step, Lines, Lines], bool]
    argument: str = ""
    is_harmless: bool = False


def _is_hash_of_no_text(step: Step, ours: Lines, theirs: Lines) -> bool:
    return step.values.get("type") == "x-consistent-hash" and any("541" in line for line in theirs)


def _counts_other_consumers(step: Step, ours: Lines, theirs: Lines) -> bool:
    return [_DECLARED.sub(r"\1", line) for line in ours] == [
        _DECLARED.sub(r"\1", line) for line in theirs
    ]


def _returned_keep_their_place(step: Step, ours: Lines, theirs: Lines) -> bool:
    if not any("x-delivery-count: l" in line for line in ours + theirs):
        return False
    left, right = (_BODY.findall("\n".join(lines)) for lines in (ours, theirs))
    # Empty bodies do not tell which message they belong to.
    return left != right or "" in left


def _is_order_of_rejected(step: Step, ours: Lines, theirs: Lines) -> bool:
    left, right = (_BODY.findall("\n".join(lines)) for lines in (ours, theirs))
    return sorted(left) == sorted(right) and any("Sb'rejected'" in line for line in ours)


def _is_delivered_expired(step: Step, ours: Lines, theirs: Lines) -> bool:
    return any("expiration=b'0'" in line for line in theirs if line not in ours)


QUORUM = "x-queue-type: quorum"
INTENDED: tuple[Intended, ...] = (
    Intended("a name of a hash argument that is no text is answered with 406", _is_hash_of_no_text),
    Intended(
        "quorum queues count waiting consumers, but not channels with unacked messages",
        _counts_other_consumers,
        QUORUM,
        is_harmless=True,
    ),
    Intended(
        "messages that return to a quorum queue keep their place",
        _returned_keep_their_place,
        QUORUM,
    ),
    Intended(
        "messages of a priority queue that are rejected together stay in order",
        _is_order_of_rejected,
        "x-max-priority",
    ),
    Intended(
        "an expired message of a high priority is not delivered",
        _is_delivered_expired,
        "x-max-priority",
    ),
)


def intended(step: Step, ours: Lines, theirs: Lines, arguments: frozenset[str]) -> Intended | None:
    """Why two observations may differ; None when nothing explains it.

    `arguments`: what `arguments_of` returns for the steps of the sequence.
    """
    for difference in INTENDED:
        is_possible = not difference.argument or difference.argument in arguments
        if is_possible and difference.applies(step, ours, theirs):
            return difference
    return None


def arguments_of(steps: list[Step]) -> frozenset[str]:
    """The arguments that some queue is declared with; `QUORUM` for one of that type."""
    found: set[str] = set()
    for step in steps:
        arguments = step.values.get("arguments")
        if step.kind == "QueueDeclare" and isinstance(arguments, dict):
            found |= arguments.keys()
            if arguments.get("x-queue-type") == "quorum":
                found.add(QUORUM)
    return frozenset(found)
