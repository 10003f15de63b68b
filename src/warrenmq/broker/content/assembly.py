"""How the three kinds of frames of a publish follow each other: method, header, body (protocol section 4).

The state of a channel is the kind of frame that must come next, so one comparison judges each of its frames:

    METHOD   basic.publish: HEADER comes next. Any other method: METHOD.
    HEADER   a body is announced: BODY. None: METHOD, and the content is complete.
    BODY     until all of it is here: BODY. Then METHOD, and the content is complete.

Another kind of frame closes the connection with 505; RabbitMQ's text depends on the state alone.
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


def unexpected_frame(expected: i64) -> ConnectionException:
    """The error for a frame of another kind than the `expected` one."""
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
    """The content that arrives on a channel."""

    def __init__(self) -> None:
        self.properties: PublishProperties = PublishProperties(b"\x00\x00")
        # The body, once a frame has come that did not complete it.
        self.body: Body | None = None
        self._size: i64 = 0

    def take_header(self, data: bytes, start: i64, end: i64, size_max: i64) -> bool:
        """The content header `data[start:end]`; True when no body follows.

        Raises ChannelException 406 for a body of more than `size_max` bytes, ConnectionException 501 and 505 for what is no
        header of a publish.
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
        """The next piece of the body; the whole body when it is the last one, else None. `body` is then for the caller to
        account for, and to forget with `drop_body`."""
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
