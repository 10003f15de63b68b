"""The tree of a pattern, without options and names: the parser has applied them.

Each node knows how many octets it takes at least and at most (`shortest`, `longest`).
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

# No upper bound: of a length, and of the times of a repeat.
UNBOUNDED: Final = 1 << 40

# -- places: between two octets, or at an end of the name ------------------------------------------

START: Final = 0
END: Final = 1
# At the end, or before a newline that ends the name: `$`.
LAST: Final = 2
# At the start, or after a newline that does not end the name: `^` with the option m.
LINE_START: Final = 3
# At the end, or before a newline: `$` with the option m.
LINE_END: Final = 4
# Between an octet of a word and another one, or an end; and not there: `\b`, `\B`.
BORDER: Final = 5
NO_BORDER: Final = 6
ANYWHERE: Final = 7

# How a repeat chooses the number of its times.
GREEDY: Final = 0
LAZY: Final = 1
POSSESSIVE: Final = 2


class Node:
    """A part of a pattern."""

    def __init__(self, shortest: i64, longest: i64) -> None:
        self.shortest: i64 = shortest
        self.longest: i64 = min(longest, UNBOUNDED)

    def has_fixed_length(self) -> bool:
        """Whether PCRE allows the node in a lookbehind."""
        return self.shortest == self.longest


@final
class Octet(Node):
    """One octet out of a set (see `octets.py`)."""

    def __init__(self, members: int) -> None:
        super().__init__(1, 1)
        self.members: int = members


@final
class Place(Node):
    """A place, by its constant."""

    def __init__(self, kind: i64) -> None:
        super().__init__(0, 0)
        self.kind: i64 = kind


@final
class Sequence(Node):
    """All parts, one after the other; none matches the empty text."""

    def __init__(self, parts: list[Node]) -> None:
        super().__init__(
            sum([part.shortest for part in parts]), sum([part.longest for part in parts])
        )
        self.parts: list[Node] = parts

    def has_fixed_length(self) -> bool:
        return all([part.has_fixed_length() for part in self.parts])


@final
class Choice(Node):
    """The first branch with which the whole pattern matches; there are at least two."""

    def __init__(self, branches: list[Node]) -> None:
        super().__init__(
            min([branch.shortest for branch in branches]),
            max([branch.longest for branch in branches]),
        )
        self.branches: list[Node] = branches

    def has_fixed_length(self) -> bool:
        return super().has_fixed_length() and all(
            [branch.has_fixed_length() for branch in self.branches]
        )


@final
class Repeat(Node):
    """The part from `low` to `high` times."""

    def __init__(self, part: Node, low: i64, high: i64, mode: i64) -> None:
        super().__init__(_times(part.shortest, low), _times(part.longest, high))
        self.part: Node = part
        self.low: i64 = low
        self.high: i64 = high
        self.mode: i64 = mode

    def has_fixed_length(self) -> bool:
        # PCRE leaves out an octet that comes no times, but not a group.
        is_fixed = self.low == self.high and (self.low > 0 or isinstance(self.part, Octet))
        return is_fixed and self.part.has_fixed_length()


@final
class Group(Node):
    """A part whose text a reference repeats; groups are numbered from 1."""

    def __init__(self, part: Node, number: i64) -> None:
        super().__init__(part.shortest, part.longest)
        self.part: Node = part
        self.number: i64 = number

    def has_fixed_length(self) -> bool:
        return self.part.has_fixed_length()


@final
class Reference(Node):
    """The text that the group `number` matched last; nothing matches before it has.

    The parser sets `number` late if the pattern uses a name before its group.
    """

    def __init__(self, number: i64, is_caseless: bool) -> None:
        super().__init__(0, UNBOUNDED)
        self.number: i64 = number
        self.is_caseless: bool = is_caseless


@final
class Atomic(Node):
    """The first way in which the part matches; later failures do not make it try another."""

    def __init__(self, part: Node) -> None:
        super().__init__(part.shortest, part.longest)
        self.part: Node = part

    def has_fixed_length(self) -> bool:
        return self.part.has_fixed_length()


@final
class Look(Node):
    """A look ahead or behind: one of its branches matches there; `is_negative`: none does.

    Each branch of a look behind has a fixed length of its own.
    """

    def __init__(self, branches: list[Node], is_ahead: bool, is_negative: bool) -> None:
        super().__init__(0, 0)
        self.branches: list[Node] = branches
        self.is_ahead: bool = is_ahead
        self.is_negative: bool = is_negative


def _times(length: i64, times: i64) -> i64:
    # The product of two bounds may be more than 64 bits.
    return 0 if length == 0 or times == 0 else min(length * min(times, 1 << 20), UNBOUNDED)


def matches_everywhere(node: Node) -> bool:
    """Whether the empty text at the start of any name matches: that of `.*`, `^` and `x|`."""
    if isinstance(node, Place):
        return node.kind in (START, LINE_START, ANYWHERE)
    if isinstance(node, Sequence):
        return all([matches_everywhere(part) for part in node.parts])
    if isinstance(node, Choice):
        return any([matches_everywhere(branch) for branch in node.branches])
    if isinstance(node, Group):
        return matches_everywhere(node.part)
    return isinstance(node, Repeat) and node.low == 0 and node.mode != POSSESSIVE
