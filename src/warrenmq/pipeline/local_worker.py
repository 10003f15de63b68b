"""A process that runs tasks for the local engine, one at a time.

The worker is a program of its own and not a child of `multiprocessing`, which would import the
caller's main module again, or fork a process that has threads. Tasks arrive on standard input and
results leave on standard output, pickled. The worker ends when its input ends, because the job has
ended or was killed.
"""

import pickle
import signal
import subprocess
import sys
import traceback
from typing import Any, BinaryIO

from warrenmq.pipeline.result import JobError


class LocalWorker:
    """A worker process as the job sees it; runs one call at a time."""

    def __init__(self) -> None:
        # Give the worker this process's module path, so that it finds the modules that tasks need.
        set_up = f"import sys; sys.path[:] = {sys.path!r}; from warrenmq.pipeline.local_worker import main; main()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", set_up], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def call(self, task: Any, part: Any) -> list[str]:
        """Run the task on this part and return its texts. JobError when the process has ended.

        RuntimeError with the worker's traceback when the task raised.
        """
        try:
            _send(self._process.stdin, (task, part))
            replies = self._process.stdout
            assert replies is not None
            texts, error = pickle.load(replies)  # noqa: S301 - from our own worker process
        except (OSError, EOFError, ValueError):
            raise JobError(
                f"a worker process has ended (exit status {self._process.wait()}): killed, or out of memory"
            ) from None
        if error is not None:
            raise RuntimeError(f"a task has failed in a worker process:\n{error}")
        return list(texts)

    def end(self) -> None:
        """Kill the process, whether idle or busy, and close its pipes."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def _send(pipe: BinaryIO | Any, value: object) -> None:
    pickle.dump(value, pipe)
    pipe.flush()


def main() -> None:
    """Run tasks from standard input until it ends."""
    # Ignore Ctrl-C, which goes to the whole process group: the job ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    calls, replies = sys.stdin.buffer, sys.stdout.buffer
    # Send the prints of tasks to standard error, so that they do not corrupt the replies.
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
        ):  # Any exception of a task fails the job, which reports it; the worker runs on.
            error = traceback.format_exc()
        try:
            _send(replies, (texts, error))
        except BrokenPipeError:
            return
