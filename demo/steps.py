"""Progress on the terminal: one line a step, with a bar while it runs and its elapsed time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

DESCRIPTION_WIDTH = 38


class Bar:
    """The progress bar of one step."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def advance(self, count: int = 1) -> None:
        """Add `count` finished parts."""
        self._progress.advance(self._task, count)

    def show(self, description: str, done: int) -> None:
        """Replace the description, and set the number of finished parts to `done`."""
        self._progress.update(self._task, description=_padded(description), completed=done)


class Steps:
    """Shows the steps one after the other, and measures the time since the first."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first step."""
        return time.monotonic() - self._started

    @contextmanager
    def step(self, description: str, total: int | None) -> Iterator[Bar]:
        """Show a bar for a step of `total` parts; None for an unknown number."""
        columns = [
            TextColumn("{task.description}"),
            BarColumn(bar_width=18),
            TextColumn("{task.completed:>5,.0f}" + ("" if total is None else f" of {total:,}")),
            TimeElapsedColumn(),
        ]
        with Progress(*columns, console=self._console) as progress:
            task = progress.add_task(_padded(description), total=total)
            yield Bar(progress, task)


def _padded(description: str) -> str:
    return description.ljust(DESCRIPTION_WIDTH)
