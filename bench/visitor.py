"""Clients of a broker's management process, while a benchmark measures the broker.

Each runs as a process of its own, as a dashboard or a browser does, so that its work is not the
load generator's. It visits until SIGINT, then prints the times of the answers as JSON.
"""

import http.client
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0


class Visitor:
    """Runs `python -m MODULE PORT` from now on until `stop`; the port is on the loopback."""

    def __init__(self, module: str, port: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, str(port)],
            stdout=subprocess.PIPE,
            text=True,
            # Ctrl-C must reach the benchmark only; `stop` interrupts this process.
            start_new_session=True,
        )

    def stop(self) -> dict[str, float]:
        """End the client; how many answers came, and their median and longest time (ms)."""
        self._process.send_signal(signal.SIGINT)
        output, _ = self._process.communicate(timeout=STOP_TIMEOUT_S)
        found: dict[str, float] = json.loads(output)
        return found


def visit(period_s: float, ask: Callable[[list[float]], None]) -> None:
    """Call `ask` every `period_s` until SIGINT; it appends the times (ms) of answers to a list."""
    # A process without a terminal may inherit SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    times_ms: list[float] = []
    try:
        while True:
            # The broker listens before its management process does.
            with suppress(OSError, http.client.HTTPException):
                ask(times_ms)
            time.sleep(period_s)
    except KeyboardInterrupt:
        median = statistics.median(times_ms) if times_ms else 0.0
        longest = max(times_ms, default=0.0)
        print(json.dumps({"answers": len(times_ms), "median_ms": median, "longest_ms": longest}))
