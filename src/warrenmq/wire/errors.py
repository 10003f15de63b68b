"""Protocol errors and their reply codes.

An error that the peer must be told is one of two exceptions, by how much it costs the peer: `ChannelException` closes
the channel, `ConnectionException` the whole connection. Both carry the reply exactly as it goes onto the wire.

Invariant: `AmqpError.text` is always valid UTF-8 text of at most 255 bytes, whatever bytes the explanation quotes,
because it is sent as a shortstr.
"""

from typing import Final

REPLY_SUCCESS: Final = 200
CONTENT_TOO_LARGE: Final = 311
NO_ROUTE: Final = 312
NO_CONSUMERS: Final = 313
CONNECTION_FORCED: Final = 320
INVALID_PATH: Final = 402
ACCESS_REFUSED: Final = 403
NOT_FOUND: Final = 404
RESOURCE_LOCKED: Final = 405
PRECONDITION_FAILED: Final = 406
FRAME_ERROR: Final = 501
SYNTAX_ERROR: Final = 502
COMMAND_INVALID: Final = 503
CHANNEL_ERROR: Final = 504
UNEXPECTED_FRAME: Final = 505
RESOURCE_ERROR: Final = 506
NOT_ALLOWED: Final = 530
NOT_IMPLEMENTED: Final = 540
INTERNAL_ERROR: Final = 541

# Names in reply texts; clients and log searches match on them.
REPLY_NAMES: Final[dict[int, str]] = {
    CONTENT_TOO_LARGE: "CONTENT_TOO_LARGE",
    NO_ROUTE: "NO_ROUTE",
    NO_CONSUMERS: "NO_CONSUMERS",
    CONNECTION_FORCED: "CONNECTION_FORCED",
    INVALID_PATH: "INVALID_PATH",
    ACCESS_REFUSED: "ACCESS_REFUSED",
    NOT_FOUND: "NOT_FOUND",
    RESOURCE_LOCKED: "RESOURCE_LOCKED",
    PRECONDITION_FAILED: "PRECONDITION_FAILED",
    FRAME_ERROR: "FRAME_ERROR",
    SYNTAX_ERROR: "SYNTAX_ERROR",
    COMMAND_INVALID: "COMMAND_INVALID",
    CHANNEL_ERROR: "CHANNEL_ERROR",
    UNEXPECTED_FRAME: "UNEXPECTED_FRAME",
    RESOURCE_ERROR: "RESOURCE_ERROR",
    NOT_ALLOWED: "NOT_ALLOWED",
    NOT_IMPLEMENTED: "NOT_IMPLEMENTED",
    INTERNAL_ERROR: "INTERNAL_ERROR",
}

REPLY_TEXT_BYTES_MAX: Final = 255
# Octets quoted in a text: each takes at least two characters, so more could never be seen in 255 bytes.
QUOTED_OCTETS_MAX: Final = 128


def reply_text(code: int, explanation: str) -> str:
    """`NAME - explanation`, or `NAME` alone for an empty explanation, in at most 255 bytes of UTF-8.

    A longer text is cut to its first 252 bytes (never inside a character) and `...`.
    """
    name = REPLY_NAMES.get(code, str(code))
    text = name + " - " + explanation if explanation else name
    encoded = text.encode("utf-8", "replace")
    if len(encoded) > REPLY_TEXT_BYTES_MAX:
        encoded = encoded[: REPLY_TEXT_BYTES_MAX - 3]
        return encoded.decode("utf-8", "ignore") + "..."
    return encoded.decode("utf-8")


def octets_text(octets: bytes) -> str:
    """`octets` in the notation RabbitMQ quotes bytes in: `<<1,2,255>>`; only what a reply text can hold."""
    return "<<" + ",".join([str(octet) for octet in octets[:QUOTED_OCTETS_MAX]]) + ">>"


class AmqpError(Exception):
    """An error with its AMQP reply: code, whole reply text, and the method to blame (0, 0 for none)."""

    def __init__(self, code: int, explanation: str, class_id: int = 0, method_id: int = 0) -> None:
        self.code: int = code
        self.text: str = reply_text(code, explanation)
        self.class_id: int = class_id
        self.method_id: int = method_id
        super().__init__(code, self.text)


class ConnectionException(AmqpError):
    """Closes the connection."""


class ChannelException(AmqpError):
    """Closes the channel it was raised for, and nothing else."""


class MalformedBytes(Exception):
    """Bytes that are not what the specification says; inside `warrenmq.wire` only.

    The readers of single values do not know whose bytes they read, so whoever called them turns this into the reply
    its place asks for. `reason` is empty when the bytes end too early or too late.
    """

    def __init__(self, reason: str) -> None:
        self.reason: str = reason
        super().__init__(reason)
