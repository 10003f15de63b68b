"""The order of the frames of a publish: method, header, body (protocol section 4).

A channel's state is the kind of frame that must come next, so one comparison checks a frame:

    METHOD   After basic.publish, HEADER must come next; after any other method, METHOD.
    HEADER   If it announces a body, BODY must come next. If not, METHOD, with complete content.
    BODY     While the body is incomplete, BODY must come next. Then METHOD, with complete content.

A frame of another kind closes the connection with 505; RabbitMQ's text depends on the state alone.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from warrenmq.broker.content.body import Body
from warrenmq.broker.content.properties import PublishProperties, inspect_properties
from warrenmq.wire.errors import (
    FRAME_ERROR,
    PRECONDITION_FAILED,
    UNEXPECTED_FRAME,
    ChannelException,
    ConnectionException,
    octets_text,
)
from warrenmq.wire.frames import FRAME_HEADER, FRAME_METHOD
from warrenmq.wire.primitives import unsigned64

# The first four octets of a publish's content header: class 60 (basic) and weight 0.
_BASIC_HEADER: Final = 60 << 16
# What a channel begins with: most channels publish with other properties, or not at all.
_NO_PROPERTIES: Final = PublishProperties(b"\x00\x00")


def unexpected_frame(expected: i64) -> ConnectionException:
    """The error for a frame that is not of the `expected` kind."""
    if expected == FRAME_METHOD:
        return ConnectionException(
            UNEXPECTED_FRAME, "expected method frame, got non method frame instead"
        )
    if expected == FRAME_HEADER:
        return _no_header("got non content header frame instead")
    return ConnectionException(
        UNEXPECTED_FRAME, "expected content body, got non content body frame instead", 60, 40
    )


class ContentAssembly:
    """The content that is arriving on one channel."""

    def __init__(self) -> None:
        # The kind of frame that must come next.
        self.expected: i64 = FRAME_METHOD
        self.properties: PublishProperties = _NO_PROPERTIES
        # The incomplete body; None before its first frame and for a body in a single frame.
        self.body: Body | None = None
        self._size: i64 = 0

    def take_header(self, data: bytes, start: i64, end: i64, size_max: i64) -> bool:
        """Take the content header `data[start:end]`; True when no body follows.

        Raises ChannelException 406 for a body of more than `size_max` bytes, and
        ConnectionException 501 or 505 if the bytes are no header of a publish. Raises like
        `inspect_properties` too.
        """
        if end - start < 12:
            octets = octets_text(data[start:end])
            raise ConnectionException(FRAME_ERROR, f"type 2, all octets = {octets}: unknown_frame")
        if i64(read_i32_be(data, start)) != _BASIC_HEADER:
            class_id: i64 = i64(read_i16_be(data, start)) & 0xFFFF
            raise _no_header(
                f"got one for class {class_id} instead"
                if class_id != 60
                else "got non content header frame instead"
            )
        raw = data[start + 12 : end]
        if raw != self.properties.source:
            self.properties = inspect_properties(raw)
        size = read_i64_be(data, start + 4)
        if size < 0 or size > size_max:
            shown = unsigned64(size)
            raise ChannelException(
                PRECONDITION_FAILED,
                f"message size {shown} is larger than configured max size {size_max}",
            )
        self._size = size
        return size == 0

    def take_body(self, piece: bytes) -> bytes | None:
        """Take the next piece of the body; returns the whole body after the last piece, else None.

        The caller counts the memory of `body`, and sets `body` to None when the body is complete or
        dropped. Raises ConnectionException 501 for more bytes than the header announced.
        """
        size: i64 = len(piece)
        body = self.body
        received = size if body is None else body.received_bytes + size
        if received > self._size:
            raise ConnectionException(
                FRAME_ERROR, f"content body of {received} bytes, {self._size} announced", 60, 40
            )
        if received < self._size:
            if body is None:
                body = Body(self._size)
                self.body = body
            body.add(piece)
            return None
        return piece if body is None else body.finish(piece)


def _no_header(text: str) -> ConnectionException:
    return ConnectionException(
        UNEXPECTED_FRAME, f"expected content header for class 60, {text}", 60, 40
    )
