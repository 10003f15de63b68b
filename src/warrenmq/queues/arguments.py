"""Arguments of queue.declare: known ones, their values, errors for bad ones (protocol 7.1).

Arguments that no queue type knows are stored and ignored, as RabbitMQ does. A queue that is
declared with the type quorum is a queue like any other, with a few differences (`QUORUM`).
"""

from typing import Final

from mypy_extensions import i64

from warrenmq.queues.settings import (
    DROP_HEAD,
    NO_LIMIT,
    REJECT_PUBLISH,
    REJECT_PUBLISH_DLX,
    DeadLetterRule,
    LengthLimit,
    QueueSettings,
    QueueTraits,
)
from warrenmq.wire.errors import PRECONDITION_FAILED, ChannelException
from warrenmq.wire.field_table import Field, decode_table, encode_table
from warrenmq.wire.field_types import TAG_BOOL, TAG_LONGSTR, type_name

CLASSIC: Final = "classic"
QUORUM: Final = "quorum"
OVERFLOW: Final[dict[str, int]] = {
    "drop-head": DROP_HEAD,
    "reject-publish": REJECT_PUBLISH,
    "reject-publish-dlx": REJECT_PUBLISH_DLX,
}
PRIORITY_MAX: Final = 255

# Ten years in ms; RabbitMQ refuses longer times.
TIME_MAX_MS: Final = 315360000000

# Arguments that must be equal when a queue is declared again, in RabbitMQ's order of checking.
EQUIVALENT_KEYS: Final = (
    "x-expires",
    "x-message-ttl",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-overflow",
    "x-queue-mode",
    "x-queue-version",
    "x-single-active-consumer",
    "x-queue-type",
    "x-queue-master-locator",
)
# Arguments that must be equal when a quorum queue is declared again.
QUORUM_EQUIVALENT_KEYS: Final = (
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-dead-letter-strategy",
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-in-memory-length",
    "x-max-in-memory-bytes",
    "x-overflow",
    "x-single-active-consumer",
    "x-queue-type",
    "x-quorum-initial-group-size",
    "x-delivery-limit",
    "x-message-ttl",
    "x-queue-leader-locator",
)
# Arguments of other types that a queue of a type refuses, by type.
_REFUSED: Final[dict[str, tuple[str, ...]]] = {
    CLASSIC: (
        "x-dead-letter-strategy",
        "x-delivery-limit",
        "x-initial-cluster-size",
        "x-max-age",
        "x-max-in-memory-bytes",
        "x-max-in-memory-length",
        "x-queue-leader-locator",
        "x-quorum-initial-group-size",
        "x-stream-max-segment-size-bytes",
    ),
    QUORUM: (
        "x-initial-cluster-size",
        "x-max-age",
        "x-max-priority",
        "x-queue-master-locator",
        "x-queue-mode",
        "x-queue-version",
        "x-stream-max-segment-size-bytes",
    ),
}
_INTEGER_TAGS: Final = b"bBsuIilL"


def queue_type(table: dict[str, Field], queue_text: str) -> str:
    """The type that the arguments ask for: CLASSIC or QUORUM; ChannelException 406 for others."""
    _check_choice(table, "x-queue-type", (CLASSIC, QUORUM), "queue type", queue_text)
    field = table.get("x-queue-type")
    return QUORUM if field is not None and field.value == b"quorum" else CLASSIC


