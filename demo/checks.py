"""What the demo claims to have proven: each claim is a check with numbers from this run.

A failed check does not end the run, so that one report shows all of them; `DemoError` does, when nothing can follow.
"""

from dataclasses import dataclass, field


class DemoError(Exception):
    """The demo cannot go on; one line that says why."""


@dataclass(frozen=True)
class Check:
    """One claim, and whether it held. `text` says what was proven, or what was found instead."""

    is_passed: bool
    text: str


@dataclass
class Checks:
    """All checks of a run, in order."""

    made: list[Check] = field(default_factory=list)

    def expect(self, is_passed: bool, proven: str, otherwise: str) -> None:
        """Record a check; `otherwise` is shown when it failed."""
        self.made.append(Check(is_passed, proven if is_passed else otherwise))

    @property
    def failed(self) -> list[Check]:
        """Those that did not hold."""
        return [check for check in self.made if not check.is_passed]

    @property
    def all_passed(self) -> bool:
        """Did the run prove everything it set out to?"""
        return bool(self.made) and not self.failed
