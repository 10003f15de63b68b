"""What one connection has to send, as bytes in the order of writing.

Small frames gather in one growing buffer; a large body goes out as it is, without being copied. The shell takes all of
it once per turn of its loop, so that a thousand deliveries are one system call.
"""

from typing import Final

from librt.strings import BytesWriter, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64

from warrenmq.queues.transit import LARGE_BYTES, Transit
from warrenmq.wire.encode import write_heartbeat, write_method_frame
from warrenmq.wire.frames import FRAME_BODY, FRAME_END, FRAME_HEADER, FRAME_METHOD, FRAME_OVERHEAD
from warrenmq.wire.method import Method

# Bodies from this size on are sent by reference.
_BY_REFERENCE_BYTES: Final = 4096
# A socket that takes less than LARGE_BYTES in so long (ms) stands still.
STUCK_MS: Final = 1000
_NEVER: Final = -1
_BASIC_DELIVER: Final = 0x003C003C
_BASIC_ACK: Final = 0x003C0050
_BASIC_NACK: Final = 0x003C0078
# Class 60 and weight 0, as in every content header.
_CONTENT_CLASS: Final = 60 << 16
# The last octet of a frame and the first of a body frame, for the eight octets that end in its channel and size; as a
# signed number, the first octet is the sign's.
_NEXT_BODY: Final = ((FRAME_END - 256) << 56) | (FRAME_BODY << 48)


