"""The error of a pattern that warren does not take."""

from __future__ import annotations


class PatternError(ValueError):
    """A pattern that PCRE refuses, or whose meaning warren's engines cannot keep.

    `reason`: PCRE's text, or "not supported: ...". `place`: the octet of the pattern at which
    reading it ended.
    """

    def __init__(self, reason: str, place: int) -> None:
        super().__init__(f"{reason} at position {place}")
        self.reason: str = reason
        self.place: int = place


def unsupported(what: str, place: int) -> PatternError:
    """The error of a pattern that RabbitMQ takes, but warren does not."""
    return PatternError(f"not supported: {what}", place)
