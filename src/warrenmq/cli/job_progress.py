"""Shows a job's progress on standard error: as a bar, as lines of JSON, or not at all.

Warnings that the job logs meanwhile, for example that it waits for the broker, appear as lines of
their own in each form.
"""

import contextlib
import json
import logging
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from warrenmq.pipeline.progress import JsonProgress, Progress, Silent, Step

if TYPE_CHECKING:
    import rich.progress

# All loggers of warren are below this one.
_LOGGER: Final = "warren"


class ProgressKind(StrEnum):
    """The value of `--progress`."""

    AUTO = "auto"
    BAR = "bar"
    JSON = "json"
    NONE = "none"


@contextlib.contextmanager
def progress_of(shown: ProgressKind) -> Iterator[Progress]:
    """The progress display of a job; also shows the log's warnings while it is open."""
    if shown is ProgressKind.JSON:
        with _warnings_to(lambda text: _write(json.dumps({"notice": text}) + "\n")):
            yield JsonProgress(_write)
    elif shown is ProgressKind.BAR or (shown is ProgressKind.AUTO and sys.stderr.isatty()):
        with (
            _rich_progress() as bar,
            _warnings_to(lambda text: bar.console.print(_line(text), markup=False)),
        ):
            yield _BarProgress(bar)
    else:
        with _warnings_to(lambda text: _write(_line(text) + "\n")):
            yield Silent()


@contextlib.contextmanager
def _warnings_to(show: Callable[[str], object]) -> Iterator[None]:
    handler = _Shown(show)
    logger = logging.getLogger(_LOGGER)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Shown(logging.Handler):
    def __init__(self, show: Callable[[str], object]) -> None:
        super().__init__(logging.WARNING)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        self._show(record.getMessage())


def _line(text: str) -> str:
    return f"warren: {text}"


def _write(line: str) -> None:
    sys.stderr.write(line)
    sys.stderr.flush()


def _rich_progress() -> "rich.progress.Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[figures]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)


class _BarProgress:
    """One bar, which a step with another name restarts."""

    def __init__(self, bar: "rich.progress.Progress") -> None:
        self._bar = bar
        self._task = bar.add_task("starting", total=None, figures="", note="")
        self._name = ""

    def show(self, step: Step) -> None:
        figures = f"{step.done:,} {step.unit}"
        if step.total is not None:
            figures = f"{step.done:,} of {step.total:,} {step.unit}"
        if step.name != self._name:
            self._name = step.name
            self._bar.reset(self._task)
        self._bar.update(
            self._task,
            description=step.name,
            completed=step.done,
            total=None if step.total is None else max(step.total, 1),
            figures=figures,
            note=step.note,
        )
