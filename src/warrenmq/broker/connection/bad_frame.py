"""The error for a frame that makes no sense where it comes (protocol 3)."""

from mypy_extensions import i64

from warrenmq.wire.errors import (
    FRAME_ERROR,
    UNEXPECTED_FRAME,
    ConnectionException,
    octets_text,
)
from warrenmq.wire.frames import (
    FRAME_BODY,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    FrameBuffer,
)


def bad_frame(frames: FrameBuffer, kind: i64, is_running: bool) -> ConnectionException:
    """The error for the current frame of `frames`, which is of `kind`.

    `is_running`: the handshake of the connection is over.
    """
    size = frames.end - frames.start
    octets = octets_text(frames.data[frames.start : min(frames.end, frames.start + 16)])
    text = f"type {kind}, {'all' if size <= 16 else 'first 16'} octets = {octets}"
    is_known = (
        kind == FRAME_BODY
        or (kind == FRAME_HEADER and size >= 12)
        or (kind == FRAME_METHOD and size >= 4)
    )
    if (
        is_known
        or (kind == FRAME_HEARTBEAT and size == 0)
        or (frames.channel != 0 and not is_running)
    ):
        return ConnectionException(UNEXPECTED_FRAME, text)
    return ConnectionException(FRAME_ERROR, f"{text}: unknown_frame")
