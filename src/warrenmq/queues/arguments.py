"""Arguments of queue.declare: known ones, their values, errors for bad ones (protocol 7.1).

An argument that classic queues have but that this version does not act on yet is refused, never
ignored: a client that asks for a length limit and silently gets none loses data later. Arguments
that no queue type knows are stored and ignored, as RabbitMQ does.
"""

from typing import Final

from mypy_extensions import i64

from warrenmq.queues.settings import NO_LIMIT, QueueSettings
from warrenmq.wire.errors import PRECONDITION_FAILED, ChannelException
from warrenmq.wire.field_table import Field, decode_table
from warrenmq.wire.field_types import TAG_LONGSTR, type_name

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
    "x-single-active-consumer",
    "x-max-priority",
    "x-overflow",
    "x-queue-mode",
    "x-queue-type",
    "x-queue-version",
    "x-queue-master-locator",
)
# Arguments of classic queues that this version refuses.
_NOT_YET: Final = (
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-overflow",
    "x-single-active-consumer",
)
# Arguments of other queue types.
_OTHER_TYPES: Final = (
    "x-dead-letter-strategy",
    "x-delivery-limit",
    "x-initial-cluster-size",
    "x-max-age",
    "x-max-in-memory-bytes",
    "x-max-in-memory-length",
    "x-queue-leader-locator",
    "x-quorum-initial-group-size",
    "x-stream-max-segment-size-bytes",
)
_INTEGER_TAGS: Final = b"bBsuIilL"


def parse_arguments(raw: bytes, queue_text: str) -> QueueSettings:
    """The settings that the arguments of a new queue (`raw`: table body) ask for.

    `queue_text`: the queue in error texts, as `queue 'q' in vhost '/'`. Raises ChannelException 406
    for a bad or unsupported argument.
    """
    if not raw:
        return QueueSettings()
    table = decode_table(raw)
    for key in table:
        if key in _OTHER_TYPES:
            raise ChannelException(
                PRECONDITION_FAILED,
                f"invalid arg '{key}' for {queue_text} of queue type rabbit_classic_queue",
            )
        if key in _NOT_YET:
            raise _invalid(key, queue_text, '"not supported yet"')
    _check_choice(table, "x-queue-type", ("classic",), "queue type", queue_text)
    _check_choice(table, "x-queue-mode", ("default", "lazy"), "queue mode", queue_text)
    mode = table.get("x-queue-mode")
    version = _integer(table, "x-queue-version", queue_text, 0)
    if version not in (NO_LIMIT, 1, 2):
        raise _invalid("x-queue-version", queue_text, f"\"unsupported queue version '{version}'\"")
    expires_ms = _integer(table, "x-expires", queue_text, 1)
    message_ttl_ms = _integer(table, "x-message-ttl", queue_text, 0)
    return QueueSettings(message_ttl_ms, expires_ms, mode is not None and mode.value == b"lazy")


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


def _integer(table: dict[str, Field], key: str, queue_text: str, least: int) -> int:
    field = table.get(key)
    if field is None:
        return NO_LIMIT
    value = field.value
    if field.tag not in _INTEGER_TAGS or not isinstance(value, int):
        raise _invalid(key, queue_text, f'"expected integer, got {type_name(field.tag)}"')
    if value < 0:
        raise _invalid(key, queue_text, f"{{value_negative,{value}}}")
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
        raise _invalid(key, queue_text, f"{{unacceptable_type,{type_name(field.tag)}}}")
    text = field.value.decode("utf-8", "replace")
    if text not in choices:
        raise _invalid(key, queue_text, f"\"unsupported {what} '{text}'\"")
