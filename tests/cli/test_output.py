"""A command whose output is closed early ends without an error."""

import os
import subprocess
import sys


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    """A closed output, as of `warren ... | head`, gives no stack and the exit status of the run."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as gone:
        done = subprocess.run(
            [sys.executable, "-m", "warrenmq", "--version"],
            stdout=gone,
            stderr=subprocess.PIPE,
            text=True,
            timeout=100,
            check=False,
            # Keep Python's buffering, so that the text is written at the end.
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        )
    assert (done.returncode, done.stderr) == (0, "")
