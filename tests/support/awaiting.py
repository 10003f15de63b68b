"""Waits for an event in another process or thread, as long as a loaded machine may need."""

import asyncio
import time
from collections.abc import Callable

PATIENCE_S = 60.0
PAUSE_S = 0.01


def eventually(is_so: Callable[[], bool], what: str, pause_s: float = PAUSE_S) -> None:
    """Return when `is_so()` is true; AssertionError with `what` after PATIENCE_S."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(pause_s)


async def eventually_in_loop(is_so: Callable[[], bool], what: str) -> None:
    """As `eventually`, while the running loop continues."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, f"never: {what}"
        await asyncio.sleep(0.001)
