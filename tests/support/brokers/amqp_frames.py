"""Frames and methods as bytes, links that carry them, and reply texts, for `amqp_peer`.

`warrenmq.wire` encodes methods and tables, and has its own tests against pika's encoder. This
module puts frames together.
"""

import contextlib
import socket
import struct
from dataclasses import dataclass
from typing import Protocol

from librt.strings import BytesWriter

from tests.support.awaiting import PATIENCE_S
from warrenmq.wire.field_table import encode_table, fields_from_python
from warrenmq.wire.method import Method
from warrenmq.wire.properties import NO_PROPERTIES, Properties

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = 0xCE
PERSISTENT = Properties(delivery_mode=2).encode()

NAMES = {
    320: "CONNECTION_FORCED", 403: "ACCESS_REFUSED", 404: "NOT_FOUND", 405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED", 501: "FRAME_ERROR", 502: "SYNTAX_ERROR", 503: "COMMAND_INVALID",
    504: "CHANNEL_ERROR", 505: "UNEXPECTED_FRAME", 506: "RESOURCE_ERROR", 530: "NOT_ALLOWED",
    540: "NOT_IMPLEMENTED", 541: "INTERNAL_ERROR",
}  # fmt: skip

LOCKED = (
    "cannot obtain exclusive access to locked queue '{}' in vhost '/'. It could be originally declared on another "
    "connection or the exclusive property value does not match that of the original declaration."
)


class Link(Protocol):
    """The client's end of a byte stream; a test waits `patience_s` for bytes before it fails."""

    patience_s: float

    def send(self, data: bytes, /) -> None: ...
    def receive(self, timeout_s: float, /) -> bytes | None: ...
    def close(self) -> None: ...


class SocketLink:
    """A link over TCP."""

    def __init__(self, host: str, port: int) -> None:
        self.patience_s = PATIENCE_S
        self.socket = socket.create_connection((host, port), PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        # A read shows later that the broker has closed the socket.
        with contextlib.suppress(ConnectionError):
            self.socket.settimeout(self.patience_s)
            self.socket.sendall(data)

    def receive(self, timeout_s: float) -> bytes | None:
        self.socket.settimeout(timeout_s)
        try:
            return self.socket.recv(262144)
        except TimeoutError:
            return None
        except ConnectionError:
            return b""

    def close(self) -> None:
        self.socket.close()


@dataclass(frozen=True)
class Frame:
    """One frame as it came."""

    kind: int
    channel: int
    payload: bytes


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """Encode a frame."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def payload_of(method: Method) -> bytes:
    """The payload of a method frame."""
    out = BytesWriter()
    method.write_arguments(out)
    return struct.pack(">I", method.id) + out.getvalue()


def method_frame(channel: int, method: Method) -> bytes:
    """Encode a method frame."""
    return frame(METHOD, channel, payload_of(method))


def header_frame(channel: int, size: int, properties: bytes = NO_PROPERTIES) -> bytes:
    """Encode a content header frame of class basic."""
    return frame(HEADER, channel, struct.pack(">HHQ", 60, 0, size) + properties)


def table(**values: object) -> bytes:
    """The body of a field table; `__` in a name becomes a dash (`x__expires=1`)."""
    return encode_table(
        fields_from_python({name.replace("__", "-"): value for name, value in values.items()})
    )


def full_text(code: int, text: str) -> str:
    """The reply text as the broker sends it: with the name of the code."""
    whole = f"{NAMES[code]} - {text}" if text else NAMES[code]
    return (
        whole
        if len(whole.encode()) <= 255
        else whole.encode()[:252].decode("utf-8", "ignore") + "..."
    )
