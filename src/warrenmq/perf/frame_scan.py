"""Counts messages and confirms that a broker sends, without an object per message.

`FrameScanner.scan` walks received bytes frame by frame and calls a hook per whole message, per
confirm and per other method. It skips message bodies except their first 8 octets, the publisher's
timestamp. A message of any size therefore costs the same, and the scanner keeps nothing larger than
one method or header frame over a chunk boundary. Only one channel of a connection carries content,
so one content state is enough.
"""

from typing import Final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64, mypyc_attr

from warrenmq.perf.errors import PerfError
from warrenmq.wire.frames import FRAME_BODY, FRAME_END, FRAME_HEADER, FRAME_HEARTBEAT, FRAME_METHOD

BASIC_RETURN: Final = 60 << 16 | 50
BASIC_DELIVER: Final = 60 << 16 | 60
BASIC_ACK: Final = 60 << 16 | 80
BASIC_NACK: Final = 60 << 16 | 120

NO_TIMESTAMP: Final = -1
# The largest method or header frame to wait for; the negotiated frame_max never exceeds it
# (client.py).
GATHERED_FRAME_LIMIT: Final = 131072


@mypyc_attr(allow_interpreted_subclasses=True)
class FrameScanner:
    """Scans chunks and calls the hooks of a subclass. After a PerfError the stream is lost."""

    def __init__(self) -> None:
        self._tail: bytes = b""
        # Octets of the current body frame, its end octet included, that have not arrived yet.
        self._skip: i64 = 0
        self._body_left: i64 = 0
        self._content_method: i64 = 0
        self._delivery_tag: i64 = 0
        self._timestamp: i64 = NO_TIMESTAMP
        self._wants_timestamp: bool = False

    def on_message(self, method: i64, delivery_tag: i64, timestamp: i64) -> None:
        """Handle a whole message: BASIC_DELIVER, or BASIC_RETURN with delivery_tag 0."""

    def on_confirm(self, method: i64, publish_seq: i64, multiple: bool) -> None:
        """Handle a BASIC_ACK or BASIC_NACK from the broker."""

    def on_method(self, data: bytes, start: i64, end: i64) -> None:
        """Handle any other method; its payload is `data[start:end]`."""

    def scan(self, chunk: bytes) -> None:
        """Walk `chunk`, the next bytes of the stream, calling the hooks in order."""
        data = chunk
        if len(self._tail) > 0:
            data = self._tail + chunk
            self._tail = b""
        end: i64 = len(data)
        position: i64 = 0
        while True:
            if self._skip > 0:
                if end - position < self._skip:
                    self._skip -= end - position
                    return
                position += self._skip
                self._skip = 0
                if data[position - 1] != FRAME_END:
                    raise PerfError("the broker sent a body frame without its end octet")
                if self._body_left == 0:
                    self.on_message(self._content_method, self._delivery_tag, self._timestamp)
            # The smallest frame, a heartbeat, has 8 octets, so its whole header is read as one
            # integer: type u8, channel u16, size u32, and one octet that follows.
            if end - position < 8:
                break
            header: i64 = read_i64_be(data, position)
            kind: i64 = (header >> 56) & 0xFF
            size: i64 = (header >> 8) & 0xFFFFFFFF
            if kind == FRAME_BODY:
                if self._wants_timestamp and size >= 8:
                    if end - position < 15:
                        break
                    self._timestamp = read_i64_be(data, position + 7)
                self._wants_timestamp = False
                self._body_left -= size
                if self._body_left < 0:
                    raise PerfError(
                        "the broker sent more body octets than its content header announced"
                    )
                self._skip = size + 1
                position += 7
                continue
            if size > GATHERED_FRAME_LIMIT:
                raise PerfError(f"the broker sent a frame of type {kind} and {size} octets")
            if end - position < size + 8:
                break
            start: i64 = position + 7
            position = start + size + 1
            if data[position - 1] != FRAME_END:
                raise PerfError(f"the broker sent a frame of type {kind} without its end octet")
            if kind == FRAME_METHOD:
                if size < 4:
                    raise PerfError("the broker sent a method frame without a method")
                self._scan_method(data, start, start + size)
            elif kind == FRAME_HEADER:
                if size < 14:
                    raise PerfError("the broker sent a content header of fewer than 14 octets")
                self._body_left = read_i64_be(data, start + 4)
                self._timestamp = NO_TIMESTAMP
                self._wants_timestamp = self._body_left >= 8
                if self._body_left == 0:
                    self.on_message(self._content_method, self._delivery_tag, NO_TIMESTAMP)
            elif kind != FRAME_HEARTBEAT:
                raise PerfError(f"the broker sent a frame of unknown type {kind}")
        if position < end:
            self._tail = data[position:] if position > 0 else data

    def _scan_method(self, data: bytes, start: i64, end: i64) -> None:
        method: i64 = i64(read_i32_be(data, start))
        if method == BASIC_DELIVER:
            # consumer_tag shortstr, delivery_tag u64; redelivered, exchange and routing key behind
            # them are not read.
            if end - start < 5:
                raise PerfError("the broker sent a basic.deliver that ends early")
            tag_at: i64 = start + 5 + i64(data[start + 4])
            if tag_at + 8 > end:
                raise PerfError("the broker sent a basic.deliver that ends early")
            self._content_method = method
            self._delivery_tag = read_i64_be(data, tag_at)
        elif method in (BASIC_ACK, BASIC_NACK):
            if end - start < 13:
                raise PerfError("the broker sent a confirm that ends early")
            self.on_confirm(method, read_i64_be(data, start + 4), (data[start + 12] & 1) == 1)
        elif method == BASIC_RETURN:
            self._content_method = method
            self._delivery_tag = 0
        else:
            self.on_method(data, start, end)
