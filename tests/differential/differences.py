"""Differences between warren and RabbitMQ that are intended.

docs/differences.md and docs/protocol-notes.md tell users of them. A sequence ends with the first
one that leaves the brokers in different states.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.differential.steps import Step

Lines = list[str]

_COUNTS = re.compile(r"QueueDeclareOk\('[^']*', \d+, (\d+)\)")


@dataclass(frozen=True)
class Intended:
    """An intended difference: why it is one, and how to tell it by a step and what each shows.

    `is_harmless`: the brokers are in the same state all the same.
    """

    reason: str
    applies: Callable[[Step, Lines, Lines], bool]
    is_harmless: bool = False


def _is_hash_of_no_text(step: Step, ours: Lines, theirs: Lines) -> bool:
    return step.values.get("type") == "x-consistent-hash" and any("541" in line for line in theirs)


def _counts_takers(step: Step, ours: Lines, theirs: Lines) -> bool:
    if step.kind != "QueueDeclare" or len(ours) != 1 or len(theirs) != 1:
        return False
    left, right = _COUNTS.search(ours[0]), _COUNTS.search(theirs[0])
    if left is None or right is None or int(left[1]) >= int(right[1]):
        return False
    return ours[0][: left.start(1)] == theirs[0][: right.start(1)]


def _returned_keep_their_place(step: Step, ours: Lines, theirs: Lines) -> bool:
    return any("x-delivery-count: l" in line for line in ours + theirs)


INTENDED: tuple[Intended, ...] = (
    Intended("a name of a hash argument that is no text is answered with 406", _is_hash_of_no_text),
)
OF_QUORUM_QUEUES: tuple[Intended, ...] = (
    Intended("a channel with unacked messages is not counted as consumer", _counts_takers, True),
    Intended("returned messages keep their place", _returned_keep_their_place),
)


def intended(step: Step, ours: Lines, theirs: Lines, is_quorum: bool) -> Intended | None:
    """Why two observations may differ; None when nothing explains it.

    `is_quorum`: the queues of the sequence are quorum queues.
    """
    for difference in INTENDED + (OF_QUORUM_QUEUES if is_quorum else ()):
        if difference.applies(step, ours, theirs):
            return difference
    return None
