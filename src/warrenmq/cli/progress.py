"""A progress bar on standard error for long work; shows nothing when that is no terminal."""

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class ProgressBar:
    """A progress bar that shows nothing; the base of the visible one."""

    def advance(self, size: int) -> None:
        """Add what was done since the last call."""

    def show(self, description: str, done: int, total: int) -> None:
        """Set the description, and how much is done and there is in total."""


class _RichBar(ProgressBar):
    def __init__(self, bar: "Progress", task: "TaskID") -> None:
        self._bar = bar
        self._task = task

    def advance(self, size: int) -> None:
        self._bar.advance(self._task, size)

    def show(self, description: str, done: int, total: int) -> None:
        self._bar.update(self._task, description=description, completed=done, total=max(total, 1))


@contextlib.contextmanager
def progress_bar(
    description: str, total: int, unit: Literal["bytes", "objects"] = "bytes"
) -> Iterator[ProgressBar]:
    """A bar for `total` of work in `unit`, removed at the end."""
    if not sys.stderr.isatty():
        yield ProgressBar()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    figures: tuple[ProgressColumn, ...] = (MofNCompleteColumn(),)
    if unit == "bytes":
        figures = (DownloadColumn(binary_units=True), TransferSpeedColumn())
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        *figures,
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _RichBar(bar, bar.add_task(description, total=max(total, 1)))
