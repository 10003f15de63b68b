"""A process that does tasks for the local engine, one after the other.

It is a program of its own and not a child of `multiprocessing`: that would import the caller's main module again, or fork a
process that has threads. Tasks come on standard input and results leave on standard output, pickled; when the input ends,
because the job has ended or was killed, so does the process.
"""

import pickle
import signal
import subprocess
import sys
import traceback
from typing import Any, BinaryIO

from warrenmq.pipeline.result import JobError


class LocalWorker:
    """The process, as the job sees it: one call at a time."""

    def __init__(self) -> None:
        # The modules that a task needs lie where this process has found them.
        set_up = f"import sys; sys.path[:] = {sys.path!r}; from warrenmq.pipeline.local_worker import main; main()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", set_up], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def call(self, task: Any, part: Any) -> list[str]:
        """The task's result for this part. Raises JobError when the worker process is gone."""
        try:
            _send(self._process.stdin, (task, part))
            texts, error = pickle.load(self._process.stdout)  # type: ignore[arg-type]  # noqa: S301 - our own process
        except (OSError, EOFError, ValueError):
            raise JobError(
                f"a worker process has ended (exit status {self._process.wait()}): killed, or out of memory"
            ) from None
        if error is not None:
            raise RuntimeError(f"a task has failed in a worker process:\n{error}")
        return list(texts)

    def end(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def _send(pipe: BinaryIO | Any, value: object) -> None:
    pickle.dump(value, pipe)
    pipe.flush()


def main() -> None:
    """Do tasks until the input ends."""
    # Ctrl-C goes to the whole process group; the job ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    calls, replies = sys.stdin.buffer, sys.stdout.buffer
    # A task that prints must not disturb the replies.
    sys.stdout = sys.stderr
    while True:
        try:
            task, part = pickle.load(calls)  # noqa: S301 - from the job
        except EOFError:
            return
        texts, error = [], None
        try:
            texts = list(task(iter([part])))
        except (
            Exception
        ):  # Whatever a task raises fails the job, which reports it; the worker goes on.
            error = traceback.format_exc()
        try:
            _send(replies, (texts, error))
        except BrokenPipeError:
            return
