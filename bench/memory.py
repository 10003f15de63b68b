"""`python -m bench memory`: check that a node stays below its memory limit.

The limit must hold for all sizes of messages and all kinds of readers.

Each case has a broker of its own with a low limit (`vm_memory_high_watermark.absolute`). A
publisher sends persistent messages of one size, in total several times the limit, into a queue with
a consumer; a second consumer joins when half of the messages are confirmed. Beside it a probe
publishes small messages to another queue, one after the other, and waits for each confirm. A case
ends when all is confirmed, or after `--seconds`. Readers:

fast    reads and acks every message
slow    reads about 3 MiB a second and acks
holds   reads every message and acks nothing
never   does not read its socket

The table shows the published MiB, the highest resident set, and the probe's longest wait. A case is
good when the resident set stayed below the limit plus `SLACK_MIB`, and no confirm of the probe took
longer than a second.
"""

import argparse
import socket
import threading
import time
from dataclasses import dataclass

from librt.strings import BytesWriter

from bench.brokers import Broker, WarrenBroker
from bench.measure import MeasureError
from bench.scenario import ANSWER_TIMEOUT_S, MIB, Scenario, run_scenario
from bench.table import line
from warrenmq.perf.client import CHANNEL, Client
from warrenmq.perf.errors import PerfError
from warrenmq.perf.options import parse_uri
from warrenmq.wire.encode import write_method_frame
from warrenmq.wire.field_table import encode_table, fields_from_python
from warrenmq.wire.frames import FRAME_BODY, FRAME_HEADER, FRAME_METHOD, NEED_DATA, FrameBuffer
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    BasicAck,
    BasicConsume,
    BasicDeliver,
    BasicNack,
    BasicPublish,
    BasicQos,
    ConfirmSelect,
    ConnectionClose,
    QueueDeclare,
    decode_method,
)

SLACK_MIB = 64
CONFIRM_S = 1.0
SIZES = {"1KiB": 1024, "32KiB": 1 << 15, "1MiB": 1 << 20, "16MiB": 1 << 24, "128MiB": 1 << 27}
PREFETCHES = {"1": 1, "100": 100, "none": 0}
MODES = ("default", "lazy")
READERS = ("fast", "slow", "holds", "never")
SLOW_CHUNK_BYTES, SLOW_PAUSE_S = 65536, 0.02
# Limits of unconfirmed bytes and of unconfirmed messages; at either the publisher waits.
WINDOW_BYTES, WINDOW_MESSAGES = 1 << 23, 2000
# The memory measurement continues for this long after the last confirm: the broker still pages out.
SETTLE_S = 1.0
SAMPLE_S = 0.02
# The property block of a message with delivery mode 2 and nothing else.
PERSISTENT_PROPERTIES = b"\x10\x00\x02"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memory-limit", type=int, default=600, metavar="MIB")
    parser.add_argument("--volume", type=float, default=2.5, help="what is published, in limits")
    parser.add_argument("--seconds", type=float, default=30, help="the longest a case may take")
    for name, values in (
        ("size", SIZES),
        ("prefetch", PREFETCHES),
        ("mode", MODES),
        ("reader", READERS),
    ):
        parser.add_argument(f"--{name}", action="append", choices=tuple(values), help="repeatable")


def main(arguments: list[str]) -> int:
    return run_scenario("memory", __doc__, arguments, add_options, measure)


def measure(scenario: Scenario) -> None:
    options = scenario.options
    head = (
        "size",
        "prefetch",
        "mode",
        "reader",
        "published MiB",
        "highest RSS MiB",
        "longest confirm s",
        "",
    )
    scenario.say(line(list(head)))
    failed = 0
    for size in options.size or SIZES:
        for prefetch in options.prefetch or PREFETCHES:
            for mode in options.mode or MODES:
                for reader in options.reader or READERS:
                    case = Case(
                        options.memory_limit, SIZES[size], PREFETCHES[prefetch], mode, reader
                    )
                    settings = (f"vm_memory_high_watermark.absolute = {options.memory_limit}MiB",)
                    with scenario.running(WarrenBroker, *settings) as broker:
                        outcome = case.run(broker, options.volume, options.seconds)
                        name = f"{size} {prefetch} {mode} {reader}"
                        scenario.add(
                            broker, f"{name}: highest RSS", outcome.highest_rss / MIB, "MiB"
                        )
                        scenario.add(
                            broker, f"{name}: longest confirm", outcome.longest_confirm_s, "s"
                        )
                    is_good = case.is_good(outcome)
                    failed += not is_good
                    scenario.say(
                        line(
                            [
                                *(size, prefetch, mode, reader),
                                f"{outcome.published_bytes / MIB:.0f}",
                                f"{outcome.highest_rss / MIB:.0f}",
                                f"{outcome.longest_confirm_s:.2f}",
                                "" if is_good else "FAILED",
                            ]
                        )
                    )
    if failed:
        raise MeasureError(f"{failed} cases are beyond their bounds")


