"""Patterns over names that come from outside: regular expressions that are matched in time linear in the name.

RE2 builds an automaton and never backtracks, so no pattern can hold up the node's loop. Its syntax is Python's without
look-around and references back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    import re2

# For the automaton of one pattern (bytes); what does not fit is refused or, at match time, computed anew.
_MEMORY_MAX: Final = 1048576


def _options() -> re2.Options:
    import re2

    options = re2.Options()
    options.max_mem = _MEMORY_MAX
    # What is wrong is told to whoever sent the pattern.
    options.log_errors = False
    return options


@final
class NamePattern:
    """A regular expression that the whole of a name must match."""

    def __init__(self, pattern: str) -> None:
        """Raises ValueError, in words, when it is no regular expression or too large a one."""
        # Imported at the first use: most nodes never see a pattern, and a start should not wait for the library.
        import re2

        try:
            self._matcher = re2.compile(pattern, _options())
        except re2.error as error:
            raise ValueError(error.args[0].decode("utf-8", "replace")) from None

    def matches(self, name: str) -> bool:
        """Does it match all of `name`?"""
        return self._matcher.fullmatch(name) is not None
