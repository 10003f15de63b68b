"""A broken rule, in one line, and the rules by name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

# Most messages that the line of one violation names.
_SHOWN: Final = 8


class Rule(IntEnum):
    """The rules of the checker; the package's docstring says what each demands."""

    LOST = 1
    GHOST = 2
    ANSWER = 3
    ORDER = 4
    FLAG = 5
    AGAIN = 6
    SETTLED = 7
    MASTER = 8
    COPIES = 9
    GAP = 10
    FENCE = 11
    SINGLE = 12
    MOVES = 13
    REMOVED = 14


@dataclass(frozen=True)
class Violation:
    """One broken rule: what happened, at which moments (microseconds), in which queue ("" = any).

    `messages` are the ids of the messages that show it.
    """

    rule: Rule
    queue: str
    text: str
    messages: tuple[str, ...] = ()
    moments_us: tuple[int, ...] = ()

    def line(self, start_us: int) -> str:
        """The violation in one line; moments in seconds since `start_us`."""
        where = f", queue {self.queue}" if self.queue else ""
        moments = ", ".join(f"{(moment - start_us) / 1e6:.6f} s" for moment in self.moments_us)
        ids = ", ".join(self.messages[:_SHOWN]) + (" ..." if len(self.messages) > _SHOWN else "")
        marks = "; ".join(part for part in (ids, f"at {moments}" if moments else "") if part)
        return f"rule {self.rule.value}, {self.rule.name.lower()}{where}: {self.text}" + (
            f" ({marks})" if marks else ""
        )
