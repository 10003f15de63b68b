"""A paced flow of confirmed messages in a process of its own, with every gap between its confirms.

`python -m bench.confirmed_flow OPTIONS` publishes persistent messages at a rate, without a
consumer. It prints the gaps between confirms as they end, and ten times a second how many messages
were confirmed and refused, with the times that confirms took; `ConfirmedFlow` collects that. A
refused message is no confirm: the flow goes on with the next one.
"""

import json
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from typing import NamedTuple

from bench.brokers import Broker
from bench.measure import MeasureError
from bench.paced import STOP_TIMEOUT_S, interrupt
from warrenmq.perf.client import CHANNEL, FRAME_MAX, RECEIVE_BYTES, Client
from warrenmq.perf.histogram import Histogram, decode_histogram
from warrenmq.perf.options import parse_uri
from warrenmq.perf.publisher import PublishFrames
from warrenmq.perf.topology import basic_properties
from warrenmq.wire.frames import FRAME_METHOD, NEED_DATA, FrameBuffer
from warrenmq.wire.methods import BasicAck, BasicNack, ConfirmSelect, decode_method

INTERVAL_S = 0.1
# Shorter gaps (s) are not listed.
GAP_S = 0.002
# Messages that wait for a confirm, at most.
WINDOW = 300


class Gap(NamedTuple):
    """The time between two confirms: CLOCK_MONOTONIC (s) of both."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s


class ConfirmedFlow:
    """Publishes `rate` messages of `size` bytes a second into `queue`, through `broker`."""

    def __init__(self, broker: Broker, queue: str, rate: float, size: int = 1024) -> None:
        options = {"uri": broker.uri, "queue": queue, "rate": rate, "size": size}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.confirmed_flow", json.dumps(options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Ctrl-C must reach the benchmark only; `stop` interrupts this process.
            start_new_session=True,
        )
        self._gaps: list[Gap] = []
        # When the last confirm came, as far as that was printed.
        self._confirmed_s = 0.0
        # (CLOCK_MONOTONIC at its end, times from publish to confirm) of each interval.
        self._intervals: list[tuple[float, Histogram]] = []
        self.confirmed_count = 0
        self.refused_count = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            found = json.loads(text)
            if len(found) == 2:
                self._gaps.append(Gap(*found))
            else:
                self._confirmed_s, self.confirmed_count, self.refused_count = found[:3]
                self._intervals.append((found[3], decode_histogram(found[4])))

    def await_confirmed(self, after_s: float, timeout_s: float = 120.0) -> None:
        """Return when something was confirmed after a moment; MeasureError when nothing is."""
        deadline = time.monotonic() + timeout_s
        while self._confirmed_s <= after_s:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                assert self._process.stderr is not None
                raise MeasureError(f"nothing is confirmed: {self._process.stderr.read()[-500:]}")
            time.sleep(INTERVAL_S / 4)

    def longest_gap_s(self, start_s: float, end_s: float) -> float:
        """The longest gap of those that touch the time between two moments."""
        self.await_confirmed(max(end_s, time.monotonic()))
        return max(
            (
                gap.length_s
                for gap in list(self._gaps)
                if gap.end_s > start_s and gap.start_s < end_s
            ),
            default=GAP_S,
        )

    def confirm_times(self, start_s: float, end_s: float) -> Histogram:
        """The times from publish to confirm (ns) of what was confirmed between two moments.

        The moments are exact to a tenth of a second; `end_s` must be past.
        """
        time.sleep(max(0.0, end_s + 3 * INTERVAL_S - time.monotonic()))
        total = Histogram()
        for at_s, histogram in list(self._intervals):
            if start_s < at_s <= end_s + INTERVAL_S:
                total.merge(histogram)
        return total

    def stop(self) -> None:
        """End the process."""
        interrupt(self._process)
        self._reader.join(STOP_TIMEOUT_S)


class _Publisher:
    """The flow itself, in its process."""

    def __init__(self, uri: str, queue: str, rate: float, size: int) -> None:
        self._client = Client(parse_uri(uri), "bench", STOP_TIMEOUT_S)
        self._client.call(CHANNEL, ConfirmSelect())
        properties = basic_properties(True)
        self._frames = PublishFrames(
            b"", queue.encode(), properties, False, size, self._client.frame_max
        )
        self._rate = rate
        self._replies = FrameBuffer(FRAME_MAX)
        self._published = 0
        # Tags up to this one are settled, and those above it that were settled alone.
        self._upto = 0
        self._singles: set[int] = set()
        self._refused = 0
        self._confirmed_s = 0.0
        # The last tag of each send that has messages without a reply, with its time (ns).
        self._sends: deque[tuple[int, int]] = deque()
        self._times: Histogram = Histogram()

    def run(self) -> None:
        sock = self._client.sock
        started = printed = time.monotonic()
        # Messages that the rate has left out while the window was full.
        left_out = 0
        while True:
            now = time.monotonic()
            due = int((now - started) * self._rate) - self._published - left_out
            room = WINDOW - (self._published - self._upto - len(self._singles))
            count = min(due, room)
            if count > 0:
                sent_ns = time.monotonic_ns()
                sock.sendall(self._frames.stamped(sent_ns) * count)
                self._published += count
                self._sends.append((self._published, sent_ns))
            left_out += due - max(0, count)
            if select.select([sock], [], [], 1 / self._rate)[0]:
                self._receive(sock.recv(RECEIVE_BYTES))
            if now - printed >= INTERVAL_S:
                printed = now
                settled = self._upto + len(self._singles)
                counts = [self._confirmed_s, settled - self._refused, self._refused]
                print(json.dumps([*counts, now, self._times.encode()]))
                sys.stdout.flush()
                self._times = Histogram()

    def _receive(self, chunk: bytes) -> None:
        if not chunk:
            raise SystemExit("the broker has closed the connection")
        now = time.monotonic()
        self._replies.feed(chunk)
        while (kind := self._replies.next_frame()) != NEED_DATA:
            if kind != FRAME_METHOD:
                continue
            reply = decode_method(self._replies.data, self._replies.start, self._replies.end)
            if not isinstance(reply, BasicAck | BasicNack):
                raise SystemExit(f"expected a confirm, got {reply!r}")
            count = self._settle(int(reply.delivery_tag), reply.multiple)
            if isinstance(reply, BasicNack):
                self._refused += count
            else:
                if self._confirmed_s and now - self._confirmed_s >= GAP_S:
                    print(json.dumps([self._confirmed_s, now]))
                self._confirmed_s = now

    def _settle(self, tag: int, is_multiple: bool) -> int:
        """Count a reply; returns how many messages it is for."""
        before = self._upto + len(self._singles)
        upto = self._upto
        if is_multiple:
            self._upto = max(self._upto, tag)
            self._singles = {single for single in self._singles if single > self._upto}
        else:
            self._singles.add(tag)
        while self._upto + 1 in self._singles:
            self._upto += 1
            self._singles.remove(self._upto)
        self._record(upto)
        return self._upto + len(self._singles) - before

    def _record(self, upto: int) -> None:
        """Record how long the messages above the tag `upto` took that are settled in order now.

        One that is settled before an older one counts with that one.
        """
        now_ns = time.monotonic_ns()
        while self._sends and upto < self._upto:
            last, sent_ns = self._sends[0]
            end = min(last, self._upto)
            self._times.record(now_ns - sent_ns, end - upto)
            upto = end
            if last <= self._upto:
                self._sends.popleft()


if __name__ == "__main__":
    # A process without a terminal may inherit SIGINT ignored.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _Publisher(**json.loads(sys.argv[1])).run()
