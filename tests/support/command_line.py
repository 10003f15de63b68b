"""The command line as a person types it."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

# Before a command: starts it as shells start their background jobs, with SIGINT ignored.
IGNORING_INTERRUPTS: Final = ("sh", "-c", "trap '' INT; exec \"$@\"", "sh")


def warren(
    *arguments: object, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`warren ARGUMENTS`, without colours and 120 characters wide."""
    return subprocess.run(
        [sys.executable, "-m", "warrenmq", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "120", **(environment or {})},
    )


def warren_json(*arguments: object, status: int = 0) -> Any:
    """What a command prints with --json."""
    done = warren(*arguments, "--json")
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return json.loads(done.stdout)


@contextlib.contextmanager
def nobody() -> Iterator[int]:
    """A port on which nobody listens, and nobody begins to meanwhile: one that is merely free is given to the next who asks."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])
