"""Named places in the code at which a test lets a process die, wait or fail.

    fail_point("link.sent")

costs a call and one test of a flag while nothing is armed, which is always so in a node that
`warren server` started: only `simulator.failing_node` arms fail points. What happens at a
point is the business of an action, because this package knows neither processes nor clocks.

The name of a point is `part.moment` in the past tense: what has just happened when it is passed.
"""

from typing import Final

from mypy_extensions import mypyc_attr


class FailPointError(Exception):
    """The error that an armed point raises; the text names the point."""


@mypyc_attr(allow_interpreted_subclasses=True)
class FailAction:
    """The fault that happens at a fail point; each subclass defines `act`."""

    def act(self, name: str) -> None:
        """Die, wait, or raise FailPointError."""
        raise NotImplementedError


class FailPoint:
    """An armed point: `action` happens at its hit number `hit` (from 1), or at each (0)."""

    def __init__(self, action: FailAction, hit: int) -> None:
        self.action = action
        self.hit = hit
        self.hits = 0


class FailPoints:
    """The armed points of this process by name; a name may be armed several times."""

    def __init__(self) -> None:
        self.is_armed = False
        self._points: dict[str, list[FailPoint]] = {}

    def arm(self, name: str, action: FailAction, hit: int) -> None:
        """Let `action` happen at the point `name`, at its hit number `hit` (0: at each)."""
        self.is_armed = True
        self._points.setdefault(name, []).append(FailPoint(action, hit))

    def clear(self) -> None:
        """Arm nothing any more."""
        self.is_armed = False
        self._points.clear()

    def pass_by(self, name: str) -> None:
        """Count a hit of the point `name`; its actions happen when their hits are reached."""
        for point in self._points.get(name, []):
            point.hits += 1
            if point.hit in (0, point.hits):
                point.action.act(name)


FAIL_POINTS: Final = FailPoints()


def fail_point(name: str) -> None:
    """Pass the point `name`: does nothing unless a test has armed it. May raise FailPointError."""
    if FAIL_POINTS.is_armed:
        FAIL_POINTS.pass_by(name)
