"""What a request reads of an object: values, rates and samples of its figures."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final

from warrenmq.management.rows import Row
from warrenmq.management.statistics.figures import FIGURES, Figures
from warrenmq.management.statistics.history import Part, Range, history_of, samples_of, value_of

# The places of figures by their names.
PLACES: Final = {
    kind: {name: place for place, name in enumerate(names)} for kind, names in FIGURES.items()
}


class View:
    """An object of a kind, which may be on several nodes, or several as one.

    A figure that is asked for by several names is their sum. `is_current` tells whether the rates
    of an object are those of the last tick, `now_ms` is the time up to which samples go, and `lock`
    keeps samples as they are.
    """

    def __init__(
        self,
        kind: str,
        objects: list[Figures],
        is_current: Callable[[Figures], bool],
        now_ms: int,
        lock: AbstractContextManager[bool],
    ) -> None:
        self.kind = kind
        self.objects = objects
        self._places = PLACES[kind]
        self._is_current = is_current
        self._now_ms = now_ms
        self._lock = lock

    def value(self, *names: str) -> int:
        """The newest value of a figure, 0 when there is no object."""
        return value_of(self._parts(names))

    def rate(self, *names: str) -> float:
        """The change of a figure in the last tick (1/s)."""
        places = [self._places[name] for name in names]
        current = [each for each in self.objects if self._is_current(each)]
        return sum([each.rate(place) for each in current for place in places])

    def details(self, *names: str, asked: Range | None) -> Row:
        """The rate of a figure, and samples if a range is asked for."""
        rate = {"rate": self.rate(*names)}
        if asked is None:
            return rate
        with self._lock:
            return rate | history_of(self._parts(names), self._now_ms, asked)

    def series(self, names: Sequence[str], asked: Range) -> list[tuple[int, list[int]]]:
        """The values of several figures at the same times (Unix ms), newest first."""
        with self._lock:
            found = [samples_of(self._parts((name,)), self._now_ms, asked) for name in names]
        return [
            (samples[0]["timestamp"], [each["sample"] for each in samples])
            for samples in zip(*found, strict=True)
        ]

    def _parts(self, names: tuple[str, ...]) -> list[Part]:
        places = [self._places[name] for name in names]
        return [Part(each, place) for each in self.objects for place in places]
