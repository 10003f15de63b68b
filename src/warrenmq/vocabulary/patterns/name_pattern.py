"""Patterns of warren's own, for whole names of queues: RE2's syntax, on characters."""

from __future__ import annotations

from typing import Any, final

from warrenmq.vocabulary.patterns.linear import compile_linear


@final
class NamePattern:
    """A regular expression of RE2 that the whole of a name must match."""

    def __init__(self, pattern: str) -> None:
        """Compile `pattern`; ValueError with a text for people when it is invalid or too large."""
        self._matcher: Any = compile_linear(pattern, True)

    def matches(self, name: str) -> bool:
        """Whether the pattern matches all of `name`."""
        return self._matcher.fullmatch(name) is not None