@dataclass
class Outcome:
    """The figures of one case; sizes in bytes."""

    published_bytes: int
    highest_rss: int
    longest_confirm_s: float


@dataclass
class Case:
    """One cell of the matrix; `size` in bytes, the limit in MiB, `prefetch` 0 means no limit."""

    limit_mib: int
    size: int
    prefetch: int
    mode: str
    reader: str

    def is_good(self, outcome: Outcome) -> bool:
        bound = (self.limit_mib + SLACK_MIB) * MIB
        return outcome.highest_rss <= bound and outcome.longest_confirm_s <= CONFIRM_S

    def run(self, broker: Broker, volume: float, seconds: float) -> Outcome:
        """Publish `volume` times the memory limit, at most for `seconds`; return the figures."""
        queue = b"bench-memory"
        ending = threading.Event()
        control = Client(parse_uri(broker.uri), "bench", ANSWER_TIMEOUT_S)
        arguments = encode_table(fields_from_python({"x-queue-mode": self.mode}))
        control.request(QueueDeclare(queue=queue, durable=True, arguments=arguments))
        readers = [Reader(broker, queue, self.reader, self.prefetch, ending) for _ in range(2)]
        readers[0].consume()
        count = max(1, int(volume * self.limit_mib * MIB / self.size))
        publisher = Publisher(broker, queue, self.size, count, ending)
        probe = Probe(broker, ending)
        threads: list[Party] = [*readers, publisher, probe]
        highest = 0
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + seconds
        while publisher.is_alive() and time.monotonic() < deadline:
            if publisher.confirmed >= count // 2:
                readers[1].consume()
            highest = max(highest, broker.usage().rss_bytes)
            time.sleep(SAMPLE_S)
        until = time.monotonic() + SETTLE_S
        while time.monotonic() < until:
            highest = max(highest, broker.usage().rss_bytes)
            time.sleep(SAMPLE_S)
        longest = probe.longest_s()
        ending.set()
        for client in threads:
            client.hang_up()
        control.close()
        for thread in threads:
            thread.join()
        return Outcome(publisher.confirmed * self.size, highest, longest)


class Party(threading.Thread):
    """A client with a thread of its own."""

    def __init__(self, broker: Broker, ending: threading.Event) -> None:
        super().__init__(daemon=True)
        self.client = Client(parse_uri(broker.uri), type(self).__name__, ANSWER_TIMEOUT_S)
        self.ending = ending

    def run(self) -> None:
        try:
            self.work()
        except (OSError, PerfError):
            # After `hang_up` a receive fails as if the broker had closed the connection.
            if not self.ending.is_set():
                raise

    def work(self) -> None:
        """Publish or consume until the end; each kind of client defines it."""
        raise NotImplementedError

    def hang_up(self) -> None:
        self.client.sock.shutdown(socket.SHUT_RDWR)


