"""Patterns of RabbitMQ, as `Pattern`: one object for rights, policies and all the others."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any, Final, final

from mypy_extensions import i64

from warrenmq.vocabulary.patterns.linear import compile_linear, linear_text
from warrenmq.vocabulary.patterns.machine import Machine, OutOfSteps
from warrenmq.vocabulary.patterns.nodes import Node, matches_everywhere
from warrenmq.vocabulary.patterns.parser import parse
from warrenmq.vocabulary.patterns.program import Program

logger = logging.getLogger("warren.patterns")

# Compiled patterns to keep: most users of a node share a few.
_KEPT: Final = 512

# Steps of one search. Compiled, a step takes 30 ns, around references and looks that succeed up to
# ten times as long.
STEPS_MAX: Final = 20_000
# Steps of a search after one has taken STEPS_MAX. A client that knows a name which takes long
# cannot take the time again and again; names for which a pattern was written need less.
STEPS_AFTERWARDS: Final = 500

# Characters of a pattern that the log shows.
_SHOWN: Final = 200

# The engine that matches a pattern, `Pattern.engine`.
NOTHING_NEEDED: Final = "none"
RE2: Final = "RE2"
MACHINE: Final = "machine"


@final
class Pattern:
    """A regular expression that is searched for in names, with the meaning it has in RabbitMQ.

    `engine`: NOTHING_NEEDED if every name matches, such as with `.*`; RE2; or MACHINE for a pattern
    that RE2 cannot express.
    """

    def __init__(self, pattern: str) -> None:
        """Compile `pattern`, as octets; PatternError if it is invalid or not supported."""
        self.text: str = pattern
        # RabbitMQ compares names and patterns as octets, so patterns here do too.
        tree = parse(pattern.encode("utf-8", "surrogateescape"))
        self._matcher: Any = None
        self._program: Program | None = None
        self._steps_max: i64 = STEPS_MAX
        self.engine: str = NOTHING_NEEDED if matches_everywhere(tree) else self._compile(tree)

    def _compile(self, tree: Node) -> str:
        try:
            self._matcher = compile_linear(linear_text(tree).encode(), False)
        except ValueError:
            self._program = Program(tree)
            return MACHINE
        return RE2

    def is_found_in(self, name: bytes) -> bool:
        """Whether the pattern is found in `name`.

        A search that takes too many steps finds nothing, as in RabbitMQ. The first one is logged,
        and all later ones get fewer.
        """
        program = self._program
        if program is None:
            return self._matcher is None or self._matcher.search(name) is not None
        try:
            return Machine(program, name, self._steps_max).is_found()
        except OutOfSteps:
            if self._steps_max == STEPS_MAX:
                self._steps_max = STEPS_AFTERWARDS
                logger.warning(
                    "the regular expression '%s' takes too long for some names, "
                    "and does not match them",
                    self.text[:_SHOWN],
                )
            return False


@lru_cache(_KEPT)
def compiled(pattern: str) -> Pattern:
    """The compiled pattern; PatternError if it is invalid or not supported."""
    return Pattern(pattern)
