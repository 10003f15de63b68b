"""One consuming connection: counts deliveries, measures latency, acks singly or N at a time.

The acks for one received chunk gather in a buffer and leave with one send, or each with a send of
its own, as those of most clients do. While the socket does
not take them the consumer reads nothing, so that a broker that does not read its acks cannot fill
buffers here with deliveries. Messages of one publisher's batch share a timestamp, so latency is
recorded per run of equal timestamps.
"""

import time
from socket import socket
from typing import Final, final

from librt.strings import BytesWriter, write_i16_be, write_i64_be
from mypy_extensions import i64

from warrenmq.perf.connection import AgentConnection
from warrenmq.perf.errors import PerfError
from warrenmq.perf.frame_scan import BASIC_ACK, BASIC_DELIVER, NO_TIMESTAMP
from warrenmq.perf.histogram import Histogram
from warrenmq.perf.notices import CANCELLED
from warrenmq.wire.encode import write_method_frame
from warrenmq.wire.frames import FRAME_END
from warrenmq.wire.methods import BasicConsume

# Size of a read, under malloc's threshold for mapped memory (128 KiB): above it every chunk would
# cost four more system calls.
RECEIVE_BYTES: Final = 98304
# The octets before the delivery tag of a basic.ack frame on channel 1: type, channel, size 13,
# class and method.
ACK_HEAD: Final = bytes(
    [
        1,
        0,
        1,
        0,
        0,
        0,
        13,
        BASIC_ACK >> 24,
        BASIC_ACK >> 16 & 255,
        BASIC_ACK >> 8 & 255,
        BASIC_ACK & 255,
    ]
)
ACK_ONE: Final = FRAME_END
ACK_MULTIPLE: Final = 0x100 | FRAME_END


@final
class Consumer(AgentConnection):
    """Consumes `queue` on channel 1 of a socket that is set up already, prefetch included.

    `multi_ack_every` 0 consumes without acks; `writes_each_ack`: a send for each ack. `limit` 0
    means no limit. Deliveries past the limit stay unacked.
    """

    def __init__(
        self,
        sock: socket,
        queue: bytes,
        multi_ack_every: i64,
        limit: i64,
        writes_each_ack: bool = False,
    ) -> None:
        super().__init__(sock, "consumer", False)
        self.received: i64 = 0
        # Arrival of the chunk with the latest counted message, monotonic nanoseconds.
        self.latest_ns: i64 = 0
        self.latency: Histogram = Histogram()
        self.is_consuming: bool = False
        self._queue: bytes = queue
        self._ack_every: i64 = multi_ack_every
        self._limit: i64 = limit
        self._writes_each_ack: bool = writes_each_ack
        self._unacked: i64 = 0
        self._latest_tag: i64 = 0
        self._now_ns: i64 = 0
        self._run_timestamp: i64 = NO_TIMESTAMP
        self._run_count: i64 = 0
        self._acks: BytesWriter = BytesWriter()

    def start(self) -> None:
        """Send basic.consume; `is_consuming` turns true when the broker has answered."""
        out = BytesWriter()
        write_method_frame(out, 1, BasicConsume(queue=self._queue, no_ack=self._ack_every == 0))
        self.send(out.getvalue())

    def is_done(self) -> bool:
        """True when the limit is reached and the socket has taken every ack."""
        return self._limit > 0 and self.received >= self._limit and not self.wants_write()

    def on_readable(self) -> None:
        """Read one chunk, and count and ack its deliveries."""
        chunk = self.receive(RECEIVE_BYTES)
        if not chunk:
            return
        self._now_ns = time.monotonic_ns()
        before = self.received
        self.scan(chunk)
        if self.received > before:
            self.latest_ns = self._now_ns
            self._record_run()
        if len(self._acks) > 0:
            self._send_acks()

    def on_message(self, method: i64, delivery_tag: i64, timestamp: i64) -> None:
        if (
            self.is_closing
            or method != BASIC_DELIVER
            or (self._limit > 0 and self.received >= self._limit)
        ):
            return
        self.received += 1
        if timestamp != self._run_timestamp:
            self._record_run()
            self._run_timestamp = timestamp
        self._run_count += 1
        if self._ack_every > 0:
            self._unacked += 1
            self._latest_tag = delivery_tag
            if self._unacked >= self._ack_every or self.received == self._limit:
                self._ack(self._ack_every > 1)

    def on_notice(self, code: i64) -> None:
        if code == CANCELLED:
            raise PerfError("the broker cancelled a consumer: its queue is gone")
        # The first other method after start() is the answer to basic.consume.
        self.is_consuming = True

    def finish(self) -> None:
        """Ack received messages that wait for a multiple ack to fill up."""
        if self._unacked > 0:
            self._ack(True)
            self._send_acks()

    def _ack(self, multiple: bool) -> None:
        self._unacked = 0
        self._acks.write(ACK_HEAD)
        write_i64_be(self._acks, self._latest_tag)
        write_i16_be(self._acks, ACK_MULTIPLE if multiple else ACK_ONE)
        if self._writes_each_ack:
            self._send_acks()

    def _send_acks(self) -> None:
        octets = self._acks.getvalue()
        self._acks.truncate(0)
        self.send(octets)

    def _record_run(self) -> None:
        if self._run_count > 0 and self._run_timestamp != NO_TIMESTAMP:
            self.latency.record(self._now_ns - self._run_timestamp, self._run_count)
        self._run_count = 0
        self._run_timestamp = NO_TIMESTAMP
