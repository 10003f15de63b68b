"""The properties of a message (class basic): a flag word, then the present ones in a fixed order.

The broker keeps the block as the raw bytes that arrived, from the flag word on, and passes it on
unchanged. This module has the full decoder, and two scans for the hot path that read only the bytes
before the property they want. No property continues in a second flag word: bits 1 and 0 are ignored
when read and written as 0.
"""

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr

from warrenmq.wire import primitives
from warrenmq.wire.errors import INTERNAL_ERROR, ConnectionException, MalformedBytes
from warrenmq.wire.field_types import check_table

# Bits of the flag word: each says that a property is present. Values follow in this order.
CONTENT_TYPE: Final = 1 << 15
CONTENT_ENCODING: Final = 1 << 14
HEADERS: Final = 1 << 13
DELIVERY_MODE: Final = 1 << 12
PRIORITY: Final = 1 << 11
CORRELATION_ID: Final = 1 << 10
REPLY_TO: Final = 1 << 9
EXPIRATION: Final = 1 << 8
MESSAGE_ID: Final = 1 << 7
TIMESTAMP: Final = 1 << 6
TYPE: Final = 1 << 5
USER_ID: Final = 1 << 4
APP_ID: Final = 1 << 3
CLUSTER_ID: Final = 1 << 2

DELIVERY_MODE_PERSISTENT: Final = 2

NO_PROPERTIES: Final = b"\x00\x00"


@final
@mypyc_attr(native_class=True, acyclic=True)
class Properties:
    """All 14 properties of a message; None means absent.

    `headers` is the raw body of its table, `timestamp` is unsigned seconds.
    """

    def __init__(
        self,
        content_type: bytes | None = None,
        content_encoding: bytes | None = None,
        headers: bytes | None = None,
        delivery_mode: int | None = None,
        priority: int | None = None,
        correlation_id: bytes | None = None,
        reply_to: bytes | None = None,
        expiration: bytes | None = None,
        message_id: bytes | None = None,
        timestamp: int | None = None,
        type: bytes | None = None,
        user_id: bytes | None = None,
        app_id: bytes | None = None,
        cluster_id: bytes | None = None,
    ) -> None:
        self.content_type: bytes | None = content_type
        self.content_encoding: bytes | None = content_encoding
        self.headers: bytes | None = headers
        self.delivery_mode: int | None = delivery_mode
        self.priority: int | None = priority
        self.correlation_id: bytes | None = correlation_id
        self.reply_to: bytes | None = reply_to
        self.expiration: bytes | None = expiration
        self.message_id: bytes | None = message_id
        self.timestamp: int | None = timestamp
        self.type: bytes | None = type
        self.user_id: bytes | None = user_id
        self.app_id: bytes | None = app_id
        self.cluster_id: bytes | None = cluster_id

    def encode(self) -> bytes:
        """The property block from the flag word on.

        Raises ValueError for a shortstr over 255 bytes or a number out of range.
        """
        out = BytesWriter()
        flags: i64 = 0
        flags |= _write_text(out, self.content_type, CONTENT_TYPE)
        flags |= _write_text(out, self.content_encoding, CONTENT_ENCODING)
        headers = self.headers
        if headers is not None:
            primitives.write_longstr(out, headers)
            flags |= HEADERS
        flags |= _write_number(out, self.delivery_mode, DELIVERY_MODE)
        flags |= _write_number(out, self.priority, PRIORITY)
        flags |= _write_text(out, self.correlation_id, CORRELATION_ID)
        flags |= _write_text(out, self.reply_to, REPLY_TO)
        flags |= _write_text(out, self.expiration, EXPIRATION)
        flags |= _write_text(out, self.message_id, MESSAGE_ID)
        timestamp = self.timestamp
        if timestamp is not None:
            primitives.write_longlong(out, primitives.signed64(timestamp))
            flags |= TIMESTAMP
        flags |= _write_text(out, self.type, TYPE)
        flags |= _write_text(out, self.user_id, USER_ID)
        flags |= _write_text(out, self.app_id, APP_ID)
        flags |= _write_text(out, self.cluster_id, CLUSTER_ID)
        head = BytesWriter()
        primitives.write_short(head, flags)
        return head.getvalue() + out.getvalue()


