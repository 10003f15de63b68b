"""The claims that the demo proves: each is a check with numbers from this run.

A failed check does not end the run, so that one report shows all checks. `DemoError` ends it, when
no further step is possible.
"""

from dataclasses import dataclass, field


class DemoError(Exception):
    """The demo cannot continue; the text is one line with the reason."""


@dataclass(frozen=True)
class Check:
    """One claim and its outcome; `text` states the proof, or the finding that contradicts it."""

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
        """The checks that failed, in order."""
        return [check for check in self.made if not check.is_passed]

    @property
    def all_passed(self) -> bool:
        """True when the run made checks and none failed."""
        return bool(self.made) and not self.failed
