"""A paced flow through one queue in a process of its own, with its latencies by time.

`warren perf` gives one summary of a run. The interference scenario needs the latencies between two
moments of a long run instead. So `python -m bench.paced OPTIONS` prints, ten times a second, the
time and the histogram of the deliveries since the last line, and `PacedFlow` collects them. The
times are comparable because CLOCK_MONOTONIC is one clock for all processes of a machine.
"""

import json
import signal
import subprocess
import sys
import threading
import time

from bench.brokers import Broker, pinned_to
from bench.measure import MeasureError
from warrenmq.perf.histogram import Histogram, decode_histogram
from warrenmq.perf.options import PerfOptions
from warrenmq.perf.progress import Interval
from warrenmq.perf.run import run

QUEUE = "bench-paced"
INTERVAL_S = 0.1
LONGEST_S = 36_000.0
STOP_TIMEOUT_S = 30.0


class PacedFlow:
    """Publishes `rate` messages of 100 B a second to one consumer that acks each of them.

    With `confirm` the publisher waits while that many messages are not confirmed; 0: no confirms.
    """

    def __init__(
        self,
        broker: Broker,
        cores: set[int],
        rate: float,
        is_persistent: bool,
        confirm: int = 0,
    ) -> None:
        options = {
            "uri": broker.uri,
            "rate": rate,
            "flags": ["persistent"] if is_persistent else [],
            "confirm": confirm,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.paced", json.dumps(options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Ctrl-C must reach the benchmark only; `stop` interrupts this process.
            start_new_session=True,
            preexec_fn=pinned_to(cores),
        )
        # One (monotonic time at its end, its latencies) for each interval.
        self._intervals: list[tuple[float, Histogram]] = []
        self.behind_ms_max = 0.0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            found = json.loads(text)
            if isinstance(found, dict):
                self.behind_ms_max = found["behind_ms_max"]
            else:
                self._intervals.append((found[0], decode_histogram(found[1])))

    def await_flowing(self) -> None:
        """Return when messages flow; MeasureError when none ever do."""
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while not any(histogram.count for _, histogram in list(self._intervals)):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                assert self._process.stderr is not None
                raise MeasureError(
                    f"the paced flow does not flow: {self._process.stderr.read()[-500:]}"
                )
            time.sleep(INTERVAL_S)

    def window(self, start_s: float, end_s: float) -> Histogram:
        """Latencies of the deliveries between two moments, to a tenth of a second.

        Times are CLOCK_MONOTONIC seconds; `end_s` must be past.
        """
        # Wait for the line of the last interval.
        time.sleep(max(0.0, end_s + 3 * INTERVAL_S - time.monotonic()))
        total = Histogram()
        for at_s, histogram in list(self._intervals):
            if start_s < at_s <= end_s + INTERVAL_S:
                total.merge(histogram)
        return total

    def stop(self) -> None:
        """End the process; `behind_ms_max` then holds the longest delay behind its pace."""
        interrupt(self._process)
        self._reader.join(STOP_TIMEOUT_S)


def interrupt(process: subprocess.Popen[str]) -> None:
    """End a process by SIGINT, or by SIGKILL if it goes on; one that has ended stays as it is."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _on_interval(interval: Interval) -> None:
    print(json.dumps([time.monotonic(), interval.latency.encode()]), flush=True)


def _main(text: str) -> None:
    # A process without a terminal may inherit SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    options = PerfOptions(
        queue=QUEUE, size=100, qos=1000, interval=INTERVAL_S, time=LONGEST_S, **json.loads(text)
    )
    summary = run(options, _on_interval)
    print(json.dumps({"behind_ms_max": summary.behind_ms_max}), flush=True)


if __name__ == "__main__":
    _main(sys.argv[1])
