"""One publishing connection: batches of ready-made frames, limited by window, rate, alarm and TCP.

All messages of a publisher are equal but for the timestamp in their first 8 octets. A batch shares
one timestamp, so it is one message repeated: a memory copy, whatever the number of messages. Four
limits delay a batch, and each is checked before the next batch is built: the confirm window, the
rate, `connection.blocked` or `channel.flow` from the broker, and a socket that accepts no more.

Invariant: `published` counts the messages passed to the socket or waiting in it for the kernel;
`confirmed_count + nacked_count` never exceeds it, and `published - settled` never exceeds the
window.
"""

import time
from collections import deque
from socket import socket
from typing import Final, final

from librt.strings import BytesWriter, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i64

from warrenmq.perf.connection import AgentConnection
from warrenmq.perf.errors import PerfError
from warrenmq.perf.frame_scan import BASIC_NACK, BASIC_RETURN
from warrenmq.perf.histogram import Histogram
from warrenmq.perf.notices import BLOCKED, FLOW_OFF, FLOW_ON, UNBLOCKED, flow_ok_frame
from warrenmq.perf.options import NANOSECONDS
from warrenmq.wire.frames import FRAME_BODY, FRAME_END, FRAME_HEADER, FRAME_METHOD, FRAME_OVERHEAD

BASIC_PUBLISH: Final = 60 << 16 | 40
CLASS_BASIC: Final = 60
TIMESTAMP_BYTES: Final = 8
# Bytes of one send, enough to spread the cost of the system call over many messages.
BATCH_BYTES: Final = 262144
RECEIVE_BYTES: Final = 65536


@final
class PublishFrames:
    """The frames of one publish, cut around its 8-octet timestamp: `prefix + timestamp + suffix`.

    A body under 8 octets has no timestamp: `has_timestamp` is false and the whole publish is
    `prefix`.
    """

    def __init__(
        self,
        exchange: bytes,
        routing_key: bytes,
        properties: bytes,
        mandatory: bool,
        size: i64,
        frame_max: i64,
    ) -> None:
        self.has_timestamp: bool = size >= TIMESTAMP_BYTES
        self.prefix: bytes = b""
        self.suffix: bytes = b""
        out = BytesWriter()
        write_frame_header(out, FRAME_METHOD, 4 + 2 + 1 + len(exchange) + 1 + len(routing_key) + 1)
        write_i32_be(out, BASIC_PUBLISH)
        write_i16_be(out, 0)
        out.append(len(exchange))
        out.write(exchange)
        out.append(len(routing_key))
        out.write(routing_key)
        out.append(1 if mandatory else 0)
        out.append(FRAME_END)
        write_frame_header(out, FRAME_HEADER, 12 + len(properties))
        write_i16_be(out, CLASS_BASIC)
        write_i16_be(out, 0)
        write_i64_be(out, size)
        out.write(properties)
        out.append(FRAME_END)
        if not self.has_timestamp:
            if size > 0:
                write_frame_header(out, FRAME_BODY, size)
                out.write(bytes(size))
                out.append(FRAME_END)
            self.prefix = out.getvalue()
            return
        part: i64 = min(size, frame_max - FRAME_OVERHEAD)
        write_frame_header(out, FRAME_BODY, part)
        self.prefix = out.getvalue()
        out.truncate(0)
        out.write(bytes(part - TIMESTAMP_BYTES))
        out.append(FRAME_END)
        left: i64 = size - part
        while left > 0:
            part = min(left, frame_max - FRAME_OVERHEAD)
            write_frame_header(out, FRAME_BODY, part)
            out.write(bytes(part))
            out.append(FRAME_END)
            left -= part
        self.suffix = out.getvalue()

    def octets(self) -> i64:
        """Length of one publish on the wire (octets)."""
        return len(self.prefix) + len(self.suffix) + (TIMESTAMP_BYTES if self.has_timestamp else 0)

    def stamped(self, now_ns: i64) -> bytes:
        """The octets of one publish with `now_ns` in its body."""
        if not self.has_timestamp:
            return self.prefix
        out = BytesWriter()
        out.write(self.prefix)
        write_i64_be(out, now_ns)
        out.write(self.suffix)
        return out.getvalue()


