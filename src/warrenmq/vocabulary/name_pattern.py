"""Patterns over names that clients send: regular expressions, matched in time linear in the name.

RE2 builds an automaton and never backtracks, so no pattern can block the node's loop. Its syntax is
Python's without look-around and back-references.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    import re2

# Bytes for the automaton of one pattern. A pattern that does not fit is refused, or, at match time,
# its automaton is computed anew.
_MEMORY_MAX: Final = 1048576


def _options() -> re2.Options:
    import re2

    options = re2.Options()
    options.max_mem = _MEMORY_MAX
    # Errors go to the client that sent the pattern, not to the log.
    options.log_errors = False
    return options


@final
class NamePattern:
    """A regular expression that the whole of a name must match."""

    def __init__(self, pattern: str) -> None:
        """Compile `pattern`; ValueError with a text for people when it is invalid or too large."""
        # Imported at the first use: most nodes never see a pattern, and a start should not wait
        # for the library.
        import re2

        try:
            self._matcher = re2.compile(pattern, _options())
        except re2.error as error:
            raise ValueError(error.args[0].decode("utf-8", "replace")) from None

    def matches(self, name: str) -> bool:
        """Whether the pattern matches all of `name`."""
        return self._matcher.fullmatch(name) is not None
