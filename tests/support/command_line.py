"""Runs the command line as a person types it."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

# Prefix of a command that starts with SIGINT ignored, as shells start background jobs.
IGNORING_INTERRUPTS: Final = ("sh", "-c", "trap '' INT; exec \"$@\"", "sh")


def warren(
    *arguments: object, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `warren ARGUMENTS` without colours, 120 columns wide."""
    return subprocess.run(
        [sys.executable, "-m", "warrenmq", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "120", **(environment or {})},
    )


def warren_json(*arguments: object, status: int = 0) -> Any:
    """Run `warren ARGUMENTS --json`; returns the decoded output."""
    done = warren(*arguments, "--json")
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return json.loads(done.stdout)


@contextlib.contextmanager
def nobody() -> Iterator[int]:
    """A port without a listener, bound so that no other process can get it meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])
