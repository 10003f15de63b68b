"""A client that asks a broker's HTTP API for the first page of queues every second.

It runs as a process of its own, as a dashboard does, so that its work is not the load generator's.
`python -m bench.asked_api PORT` asks until SIGINT, then prints the times of the answers as JSON.
"""

import http.client
import json
import signal
import statistics
import subprocess
import sys
import time
from base64 import b64encode
from contextlib import suppress

PAGE = "/api/queues?page=1&page_size=100"
PERIOD_S = 1.0
TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0


class AskedApi:
    """Asks the API on `port` of the loopback from now on until `stop`."""

    def __init__(self, port: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.asked_api", str(port)],
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


def _ask(port: int, times_ms: list[float]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    credentials = b64encode(b"guest:guest").decode()
    started_s = time.monotonic()
    connection.request("GET", PAGE, headers={"Authorization": f"Basic {credentials}"})
    response = connection.getresponse()
    response.read()
    if response.status == http.HTTPStatus.OK:
        times_ms.append((time.monotonic() - started_s) * 1000)
    connection.close()


def _main(port: int) -> None:
    # A process without a terminal may inherit SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    times_ms: list[float] = []
    try:
        while True:
            # The broker listens before its management process does.
            with suppress(OSError):
                _ask(port, times_ms)
            time.sleep(PERIOD_S)
    except KeyboardInterrupt:
        median = statistics.median(times_ms) if times_ms else 0.0
        longest = max(times_ms, default=0.0)
        print(json.dumps({"answers": len(times_ms), "median_ms": median, "longest_ms": longest}))


if __name__ == "__main__":
    _main(int(sys.argv[1]))
