"""The properties of a published message that the broker needs, checked before it is routed.

After the check the properties travel as raw bytes. Most messages carry few properties, and only the
delivery mode of these concerns the broker: the scan passes over them without creating objects. A
block with headers (CC, BCC), reply-to, expiration or user-id is decoded, which is slower.
"""

from typing import Final

from librt.strings import read_i16_be
from mypy_extensions import i64

from warrenmq.queues.arguments import expiration_ms
from warrenmq.queues.settings import NO_LIMIT
from warrenmq.wire.errors import (
    INTERNAL_ERROR,
    PRECONDITION_FAILED,
    ChannelException,
    ConnectionException,
)
from warrenmq.wire.field_table import Field, decode_table, encode_table
from warrenmq.wire.field_types import TAG_ARRAY, TAG_LONGSTR, type_name
from warrenmq.wire.properties import (
    APP_ID,
    CLUSTER_ID,
    CONTENT_ENCODING,
    CONTENT_TYPE,
    CORRELATION_ID,
    DELIVERY_MODE,
    EXPIRATION,
    HEADERS,
    MESSAGE_ID,
    PRIORITY,
    REPLY_TO,
    TIMESTAMP,
    TYPE,
    USER_ID,
    decode_properties,
)

_MALFORMED: Final = -1


class PublishProperties:
    """A property block and the values that routing and storing need from it.

    `raw` is the block to store and to deliver.
    """

    def __init__(self, raw: bytes) -> None:
        # The block as the publisher sent it; differs from `raw` when BCC was removed.
        self.source: bytes = raw
        self.raw: bytes = raw
        self.persistent: bool = False
        self.expiration_ms: i64 = NO_LIMIT
        self.priority: i64 = 0
        self.reply_to: bytes = b""
        self.user_id: bytes | None = None
        # Body of the headers table, for headers exchanges.
        self.headers: bytes = b""
        # Routing keys of the headers CC and BCC.
        self.extra_routing_keys: list[bytes] = []
        # True if the block has no reply-to, user-id, CC and BCC: the broker has nothing to check or
        # add.
        self.is_plain: bool = True


def inspect_properties(raw: bytes) -> PublishProperties:
    """Check a property block and return its values.

    Raises ConnectionException 541 when it does not decode, ChannelException 406 for a bad delivery
    mode, expiration, CC or BCC.
    """
    properties = PublishProperties(raw)
    size: i64 = len(raw)
    if size < 2:
        raise ConnectionException(INTERNAL_ERROR, "")
    flags: i64 = i64(read_i16_be(raw, 0)) & 0xFFFF
    if flags & (HEADERS | REPLY_TO | EXPIRATION | USER_ID) != 0:
        _decode_all(properties)
        properties.is_plain = (
            not properties.reply_to
            and properties.user_id is None
            and not properties.extra_routing_keys
        )
        return properties
    mode: i64 = 0
    at = _skip_text(raw, 2, flags & CONTENT_TYPE)
    at = _skip_text(raw, at, flags & CONTENT_ENCODING)
    if flags & DELIVERY_MODE != 0 and at != _MALFORMED:
        if at >= size:
            raise ConnectionException(INTERNAL_ERROR, "")
        mode = i64(raw[at])
        at += 1
    if flags & PRIORITY != 0 and at != _MALFORMED:
        if at >= size:
            raise ConnectionException(INTERNAL_ERROR, "")
        properties.priority = i64(raw[at])
        at += 1
    at = _skip_text(raw, at, flags & CORRELATION_ID)
    at = _skip_text(raw, at, flags & MESSAGE_ID)
    if flags & TIMESTAMP != 0 and at != _MALFORMED:
        at += 8
    at = _skip_text(raw, at, flags & TYPE)
    at = _skip_text(raw, at, flags & APP_ID)
    at = _skip_text(raw, at, flags & CLUSTER_ID)
    if at != size:
        raise ConnectionException(INTERNAL_ERROR, "")
    if flags & DELIVERY_MODE != 0:
        _set_mode(properties, mode)
    return properties


def _skip_text(raw: bytes, at: i64, present: i64) -> i64:
    if present == 0 or at == _MALFORMED:
        return at
    if at >= len(raw):
        return _MALFORMED
    end = at + 1 + i64(raw[at])
    return end if end <= len(raw) else _MALFORMED


def _set_mode(properties: PublishProperties, mode: i64) -> None:
    if mode == 2:
        properties.persistent = True
    elif mode != 1:
        raise ChannelException(
            PRECONDITION_FAILED, f"invalid message: {{delivery_mode_unknown,{mode}}}"
        )


def _decode_all(properties: PublishProperties) -> None:
    decoded = decode_properties(properties.raw)
    expiration = decoded.expiration
    if expiration is not None:
        properties.expiration_ms = expiration_ms(expiration)
    if decoded.priority is not None:
        properties.priority = decoded.priority
    mode = decoded.delivery_mode
    if mode is not None:
        _set_mode(properties, mode)
    if decoded.reply_to is not None:
        properties.reply_to = decoded.reply_to
    properties.user_id = decoded.user_id
    headers = decoded.headers
    if headers is None:
        return
    properties.headers = headers
    table = decode_table(headers)
    if "CC" not in table and "BCC" not in table:
        return
    _add_keys(properties, table, "CC")
    _add_keys(properties, table, "BCC")
    if "BCC" in table:
        # BCC means blind copies: no receiver of the message may see these keys.
        del table["BCC"]
        decoded.headers = encode_table(table)
        properties.headers = decoded.headers
        properties.raw = decoded.encode()


def _add_keys(properties: PublishProperties, table: dict[str, Field], name: str) -> None:
    field = table.get(name)
    if field is None:
        return
    keys = field.value
    if field.tag != TAG_ARRAY or not isinstance(keys, list):
        reason = f'{{unacceptable_type_in_header,"{name}",{type_name(field.tag)}}}'
        raise ChannelException(PRECONDITION_FAILED, f"invalid message: {reason}")
    for key in keys:
        if isinstance(key, Field) and key.tag == TAG_LONGSTR and isinstance(key.value, bytes):
            properties.extra_routing_keys.append(key.value)


def check_user_id(properties: PublishProperties, user_name: bytes, is_impersonator: bool) -> None:
    """Raise ChannelException 406 if the user-id names another user than the one that publishes."""
    user_id = properties.user_id
    if user_id is not None and user_id != user_name and not is_impersonator:
        shown = user_id.decode("utf-8", "replace")
        raise ChannelException(
            PRECONDITION_FAILED,
            f"user_id property set to '{shown}' but authenticated user was '{user_name.decode()}'",
            60,
            40,
        )


def with_reply_to(raw: bytes, reply_to: bytes) -> bytes:
    """The property block `raw` with `reply_to` in place of its reply-to."""
    decoded = decode_properties(raw)
    decoded.reply_to = reply_to
    return decoded.encode()