def write_frame_header(out: BytesWriter, kind: i64, size: i64) -> None:
    """Write a frame header for channel 1, the only channel of our connections."""
    out.append(kind)
    write_i16_be(out, 1)
    write_i32_be(out, int(size))


@final
class Publisher(AgentConnection):
    """Publishes on channel 1 of a socket that is set up already.

    The loop calls `on_readable`, `flush` and `publish`. Each batch repeats the next one of
    `frames`, which are equal in size. `window` (0: confirms are off), `limit` (0: none) and `rate`
    per second (0.0: none) are fixed for the run.
    """

    def __init__(
        self, sock: socket, frames: list[PublishFrames], window: i64, limit: i64, rate: float
    ) -> None:
        super().__init__(sock, "publisher", True)
        self.published: i64 = 0
        self.confirmed_count: i64 = 0
        self.nacked_count: i64 = 0
        self.returned_count: i64 = 0
        # Time at which the latest message was sent or settled, monotonic nanoseconds.
        self.latest_ns: i64 = 0
        self.blocked_ns: i64 = 0
        # Largest delay behind the pace so far (ns): beyond it a paced latency would flatter the
        # broker.
        self.behind_ns_max: i64 = 0
        self.confirm_latency: Histogram = Histogram()
        self.is_stopped: bool = False
        self._frames: list[PublishFrames] = frames
        self._next_frames: i64 = 0
        self._window: i64 = window
        self._limit: i64 = limit
        self._rate: float = rate
        self._batch_max: i64 = max(1, BATCH_BYTES // frames[0].octets())
        self._start_ns: i64 = 0
        self._now_ns: i64 = 0
        self._is_blocked: bool = False
        self._is_flow_stopped: bool = False
        self._blocked_since_ns: i64 = 0
        # Every publish_seq up to this one is settled; `_settled_ahead` has those beyond it that
        # were settled out of order.
        self._settled_through: i64 = 0
        self._settled_ahead: set[int] = set()
        # (last publish_seq, time of sending in ns) of each batch that is not completely settled.
        self._batches: deque[tuple[int, int]] = deque()

    def start(self, now_ns: i64) -> None:
        """Start the pace at `now_ns`."""
        self._start_ns = now_ns

    def unsettled(self) -> i64:
        """Messages published and neither confirmed nor nacked; 0 without a window."""
        if self._window == 0:
            return 0
        return self.published - self._settled_through - len(self._settled_ahead)

    def is_done(self) -> bool:
        """True when all is sent and settled, after the limit was reached or `is_stopped` was set.

        Without a window nothing counts as unsettled.
        """
        if not self.is_stopped and (self._limit == 0 or self.published < self._limit):
            return False
        return not self.wants_write() and self.unsettled() == 0

    def credit(self, now_ns: i64) -> i64:
        """Messages that may be sent at this moment, TCP aside."""
        if self.is_stopped or self._is_blocked or self._is_flow_stopped:
            return 0
        credit: i64 = self._batch_max
        if self._window > 0:
            credit = min(credit, self._window - self.unsettled())
        if self._limit > 0:
            credit = min(credit, self._limit - self.published)
        if self._rate > 0.0:
            credit = min(
                credit,
                i64(float(now_ns - self._start_ns) * self._rate / NANOSECONDS) + 1 - self.published,
            )
        return max(credit, 0)

    def next_due_ns(self) -> i64:
        """Time when the rate allows the next message (ns); 0 without a rate.

        Also 0 while another limit delays the publisher.
        """
        if (
            self._rate <= 0.0
            or self.wants_write()
            or self.is_stopped
            or self._is_blocked
            or self._is_flow_stopped
        ):
            return 0
        if (self._limit > 0 and self.published >= self._limit) or (
            self._window > 0 and self.unsettled() >= self._window
        ):
            return 0
        return self._start_ns + i64(float(self.published) * NANOSECONDS / self._rate) + 1

    def publish(self, now_ns: i64) -> bool:
        """Send one batch if every limit allows; returns whether anything was sent."""
        if self.wants_write():
            return False
        credit = self.credit(now_ns)
        if credit == 0:
            return False
        if self._rate > 0.0:
            due_ns: i64 = self._start_ns + i64(float(self.published) * NANOSECONDS / self._rate)
            self.behind_ns_max = max(self.behind_ns_max, now_ns - due_ns)
        self.published += credit
        if self._window > 0:
            self._batches.append((self.published, now_ns))
        self.latest_ns = now_ns
        frames = self._frames[self._next_frames]
        self._next_frames = (self._next_frames + 1) % len(self._frames)
        self.send_repeated(frames.stamped(now_ns), credit)
        return True

    def on_readable(self) -> None:
        """Read one chunk of confirms, returns and notices."""
        chunk = self.receive(RECEIVE_BYTES)
        if not chunk:
            return
        self._now_ns = time.monotonic_ns()
        settled_before = self._settled_through
        self.scan(chunk)
        if self._settled_through > settled_before:
            self.latest_ns = self._now_ns
            self._record_latency(settled_before)

    def on_message(self, method: i64, delivery_tag: i64, timestamp: i64) -> None:
        if method == BASIC_RETURN:
            self.returned_count += 1

    def on_confirm(self, method: i64, publish_seq: i64, multiple: bool) -> None:
        through: i64 = self._settled_through
        if publish_seq <= through or publish_seq > self.published:
            raise PerfError(
                f"the broker confirmed publish {publish_seq} out of {self.published} (settled up to {through})"
            )
        settled: i64 = 1
        if multiple:
            settled = publish_seq - through
            if len(self._settled_ahead) > 0:
                for ahead in [seq for seq in self._settled_ahead if seq <= publish_seq]:
                    self._settled_ahead.remove(ahead)
                    settled -= 1
            through = publish_seq
        elif publish_seq == through + 1:
            through = publish_seq
        else:
            self._settled_ahead.add(publish_seq)
        while len(self._settled_ahead) > 0 and int(through + 1) in self._settled_ahead:
            through += 1
            self._settled_ahead.remove(int(through))
        self._settled_through = through
        if method == BASIC_NACK:
            self.nacked_count += settled
        else:
            self.confirmed_count += settled

    def _record_latency(self, settled_before: i64) -> None:
        """Record the latency of the messages that this chunk settled, in publishing order.

        A message confirmed out of order is recorded when all before it are settled: never too
        early, at times late.
        """
        recorded: i64 = settled_before
        while recorded < self._settled_through:
            last, sent_ns = self._batches[0]
            count: i64 = min(i64(last), self._settled_through) - recorded
            self.confirm_latency.record(self._now_ns - i64(sent_ns), count)
            recorded += count
            if recorded == i64(last):
                self._batches.popleft()

    def on_notice(self, code: i64) -> None:
        if code == BLOCKED and not self._is_blocked:
            self._is_blocked = True
            self._blocked_since_ns = self._now_ns
        elif code == UNBLOCKED and self._is_blocked:
            self._is_blocked = False
            self.blocked_ns += self._now_ns - self._blocked_since_ns
        elif code in (FLOW_ON, FLOW_OFF):
            self._is_flow_stopped = code == FLOW_OFF
            self.send(flow_ok_frame(code == FLOW_ON))

    def settle_blocked_time(self, now_ns: i64) -> None:
        """Add the time of a block that still lasts to `blocked_ns`."""
        if self._is_blocked:
            self.blocked_ns += now_ns - self._blocked_since_ns
            self._blocked_since_ns = now_ns