class Output:
    """Frames to send. `size_bytes` is what has gathered since the last `take`."""

    def __init__(self, transit: Transit) -> None:
        self._transit: Transit = transit
        # Bytes that were taken and that the socket has not, and what the node's transit was told last.
        self._unsent_bytes: i64 = 0
        self._counted_bytes: i64 = 0
        # Bytes that were taken altogether; those of them that were sent when the socket last moved, and the time (ms).
        self._taken_bytes: i64 = 0
        self._moved_bytes: i64 = 0
        self._moved_ms: i64 = _NEVER
        self._is_stuck: bool = False
        self.frame_max: i64 = 131072
        self._parts: list[bytes | memoryview] = []
        self._parts_bytes: i64 = 0
        self._buffer: BytesWriter = BytesWriter()

    @property
    def size_bytes(self) -> i64:
        """Bytes that wait to be taken."""
        return self._parts_bytes + len(self._buffer)

    @property
    def buffered_bytes(self) -> i64:
        """Bytes that count as being on their way: what was gathered and what the socket has not taken."""
        return self._counted_bytes

    def take(self) -> list[bytes | memoryview]:
        """Everything gathered, to be sent in order."""
        parts = self._parts
        self._taken_bytes += self.size_bytes
        if len(self._buffer) > 0:
            parts.append(self._buffer.getvalue())
            self._buffer.truncate(0)
        self._parts = []
        self._parts_bytes = 0
        return parts

    def drop(self) -> None:
        """The socket is gone: nothing will be sent."""
        self.take()
        self.set_unsent(0)

    def set_unsent(self, size: i64) -> None:
        """After a `take`, or later: so many bytes of what was taken wait for the socket."""
        if size != 0 or self._counted_bytes != 0:
            self._unsent_bytes = size
            self.count()

    def count(self) -> None:
        """Tell the node's transit what this connection has to send."""
        size = self.size_bytes + self._unsent_bytes
        change = size - self._counted_bytes
        if change != 0:
            self._counted_bytes = size
            if self._is_stuck:
                self._transit.change_stuck(change)
            self._transit.change(change)

    def note_progress(self, now_ms: i64) -> None:
        """Find out whether the socket moves; called about twice a second, with what is unsent told before."""
        sent = self._taken_bytes - self._unsent_bytes
        if (
            self._counted_bytes == 0
            or self._moved_ms == _NEVER
            or sent - self._moved_bytes >= LARGE_BYTES
        ):
            self._moved_bytes = sent
            self._moved_ms = now_ms
        is_stuck = now_ms - self._moved_ms >= STUCK_MS
        if is_stuck != self._is_stuck:
            self._is_stuck = is_stuck
            self._transit.change_stuck(self._counted_bytes if is_stuck else -self._counted_bytes)

    def stuck_ms(self, now_ms: i64) -> i64:
        """For how long the socket has not moved; 0 while it does."""
        return now_ms - self._moved_ms if self._is_stuck else 0

    def raw(self, data: bytes) -> None:
        """Bytes that are not a frame (the protocol header)."""
        self._buffer.write(data)

    def method(self, channel: i64, method: Method) -> None:
        """A method frame."""
        write_method_frame(self._buffer, channel, method)

    def heartbeat(self) -> None:
        """A heartbeat frame."""
        write_heartbeat(self._buffer)

    def deliver(
        self, channel: i64, tag_field: bytes, delivery_tag: i64, redelivered: bool, address: bytes
    ) -> None:
        """basic.deliver; `tag_field` is the consumer tag and `address` exchange and routing key, as short strings.

        Spelled out instead of going through a method object, since it happens once per message.
        """
        buffer = self._buffer
        buffer.append(FRAME_METHOD)
        write_i16_be(buffer, i16(channel))
        write_i32_be(buffer, i32(4 + len(tag_field) + 9 + len(address)))
        write_i32_be(buffer, i32(_BASIC_DELIVER))
        buffer.write(tag_field)
        write_i64_be(buffer, delivery_tag)
        buffer.append(1 if redelivered else 0)
        buffer.write(address)
        buffer.append(FRAME_END)

    def content(self, channel: i64, properties: bytes, body: bytes) -> None:
        """The content that follows a deliver, return or get-ok."""
        buffer = self._buffer
        size: i64 = len(body)
        buffer.append(FRAME_HEADER)
        write_i16_be(buffer, i16(channel))
        write_i32_be(buffer, i32(12 + len(properties)))
        write_i32_be(buffer, i32(_CONTENT_CLASS))
        write_i64_be(buffer, size)
        buffer.write(properties)
        if size == 0:
            buffer.append(FRAME_END)
            return
        piece_max: i64 = self.frame_max - FRAME_OVERHEAD if self.frame_max != 0 else size
        if size <= piece_max:
            write_i64_be(buffer, _NEXT_BODY | (channel << 32) | size)
            if size < _BY_REFERENCE_BYTES:
                buffer.write(body)
            else:
                self._refer_to(body, size)
            buffer.append(FRAME_END)
            if size > LARGE_BYTES:
                self.count()
            return
        buffer.append(FRAME_END)
        # Views, not copies: a body of 128 MiB that waits for its socket is in memory once.
        view = memoryview(body)
        start: i64 = 0
        while start < size:
            end = start + piece_max if size - start > piece_max else size
            self._body_view(channel, view[start:end], end - start)
            start = end
        self.count()

    def confirm(self, channel: i64, upto: i64, multiple: bool, ok: bool) -> None:
        """basic.ack or basic.nack of publishes up to `upto`."""
        buffer = self._buffer
        buffer.append(FRAME_METHOD)
        write_i16_be(buffer, i16(channel))
        write_i32_be(buffer, 13)
        write_i32_be(buffer, i32(_BASIC_ACK if ok else _BASIC_NACK))
        write_i64_be(buffer, upto)
        if ok:
            buffer.append(1 if multiple else 0)
        else:
            # The requeue bit has its default value, true; it means nothing here.
            buffer.append(3 if multiple else 2)
        buffer.append(FRAME_END)

    def _body_view(self, channel: i64, piece: memoryview, size: i64) -> None:
        buffer = self._buffer
        buffer.append(FRAME_BODY)
        write_i16_be(buffer, i16(channel))
        write_i32_be(buffer, i32(size))
        self._refer_to(piece, size)
        buffer.append(FRAME_END)

    def _refer_to(self, piece: bytes | memoryview, size: i64) -> None:
        head = self._buffer.getvalue()
        self._buffer.truncate(0)
        self._parts.append(head)
        self._parts.append(piece)
        self._parts_bytes += len(head) + size