class Reader(Party):
    """A consumer of one of the kinds in READERS."""

    def __init__(
        self, broker: Broker, queue: bytes, kind: str, prefetch: int, ending: threading.Event
    ) -> None:
        super().__init__(broker, ending)
        self.kind = kind
        self.queue = queue
        self._has_begun = False
        self.client.request(BasicQos(prefetch_count=prefetch))

    def consume(self) -> None:
        """Send basic.consume, on the first call only."""
        if not self._has_begun:
            self._has_begun = True
            self.client.send(CHANNEL, BasicConsume(queue=self.queue))

    def work(self) -> None:
        if self.kind == "never":
            self.ending.wait()
            return
        frames = FrameBuffer(self.client.frame_max)
        sock = self.client.sock
        sock.settimeout(None)
        tag = left = 0
        while True:
            chunk = sock.recv(SLOW_CHUNK_BYTES if self.kind == "slow" else 1 << 20)
            if not chunk:
                return
            frames.feed(chunk)
            while (kind := frames.next_frame()) != NEED_DATA:
                if kind == FRAME_METHOD:
                    tag = tag_of(decode_method(frames.data, frames.start, frames.end))
                elif kind == FRAME_HEADER:
                    left = int.from_bytes(frames.data[frames.start + 4 : frames.start + 12])
                elif kind == FRAME_BODY:
                    left -= frames.end - frames.start
                    if left == 0 and self.kind != "holds":
                        self.client.send(CHANNEL, BasicAck(delivery_tag=tag))
            if self.kind == "slow":
                time.sleep(SLOW_PAUSE_S)


class Publisher(Party):
    """Publishes `count` messages, a window at a time; `confirmed` counts the confirmed ones."""

    def __init__(
        self, broker: Broker, queue: bytes, size: int, count: int, ending: threading.Event
    ) -> None:
        super().__init__(broker, ending)
        self.client.request(ConfirmSelect())
        self.size = size
        self.count = count
        self.confirmed = 0
        self.message = [publish_head(queue, size), *body_frames(size, self.client.frame_max)]
        self.joined = b"".join(self.message) if size <= 1 << 20 else b""

    def work(self) -> None:
        window = max(1, min(WINDOW_MESSAGES, WINDOW_BYTES // self.size))
        sent = 0
        while self.confirmed < self.count:
            if sent < self.count and sent - self.confirmed < window:
                batch = min(window - (sent - self.confirmed), self.count - sent)
                if self.joined:
                    for start in range(0, batch, max(1, (1 << 20) // self.size)):
                        piece = min(batch - start, max(1, (1 << 20) // self.size))
                        self.client.sock.sendall(self.joined * piece)
                else:
                    for part in self.message * batch:
                        self.client.sock.sendall(part)
                sent += batch
            reply = self.client.receive()
            if isinstance(reply, (BasicAck, BasicNack)):
                self.confirmed = reply.delivery_tag
            elif isinstance(reply, ConnectionClose):
                raise MeasureError(f"the publisher was closed: {reply.reply_text.decode()}")


class Probe(Party):
    """Publishes small messages to a queue of its own, one at a time, and times each confirm."""

    def __init__(self, broker: Broker, ending: threading.Event) -> None:
        super().__init__(broker, ending)
        self.client.request(QueueDeclare(queue=b"bench-memory-probe", durable=True))
        self.client.request(ConfirmSelect())
        self._longest_s = 0.0
        self._since = 0.0

    def longest_s(self) -> float:
        """The longest wait for a confirm in seconds, including the wait in progress."""
        return max(self._longest_s, time.monotonic() - self._since if self._since else 0.0)

    def work(self) -> None:
        message = publish_head(b"bench-memory-probe", 10) + b"".join(body_frames(10, 131072))
        while not self.ending.is_set():
            self._since = time.monotonic()
            self.client.sock.sendall(message)
            while not isinstance(self.client.receive(), BasicAck):
                pass
            self._longest_s = max(self._longest_s, time.monotonic() - self._since)
            self._since = 0.0
            self.ending.wait(0.02)


def tag_of(method: Method) -> int:
    return method.delivery_tag if isinstance(method, BasicDeliver) else 0


def publish_head(queue: bytes, size: int) -> bytes:
    """Return the frames of basic.publish to `queue` and of the content header."""
    out = BytesWriter()
    write_method_frame(out, CHANNEL, BasicPublish(exchange=b"", routing_key=queue))
    payload = b"\x00\x3c\x00\x00" + size.to_bytes(8) + PERSISTENT_PROPERTIES
    return out.getvalue() + frame(FRAME_HEADER, payload)


def body_frames(size: int, frame_max: int) -> list[bytes]:
    piece = frame_max - 8
    return [frame(FRAME_BODY, b"x" * min(piece, size - start)) for start in range(0, size, piece)]


def frame(kind: int, payload: bytes) -> bytes:
    return bytes([kind]) + CHANNEL.to_bytes(2) + len(payload).to_bytes(4) + payload + b"\xce"
