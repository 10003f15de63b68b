"""The output of one connection: the bytes to send, in order.

Small frames gather in one growing buffer; a large body is sent by reference, without a copy. The
shell takes all output once per turn of its loop, so that a thousand deliveries are one system call.
"""

from typing import Final

from librt.strings import BytesWriter, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64

from warrenmq.queues.memory.transit import LARGE_BYTES, Transit
from warrenmq.wire.encode import write_heartbeat, write_method_frame
from warrenmq.wire.frames import FRAME_BODY, FRAME_END, FRAME_HEADER, FRAME_METHOD, FRAME_OVERHEAD
from warrenmq.wire.method import Method

# Bodies of at least this size are sent by reference.
_BY_REFERENCE_BYTES: Final = 4096
# A buffer that had more than this is given back once nothing was gathered between two looks: it
# keeps the room for what it had once, which may be 256 KiB for each connection.
_KEPT_BYTES: Final = 4096
# A socket that takes less than LARGE_BYTES in this time (ms) is stuck.
STUCK_MS: Final = 1000
_NEVER: Final = -1
_BASIC_DELIVER: Final = 0x003C003C
_BASIC_ACK: Final = 0x003C0050
_BASIC_NACK: Final = 0x003C0078
# Class 60 and weight 0, as in every content header.
_CONTENT_CLASS: Final = 60 << 16
# Eight octets are written as one signed number: the end octet of the frame before, then type,
# channel and size of a body frame. This constant has the end octet, with the sign (- 256), and the
# type.
_NEXT_BODY: Final = ((FRAME_END - 256) << 56) | (FRAME_BODY << 48)


class Output:
    """Gathers the frames to send on one connection; `take` returns them."""

    def __init__(self, transit: Transit) -> None:
        self._transit: Transit = transit
        # Bytes that the shell has taken and the socket has not accepted yet.
        self._unsent_bytes: i64 = 0
        # Bytes of this connection that the node's transit counts.
        self._counted_bytes: i64 = 0
        # Total bytes that the shell has taken.
        self._taken_bytes: i64 = 0
        # Total bytes sent at the last progress of the socket, and the time of that progress (ms).
        self._moved_bytes: i64 = 0
        self._moved_ms: i64 = _NEVER
        self._is_stuck: bool = False
        self.frame_max: i64 = 131072
        self._parts: list[bytes | memoryview] = []
        self._parts_bytes: i64 = 0
        self._buffer: BytesWriter = BytesWriter()
        # The most that the buffer had, in bytes.
        self._largest_bytes: i64 = 0
        # `_taken_bytes` at the last look for an idle buffer.
        self._looked_bytes: i64 = 0

    @property
    def size_bytes(self) -> i64:
        """Bytes gathered since the last `take`."""
        return self._parts_bytes + len(self._buffer)

    @property
    def buffered_bytes(self) -> i64:
        """Bytes in transit, as of the last `count`: gathered, or not accepted by the socket."""
        return self._counted_bytes

    @property
    def unsent_bytes(self) -> i64:
        """Bytes that the socket has not accepted, as of the last `set_unsent`."""
        return self._unsent_bytes

    @property
    def sent_bytes(self) -> i64:
        """Bytes that the socket has accepted, as of the last `set_unsent`."""
        return self._taken_bytes - self._unsent_bytes

    def take(self) -> list[bytes | memoryview]:
        """Remove and return everything gathered; the caller sends the parts in this order."""
        parts = self._parts
        self._taken_bytes += self.size_bytes
        if len(self._buffer) > 0:
            parts.append(self._take_buffer())
        self._parts = []
        self._parts_bytes = 0
        return parts

    def drop(self) -> None:
        """Discard all output, because the socket is gone."""
        self.take()
        self.set_unsent(0)

    def set_unsent(self, size: i64) -> None:
        """Set how many taken bytes still wait for the socket; call it after a `take`, or later."""
        if size != 0 or self._counted_bytes != 0:
            self._unsent_bytes = size
            self.count()

    def count(self) -> None:
        """Report the bytes that this connection has to send to the node's transit."""
        size = self.size_bytes + self._unsent_bytes
        change = size - self._counted_bytes
        if change != 0:
            self._counted_bytes = size
            if self._is_stuck:
                self._transit.change_stuck(change)
            self._transit.change(change)

    def note_progress(self, now_ms: i64) -> None:
        """Update whether the socket is stuck, and give the room of an idle buffer back.

        Called about twice a second, after `set_unsent`.
        """
        if self._taken_bytes != self._looked_bytes:
            self._looked_bytes = self._taken_bytes
        elif self._largest_bytes > _KEPT_BYTES and len(self._buffer) == 0:
            self._buffer = BytesWriter()
            self._largest_bytes = 0
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
        """Time for which the socket has been stuck (ms); 0 while it is not stuck."""
        return now_ms - self._moved_ms if self._is_stuck else 0

    def raw(self, data: bytes) -> None:
        """Append bytes that are not a frame (the protocol header)."""
        self._buffer.write(data)

    def method(self, channel: i64, method: Method) -> None:
        """Append a method frame."""
        write_method_frame(self._buffer, channel, method)

    def heartbeat(self) -> None:
        """Append a heartbeat frame."""
        write_heartbeat(self._buffer)

    def deliver(
        self, channel: i64, tag_field: bytes, delivery_tag: i64, redelivered: bool, address: bytes
    ) -> None:
        """Append basic.deliver.

        `tag_field` is the consumer tag as a short string; `address` is exchange and routing key as
        two short strings. The frame is written without a method object, because it happens once per
        message.
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
        """Append the content that follows a deliver, return or get-ok."""
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
        # Views avoid copies: a body of 128 MiB that waits for its socket is in memory once.
        view = memoryview(body)
        start: i64 = 0
        while start < size:
            end = start + piece_max if size - start > piece_max else size
            self._body_view(channel, view[start:end], end - start)
            start = end
        self.count()

    def confirm(self, channel: i64, upto: i64, multiple: bool, ok: bool) -> None:
        """Append basic.ack, or basic.nack unless `ok`, for publish `upto`.

        With `multiple` the frame covers all unconfirmed publishes up to `upto`.
        """
        buffer = self._buffer
        buffer.append(FRAME_METHOD)
        write_i16_be(buffer, i16(channel))
        write_i32_be(buffer, 13)
        write_i32_be(buffer, i32(_BASIC_ACK if ok else _BASIC_NACK))
        write_i64_be(buffer, upto)
        if ok:
            buffer.append(1 if multiple else 0)
        else:
            # Bit 1 is requeue, with its default value true; it has no meaning for a publisher.
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
        head = self._take_buffer()
        self._parts.append(head)
        self._parts.append(piece)
        self._parts_bytes += len(head) + size

    def _take_buffer(self) -> bytes:
        frames = self._buffer.getvalue()
        self._buffer.truncate(0)
        size: i64 = len(frames)
        if size > self._largest_bytes:
            self._largest_bytes = size
        return frames
