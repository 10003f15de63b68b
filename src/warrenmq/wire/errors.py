"""Protocol errors and their reply codes.

There are two exceptions for errors that are sent to the peer: `ChannelException` closes the
channel, `ConnectionException` the whole connection. Both carry the reply exactly as it is sent.

Invariant: `AmqpError.text` is always valid UTF-8 text of at most 255 bytes, whatever bytes the
explanation quotes, because it is sent as a shortstr.
"""

from typing import Final

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

# Names of reply codes in reply texts; clients and log searches match them.
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
# Octets that a text quotes at most: each takes at least two characters, so 255 bytes have no room
# for more.
QUOTED_OCTETS_MAX: Final = 128


def reply_text(code: int, explanation: str) -> str:
    """The text `NAME - explanation`, or only `NAME` without one, in at most 255 bytes of UTF-8.

    A longer text is cut to its first 252 bytes (never inside a character) and `...` is added.
    """
    name = REPLY_NAMES.get(code, str(code))
    text = name + " - " + explanation if explanation else name
    encoded = text.encode("utf-8", "replace")
    if len(encoded) > REPLY_TEXT_BYTES_MAX:
        encoded = encoded[: REPLY_TEXT_BYTES_MAX - 3]
        return encoded.decode("utf-8", "ignore") + "..."
    return encoded.decode("utf-8")


def octets_text(octets: bytes) -> str:
    """`octets` in RabbitMQ's notation `<<1,2,255>>`, cut after QUOTED_OCTETS_MAX of them."""
    return "<<" + ",".join([str(octet) for octet in octets[:QUOTED_OCTETS_MAX]]) + ">>"


class AmqpError(Exception):
    """An error with its AMQP reply: code, reply text, and the method to blame (0, 0 for none)."""

    def __init__(self, code: int, explanation: str, class_id: int = 0, method_id: int = 0) -> None:
        self.code: int = code
        self.text: str = reply_text(code, explanation)
        self.class_id: int = class_id
        self.method_id: int = method_id
        super().__init__(code, self.text)


class ConnectionException(AmqpError):
    """An error that closes the connection."""


class ChannelException(AmqpError):
    """An error that closes only the channel for which it was raised."""


class MalformedBytes(Exception):
    """Bytes that violate the specification; used inside `warrenmq.wire` only.

    The readers of single values do not know where their bytes come from, so the caller turns this
    error into the right reply. `reason` is empty when the bytes end too early or too late.
    """

    def __init__(self, reason: str) -> None:
        self.reason: str = reason
        super().__init__(reason)
