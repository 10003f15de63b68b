"""Differences between warren and RabbitMQ that are intended.

docs/differences.md and docs/protocol-notes.md tell users of them. A sequence ends with the first
one it meets, because the brokers are not in the same state afterwards.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.differential.steps import Step

Lines = list[str]


@dataclass(frozen=True)
class Intended:
    """An intended difference: why it is one, and how to tell it by a step and what each shows."""

    reason: str
    applies: Callable[[Step, Lines, Lines], bool]


def _is_not_supported_yet(step: Step, ours: Lines, theirs: Lines) -> bool:
    return any("notsupportedyet" in line for line in ours)


INTENDED: tuple[Intended, ...] = (
    Intended("an argument that warren does not support yet", _is_not_supported_yet),
)


def intended(step: Step, ours: Lines, theirs: Lines) -> str:
    """Why two observations may differ; "" when nothing explains it."""
    for difference in INTENDED:
        if difference.applies(step, ours, theirs):
            return difference.reason
    return ""
