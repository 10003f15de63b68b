"""A progress bar on standard error for work that takes long; nothing when nobody looks at it."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def progress_bar(description: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Gives a call that takes the bytes that were worked on since the last one."""
    if not sys.stderr.isatty():
        yield lambda size: None
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
        task = bar.add_task(description, total=max(total_bytes, 1))
        yield lambda size: bar.advance(task, size)


def tree_bytes(path: Path) -> int:
    """Size of all files below `path`, as far as they can be seen."""
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(directory, name)).st_size
    return total
