"""Shows a job's progress on standard error: as a bar, as lines of JSON, or not at all.

While the job waits, for a node that is away or for queues, the progress says so each second.

Warnings that the job logs meanwhile, for example that it waits for the broker, appear as lines of
their own in each form.
"""

import contextlib
import dataclasses
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from warrenmq.pipeline.progress import JsonProgress, Progress, Silent, Step
from warrenmq.spark.waits import wait_in_words

if TYPE_CHECKING:
    import rich.progress

# All loggers of warren are below this one.
_LOGGER: Final = "warren"
_INTERVAL_S: Final = 1.0


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
        with (
            _warnings_to(lambda text: _write(json.dumps({"notice": text}) + "\n")),
            _with_waits(JsonProgress(_write)) as progress,
        ):
            yield progress
    elif shown is ProgressKind.BAR or (shown is ProgressKind.AUTO and sys.stderr.isatty()):
        with (
            _rich_progress() as bar,
            _warnings_to(lambda text: bar.console.print(_line(text), markup=False)),
            _with_waits(_BarProgress(bar)) as progress,
        ):
            yield progress
    else:
        with _warnings_to(lambda text: _write(_line(text) + "\n")):
            yield Silent()


@contextlib.contextmanager
def _with_waits(shown: Progress) -> Iterator[Progress]:
    """`shown`, whose steps have notes about what this process waits for, refreshed each second."""
    progress = _WithWaits(shown)
    is_over = threading.Event()

    def look_on() -> None:
        while not is_over.wait(_INTERVAL_S):
            progress.refresh()

    thread = threading.Thread(target=look_on, name="warren-waits", daemon=True)
    thread.start()
    try:
        yield progress
    finally:
        is_over.set()
        thread.join()


class _WithWaits:
    def __init__(self, shown: Progress) -> None:
        self._shown = shown
        self._step = Step("starting")
        self._words = ""
        self._lock = threading.Lock()

    def show(self, step: Step) -> None:
        """See Progress."""
        with self._lock:
            self._step = step
            self._show(wait_in_words())

    def refresh(self) -> None:
        """Show the last step again, if the process waits or has just ended to wait."""
        words = wait_in_words()
        with self._lock:
            if words or self._words:
                self._show(words)

    def _show(self, words: str) -> None:
        self._words = words
        notes = [text for text in (self._step.note, words) if text]
        self._shown.show(dataclasses.replace(self._step, note="; ".join(notes)))


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
