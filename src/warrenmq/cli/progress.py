"""A progress bar on standard error for work that takes long; nothing when nobody looks at it."""

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class ProgressBar:
    """Shows nothing."""

    def advance(self, size: int) -> None:
        """So many bytes were worked on since the last call."""

    def show(self, description: str, done_bytes: int, total_bytes: int) -> None:
        """So far it is."""


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
    """A bar for `total_bytes` of work."""
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