def parse_arguments(raw: bytes, queue_text: str) -> QueueSettings:
    """The settings that the arguments of a new queue (`raw`: table body) ask for.

    `queue_text`: the queue in error texts, as `queue 'q' in vhost '/'`. Raises ChannelException 406
    for a bad or unsupported argument.
    """
    if not raw:
        return QueueSettings()
    table = decode_table(raw)
    type = queue_type(table, queue_text)
    refused = _REFUSED[type]
    for key in table:
        if key in refused:
            raise ChannelException(
                PRECONDITION_FAILED,
                f"invalid arg '{key}' for {queue_text} of queue type rabbit_{type}_queue",
            )
    expires_ms = _time_ms(table, "x-expires", queue_text, 1)
    message_ttl_ms = _time_ms(table, "x-message-ttl", queue_text, 0)
    dead_letters = _dead_letter_rule(table, queue_text)
    limit = _length_limit(table, queue_text)
    max_priority = _number(table, "x-max-priority", queue_text)
    if max_priority > PRIORITY_MAX:
        raise _invalid("x-max-priority", queue_text, f"{{max_value_exceeded,{max_priority}}}")
    _check_choice(table, "x-queue-mode", ("default", "lazy"), "queue mode", queue_text)
    mode = table.get("x-queue-mode")
    version = _number(table, "x-queue-version", queue_text)
    if version not in (NO_LIMIT, 1, 2):
        raise _invalid("x-queue-version", queue_text, f"\"unsupported queue version '{version}'\"")
    single = table.get("x-single-active-consumer")
    if single is not None and single.tag != TAG_BOOL:
        raise _unacceptable("x-single-active-consumer", queue_text, single)
    if type == QUORUM:
        _check_quorum_arguments(table, queue_text)
        if limit is not None and limit.overflow == REJECT_PUBLISH_DLX:
            # RabbitMQ's quorum queues do not know reject-publish-dlx and drop the head instead.
            limit = LengthLimit(limit.messages, limit.body_bytes, DROP_HEAD)
    return QueueSettings(
        message_ttl_ms,
        expires_ms,
        mode is not None and mode.value == b"lazy",
        limit,
        dead_letters,
        _delivery_limit(table),
        QueueTraits(max_priority, single is not None and single.value is True, type == QUORUM),
    )


def _check_quorum_arguments(table: dict[str, Field], queue_text: str) -> None:
    """Check the arguments that only quorum queues have, most of which have no effect here."""
    strategy = table.get("x-dead-letter-strategy")
    if strategy is not None:
        if strategy.tag != TAG_LONGSTR:
            raise _unacceptable("x-dead-letter-strategy", queue_text, strategy)
        if strategy.value not in (b"at-most-once", b"at-least-once"):
            raise _invalid("x-dead-letter-strategy", queue_text, "invalid_dlx_strategy")
    _number(table, "x-max-in-memory-length", queue_text)
    _number(table, "x-max-in-memory-bytes", queue_text)
    if _number(table, "x-quorum-initial-group-size", queue_text) == 0:
        raise _invalid("x-quorum-initial-group-size", queue_text, "{value_zero,0}")
    locator = table.get("x-queue-leader-locator")
    if locator is not None:
        if locator.tag != TAG_LONGSTR:
            raise _unacceptable("x-queue-leader-locator", queue_text, locator)
        if locator.value not in (b"client-local", b"balanced", b"random", b"least-leaders"):
            raise _invalid("x-queue-leader-locator", queue_text, "invalid_queue_locator_arg")


def _delivery_limit(table: dict[str, Field]) -> i64:
    """The delivery limit; as in RabbitMQ, any value is accepted, and one below 0 counts as 0."""
    field = table.get("x-delivery-limit")
    if field is None or field.tag not in _INTEGER_TAGS or not isinstance(field.value, int):
        return NO_LIMIT
    return max(0, min(field.value, 1 << 62))


def with_default_type(raw: bytes, type: str, is_plain: bool) -> bytes:
    """The arguments of a declaration (table body) with `type`, the vhost's default, if it has none.

    `is_plain`: the queue is durable, and neither exclusive nor deleted by itself; only such a queue
    becomes anything but a classic one.
    """
    if not type or b"x-queue-type" in raw or (type != CLASSIC and not is_plain):
        return raw
    table = decode_table(raw)
    table["x-queue-type"] = Field(TAG_LONGSTR, type.encode())
    return encode_table(table)


def check_quorum_properties(
    durable: bool, exclusive: bool, auto_delete: bool, queue_text: str
) -> None:
    """Raise ChannelException 406 for properties that no quorum queue has."""
    for is_wrong, name in (
        (auto_delete, "auto-delete"),
        (exclusive, "exclusive-owner"),
        (not durable, "non-durable"),
    ):
        if is_wrong:
            raise ChannelException(
                PRECONDITION_FAILED, f"invalid property '{name}' for {queue_text}"
            )


def _dead_letter_rule(table: dict[str, Field], queue_text: str) -> DeadLetterRule | None:
    exchange = table.get("x-dead-letter-exchange")
    key = table.get("x-dead-letter-routing-key")
    if key is not None:
        if key.tag != TAG_LONGSTR:
            raise _unacceptable("x-dead-letter-routing-key", queue_text, key)
        if exchange is None:
            raise _invalid(
                "x-dead-letter-routing-key", queue_text, "routing_key_but_no_dlx_defined"
            )
    if exchange is None:
        return None
    if exchange.tag != TAG_LONGSTR:
        raise _unacceptable("x-dead-letter-exchange", queue_text, exchange)
    name = exchange.value
    assert isinstance(name, bytes)
    routing_key = key.value if key is not None else None
    return DeadLetterRule(name, routing_key if isinstance(routing_key, bytes) else None)


