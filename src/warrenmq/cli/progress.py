"""A progress bar on standard error for long work; shows nothing when that is no terminal."""

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class ProgressBar:
    """A progress bar that shows nothing; the base of the visible one."""

    def advance(self, size: int) -> None:
        """Add `size` bytes done since the last call."""

    def show(self, description: str, done_bytes: int, total_bytes: int) -> None:
        """Set the description, and the bytes done and in total."""


class _RichBar(ProgressBar):
    def __init__(self, bar: "Progress", task: "TaskID") -> None:
        self._bar = bar
        self._task = task

    def advance(self, size: int) -> None:
        self._bar.advance(self._task, size)

    def show(self, description: str, done_bytes: int, total_bytes: int) -> None:
        self._bar.update(
            self._task, description=description, completed=done_bytes, total=max(total_bytes, 1)
        )


@contextlib.contextmanager
def progress_bar(description: str, total_bytes: int) -> Iterator[ProgressBar]:
    """A bar for `total_bytes` of work, removed at the end."""
    if not sys.stderr.isatty():
        yield ProgressBar()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _RichBar(bar, bar.add_task(description, total=max(total_bytes, 1)))