def decode_properties(raw: bytes) -> Properties:
    """The properties in the block `raw`.

    Raises ConnectionException 541 if the block, or its headers table, does not decode.
    """
    try:
        return _decode(raw)
    except MalformedBytes:
        raise ConnectionException(INTERNAL_ERROR, "") from None


def delivery_mode(raw: bytes) -> i64:
    """The delivery mode in the block `raw`: 2 means persistent, 0 absent, -1 malformed.

    Bytes behind the delivery mode are not checked.
    """
    try:
        flags = primitives.read_short(raw, 0, len(raw))
        if flags & DELIVERY_MODE == 0:
            return 0
        at = _headers_start(raw, flags)
        if flags & HEADERS != 0:
            at = primitives.longstr_end(raw, at, len(raw))
        return primitives.read_octet(raw, at, len(raw))
    except MalformedBytes:
        return -1


def _headers_start(raw: bytes, flags: i64) -> i64:
    """The position behind content-type and content-encoding."""
    at: i64 = 2
    if flags & CONTENT_TYPE != 0:
        at = primitives.shortstr_end(raw, at, len(raw))
    if flags & CONTENT_ENCODING != 0:
        at = primitives.shortstr_end(raw, at, len(raw))
    return at


def _decode(raw: bytes) -> Properties:
    end: i64 = len(raw)
    flags = primitives.read_short(raw, 0, end)
    at: i64 = 2
    properties = Properties()
    properties.content_type, at = _read_text(raw, at, end, flags & CONTENT_TYPE)
    properties.content_encoding, at = _read_text(raw, at, end, flags & CONTENT_ENCODING)
    if flags & HEADERS != 0:
        stop = primitives.longstr_end(raw, at, end)
        check_table(raw, at + 4, stop)
        properties.headers = raw[at + 4 : stop]
        at = stop
    if flags & DELIVERY_MODE != 0:
        properties.delivery_mode = primitives.read_octet(raw, at, end)
        at += 1
    if flags & PRIORITY != 0:
        properties.priority = primitives.read_octet(raw, at, end)
        at += 1
    properties.correlation_id, at = _read_text(raw, at, end, flags & CORRELATION_ID)
    properties.reply_to, at = _read_text(raw, at, end, flags & REPLY_TO)
    properties.expiration, at = _read_text(raw, at, end, flags & EXPIRATION)
    properties.message_id, at = _read_text(raw, at, end, flags & MESSAGE_ID)
    if flags & TIMESTAMP != 0:
        properties.timestamp = primitives.unsigned64(primitives.read_longlong(raw, at, end))
        at += 8
    properties.type, at = _read_text(raw, at, end, flags & TYPE)
    properties.user_id, at = _read_text(raw, at, end, flags & USER_ID)
    properties.app_id, at = _read_text(raw, at, end, flags & APP_ID)
    properties.cluster_id, at = _read_text(raw, at, end, flags & CLUSTER_ID)
    if at != end:
        raise MalformedBytes("")
    return properties


def _read_text(raw: bytes, at: i64, end: i64, present: i64) -> tuple[bytes | None, i64]:
    if present == 0:
        return None, at
    return primitives.read_shortstr(raw, at, end)


def _write_text(out: BytesWriter, value: bytes | None, flag: i64) -> i64:
    """Append `value` if it is not None; returns `flag` then, else 0."""
    if value is None:
        return 0
    primitives.write_shortstr(out, value)
    return flag


def _write_number(out: BytesWriter, value: int | None, flag: i64) -> i64:
    if value is None:
        return 0
    primitives.write_octet(out, value)
    return flag