def _length_limit(table: dict[str, Field], queue_text: str) -> LengthLimit | None:
    messages = _number(table, "x-max-length", queue_text)
    body_bytes = _number(table, "x-max-length-bytes", queue_text)
    overflow = table.get("x-overflow")
    if overflow is not None:
        if overflow.tag != TAG_LONGSTR:
            raise _unacceptable("x-overflow", queue_text, overflow)
        if declared_overflow(table) == NO_LIMIT:
            raise _invalid("x-overflow", queue_text, "invalid_overflow")
    if messages == NO_LIMIT and body_bytes == NO_LIMIT:
        return None
    return LengthLimit(messages, body_bytes, max(declared_overflow(table), DROP_HEAD))


def declared_overflow(table: dict[str, Field]) -> i64:
    """The overflow that the arguments name; NO_LIMIT if they name none."""
    field = table.get("x-overflow")
    if field is None or not isinstance(field.value, bytes):
        return NO_LIMIT
    overflow: int = OVERFLOW.get(field.value.decode("utf-8", "replace"), NO_LIMIT)
    return overflow


def expiration_ms(text: bytes) -> i64:
    """The expiration property in ms. Raises ChannelException 406 with RabbitMQ's reasons."""
    shown = text.decode("utf-8", "replace")
    digits = text[1:] if text[:1] in (b"-", b"+") else text
    length = 0
    while length < len(digits) and 0x30 <= digits[length] <= 0x39:
        length += 1
    if length == 0:
        raise _bad_expiration(shown, "no_integer")
    if length < len(digits):
        rest = digits[length:].decode("utf-8", "replace")
        raise _bad_expiration(shown, f'{{leftover_string,"{rest}"}}')
    if length > 18:
        raise _bad_expiration(shown, f"{{value_too_large,{shown}}}")
    value = int(text)
    if value < 0:
        raise _bad_expiration(shown, f"{{value_negative,{value}}}")
    if value > TIME_MAX_MS:
        raise _bad_expiration(shown, f"{{value_too_large,{value}}}")
    return value


def _bad_expiration(shown: str, reason: str) -> ChannelException:
    return ChannelException(PRECONDITION_FAILED, f"invalid expiration '{shown}': {reason}")


def _invalid(key: str, queue_text: str, reason: str) -> ChannelException:
    return ChannelException(PRECONDITION_FAILED, f"invalid arg '{key}' for {queue_text}: {reason}")


def _unacceptable(key: str, queue_text: str, field: Field) -> ChannelException:
    return _invalid(key, queue_text, f"{{unacceptable_type,{type_name(field.tag)}}}")


def _number(table: dict[str, Field], key: str, queue_text: str) -> int:
    """A number from 0 on; NO_LIMIT without the argument."""
    field = table.get(key)
    if field is None:
        return NO_LIMIT
    value = field.value
    if field.tag not in _INTEGER_TAGS or not isinstance(value, int):
        raise _invalid(key, queue_text, f'"expected integer, got {type_name(field.tag)}"')
    if value < 0:
        raise _invalid(key, queue_text, f"{{value_negative,{value}}}")
    # No queue can have more messages or bytes.
    return min(value, (1 << 62))


def _time_ms(table: dict[str, Field], key: str, queue_text: str, least: int) -> int:
    value = _number(table, key, queue_text)
    if value == NO_LIMIT:
        return NO_LIMIT
    if value < least:
        raise _invalid(key, queue_text, f"{{value_zero,{value}}}")
    if value > TIME_MAX_MS:
        raise _invalid(key, queue_text, f"{{value_too_large,{value}}}")
    return value


def _check_choice(
    table: dict[str, Field], key: str, choices: tuple[str, ...], what: str, queue_text: str
) -> None:
    field = table.get(key)
    if field is None:
        return
    if field.tag != TAG_LONGSTR or not isinstance(field.value, bytes):
        raise _unacceptable(key, queue_text, field)
    text = field.value.decode("utf-8", "replace")
    if text not in choices:
        raise _invalid(key, queue_text, f"\"unsupported {what} '{text}'\"")
