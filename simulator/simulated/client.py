"""A client of the simulated node: real AMQP bytes over a connection called as a function.

The client is as small as possible, since a history makes dozens of connections. It sends the whole
handshake at once, relies on the broker for correct framing, and passes every method to its
receiver. The receiver (`simulator/sessions/clients.py`) decides what a method means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be

from simulator.models.messages import Violation
from warrenmq.broker.broker import Broker
from warrenmq.broker.connection.connection import Connection
from warrenmq.wire.field_table import encode_table, fields_from_python
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    BASIC_DELIVER,
    BASIC_GET_OK,
    BASIC_RETURN,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    ConnectionUnblocked,
    decode_method,
)

_METHOD: Final = 1
_HEADER: Final = 2
_BODY: Final = 3
_FRAME_MAX: Final = 131072
# A frame has 8 bytes around its payload.
_PIECE_BYTES: Final = _FRAME_MAX - 8
_WITH_CONTENT: Final = (BASIC_DELIVER, BASIC_RETURN, BASIC_GET_OK)


def method_frame(channel: int, method: Method) -> bytes:
    """`method` as one method frame on `channel`."""
    out = BytesWriter()
    method.write_arguments(out)
    arguments = out.getvalue()
    return (
        b"\x01"
        + channel.to_bytes(2, "big")
        + (len(arguments) + 4).to_bytes(4, "big")
        + int(method.id).to_bytes(4, "big")
        + arguments
        + b"\xce"
    )


def content_frames(channel: int, properties: bytes, body: bytes) -> bytes:
    """The content header frame and the body frames of one message."""
    number = channel.to_bytes(2, "big")
    header = b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + properties
    frames = b"\x02" + number + len(header).to_bytes(4, "big") + header + b"\xce"
    for start in range(0, len(body), _PIECE_BYTES):
        piece = body[start : start + _PIECE_BYTES]
        frames += b"\x03" + number + len(piece).to_bytes(4, "big") + piece + b"\xce"
    return frames


def handshake(*capabilities: str) -> bytes:
    """All frames of the handshake of a client with these capabilities."""
    table: dict[str, object] = {"capabilities": dict.fromkeys(capabilities, True)}
    properties = encode_table(fields_from_python(table))
    return (
        method_frame(0, ConnectionStartOk(properties, b"PLAIN", b"\0guest\0guest", b"en_US"))
        + method_frame(0, ConnectionTuneOk(2047, _FRAME_MAX, 0))
        + method_frame(0, ConnectionOpen(b"/"))
    )


_HANDSHAKE: Final = handshake("connection.blocked")

# (channel number, method, properties, body); a method without content has empty properties and
# body.
Receiver = Callable[[int, Method, bytes, bytes], None]


class SimulatedClient:
    """One connection; `receiver` gets methods of its channels, and connection.close.

    `shake` is what `handshake` has made.
    """

    def __init__(
        self, broker: Broker, receiver: Receiver, now_ms: int, shake: bytes = _HANDSHAKE
    ) -> None:
        self.engine: Connection = broker.connect("simulated", True, now_ms)
        self.engine.shell = self
        self._receiver = receiver
        # The broker has closed or aborted the connection.
        self.is_lost = False
        # The broker has sent connection.blocked, and no connection.unblocked since.
        self.is_told_blocked = False
        self._method: Method | None = None
        self._channel = 0
        self._properties = b""
        self._missing = -1
        self._body = b""
        self.engine.receive(shake, now_ms)

    def open_channel(self, number: int, now_ms: int) -> None:
        """Send channel.open, and do not wait for the answer."""
        self.engine.receive(method_frame(number, ChannelOpen()), now_ms)

    def send(self, data: bytes, now_ms: int) -> None:
        """Send bytes, which may end in the middle of a frame."""
        self.engine.receive(data, now_ms)

    def take(self, data: bytes) -> None:
        """Handle the whole frames that the broker wrote in a turn."""
        at = 0
        while at < len(data):
            kind = data[at]
            channel = (data[at + 1] << 8) | data[at + 2]
            size: int = read_i32_be(data, at + 3)
            start = at + 7
            end = start + size
            at = end + 1
            if kind == _METHOD:
                self._on_method(channel, decode_method(data, start, end))
            elif kind == _HEADER:
                self._missing = read_i64_be(data, start + 4)
                self._properties = data[start + 12 : end]
                self._body = b""
            elif kind == _BODY:
                self._body += data[start:end]
                self._missing -= size
            if self._method is not None and self._missing == 0:
                method, self._method = self._method, None
                self._missing = -1
                self._receiver(self._channel, method, self._properties, self._body)

    def _on_method(self, channel: int, method: Method) -> None:
        if method.id in _WITH_CONTENT:
            self._method = method
            self._channel = channel
            self._missing = -1
        elif channel == 0:
            if isinstance(method, ConnectionClose | ConnectionCloseOk):
                self._receiver(0, method, b"", b"")
            elif isinstance(method, ConnectionBlocked | ConnectionUnblocked):
                is_blocked = isinstance(method, ConnectionBlocked)
                if is_blocked == self.is_told_blocked:
                    raise Violation("alarm", f"a client was told twice: {type(method).__name__}")
                self.is_told_blocked = is_blocked
        elif not isinstance(method, ChannelOpenOk):
            self._receiver(channel, method, b"", b"")
