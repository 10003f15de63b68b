"""The properties of dead letters: the headers `x-death`, `x-first-death-*` and `x-delivery-count`.

`x-death` is an array of tables, one for each pair of a queue and a reason: how often the message
died there, and when and from which address first. The table of the latest death stands in front.
RabbitMQ reverses the order of the other tables at every death, and so does this module: clients
that read more than the first table find the same one in both brokers.

Properties and headers stay raw bytes: only the changed parts are written, because a queue may give
away a hundred thousand messages in a second.
"""

from typing import Final, final

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64, mypyc_attr

from warrenmq.broker.dead_letters.raw_table import (
    RawField,
    array_value,
    find,
    join_table,
    longstr_value,
    put,
    remove,
    sort_by_name,
    split_array,
    split_table,
    table_value,
)
from warrenmq.wire.field_types import (
    TAG_ARRAY,
    TAG_BYTE,
    TAG_LONG,
    TAG_LONGSTR,
    TAG_SHORT,
    TAG_SIGNED_INT,
    TAG_TABLE,
    TAG_TIMESTAMP,
    TAG_UNSIGNED_BYTE,
    TAG_UNSIGNED_INT,
    TAG_UNSIGNED_SHORT,
)
from warrenmq.wire.primitives import (
    need,
    read_longstr,
    read_short,
    read_shortstr,
    shortstr_end,
    signed64,
    write_longstr,
    write_octet,
    write_short,
)
from warrenmq.wire.properties import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    CORRELATION_ID,
    DELIVERY_MODE,
    EXPIRATION,
    HEADERS,
    PRIORITY,
    REPLY_TO,
)

REJECTED: Final = b"rejected"
EXPIRED: Final = b"expired"
MAXLEN: Final = b"maxlen"
DELIVERY_LIMIT: Final = b"delivery_limit"

# Bits 1 and 0 of the flag word name no property.
_PROPERTY_FLAGS: Final = 0xFFFC
_COUNT: Final = b"count"
_QUEUE: Final = b"queue"
_REASON: Final = b"reason"
_X_DEATH: Final = b"x-death"
_U64_MAX: Final = (1 << 64) - 1
# Dead letters that a `DeathHeaders` remembers.
_REMEMBERED: Final = 4


@final
@mypyc_attr(native_class=True, acyclic=True)
class _Remembered:
    """One result of `dead_letter_properties` with everything that it depends on."""

    def __init__(
        self,
        raw: bytes,
        exchange: bytes,
        routing_key: bytes,
        queue: bytes,
        reason: bytes,
        seconds: i64,
        keeps_cc: bool,
        result: bytes,
    ) -> None:
        self.raw: bytes = raw
        self.exchange: bytes = exchange
        self.routing_key: bytes = routing_key
        self.queue: bytes = queue
        self.reason: bytes = reason
        self.seconds: i64 = seconds
        self.keeps_cc: bool = keeps_cc
        self.result: bytes = result


class DeathHeaders:
    """`dead_letter_properties` with a memory of the last few results.

    Messages of one publisher often share address and properties, and thousands of them expire in
    the same second.
    """

    def __init__(self) -> None:
        self._remembered: list[_Remembered] = []
        self._next: i64 = 0

    def of(
        self,
        raw: bytes,
        exchange: bytes,
        routing_key: bytes,
        queue: bytes,
        reason: bytes,
        seconds: i64,
        keeps_cc: bool,
    ) -> bytes:
        """As `dead_letter_properties`."""
        for known in self._remembered:
            if (
                known.raw == raw
                and known.seconds == seconds
                and known.queue == queue
                and known.routing_key == routing_key
                and known.exchange == exchange
                and known.reason == reason
                and known.keeps_cc == keeps_cc
            ):
                return known.result
        result = dead_letter_properties(
            raw, exchange, routing_key, queue, reason, seconds, keeps_cc
        )
        latest = _Remembered(raw, exchange, routing_key, queue, reason, seconds, keeps_cc, result)
        if len(self._remembered) < _REMEMBERED:
            self._remembered.append(latest)
        else:
            self._remembered[self._next] = latest
            self._next = (self._next + 1) % _REMEMBERED
        return result


def dead_letter_properties(
    raw: bytes,
    exchange: bytes,
    routing_key: bytes,
    queue: bytes,
    reason: bytes,
    seconds: i64,
    keeps_cc: bool,
) -> bytes:
    """The property block of the dead letter of a message with the block `raw`.

    The message was published to `exchange` with `routing_key`, and left `queue` for `reason` (one
    of REJECTED, EXPIRED, MAXLEN, DELIVERY_LIMIT), `seconds` after 1970. `keeps_cc` is False when
    the queue has a dead-letter routing key: the header CC is then removed. Raises MalformedBytes
    for a block that does not decode.
    """
    parts = _PropertyParts(raw)
    headers = split_table(parts.headers)
    fields: list[RawField] = [
        (_REASON, longstr_value(reason)),
        (_QUEUE, longstr_value(queue)),
        (b"time", _number_value(TAG_TIMESTAMP, seconds)),
        (b"exchange", longstr_value(exchange)),
        (b"routing-keys", _routing_keys(routing_key, headers)),
    ]
    if parts.has_expiration:
        fields.append((b"original-expiration", longstr_value(parts.expiration)))
    old = find(headers, _X_DEATH)
    if old and i64(old[0]) == TAG_ARRAY:
        put(headers, _X_DEATH, _with_another_death(split_array(old), fields))
    else:
        if not old:
            put(headers, b"x-first-death-reason", longstr_value(reason))
            put(headers, b"x-first-death-queue", longstr_value(queue))
            put(headers, b"x-first-death-exchange", longstr_value(exchange))
        put(headers, _X_DEATH, array_value([table_value(_counted(fields, 1))]))
    sort_by_name(headers)
    if not keeps_cc:
        remove(headers, b"CC")
    return parts.joined(join_table(headers), False)


def cycling_queues(raw: bytes, reason: bytes, names: list[bytes]) -> list[bytes]:
    """Those of the queues `names` that must not get the dead letter with the property block `raw`.

    A queue would see the message again without end when the message died there before and no
    consumer has rejected it since. `reason` and the block are those of the dead letter, which has
    its latest death in x-death.
    """
    if reason == REJECTED:
        return []
    deaths = _deaths(_PropertyParts(raw).headers)
    return [name for name in names if _is_cycle(name, deaths)]


def with_delivery_count(raw: bytes, count: i64) -> bytes:
    """The block `raw` with the header x-delivery-count, as quorum queues deliver it.

    Raises MalformedBytes for a block that does not decode.
    """
    parts = _PropertyParts(raw)
    headers = split_table(parts.headers)
    put(headers, b"x-delivery-count", _number_value(TAG_LONG, count))
    sort_by_name(headers)
    return parts.joined(join_table(headers), True)


@final
@mypyc_attr(native_class=True, acyclic=True)
class _PropertyParts:
    """A property block cut at its headers and its expiration; the other properties stay raw."""

    def __init__(self, raw: bytes) -> None:
        end: i64 = len(raw)
        self._flags: i64 = read_short(raw, 0, end) & _PROPERTY_FLAGS
        at: i64 = 2
        at = self._text_end(raw, at, CONTENT_TYPE)
        at = self._text_end(raw, at, CONTENT_ENCODING)
        self._before_headers: bytes = raw[2:at]
        # Body of the headers table; b"" when the block has none.
        self.headers: bytes = b""
        if self._flags & HEADERS != 0:
            self.headers, at = read_longstr(raw, at, end)
        start = at
        if self._flags & DELIVERY_MODE != 0:
            at += 1
        if self._flags & PRIORITY != 0:
            at += 1
        need(at, end, 0)
        at = self._text_end(raw, at, CORRELATION_ID)
        at = self._text_end(raw, at, REPLY_TO)
        self._between: bytes = raw[start:at]
        self.has_expiration: bool = self._flags & EXPIRATION != 0
        self.expiration: bytes = b""
        if self.has_expiration:
            self.expiration, at = read_shortstr(raw, at, end)
        self._behind: bytes = raw[at:]

    def joined(self, headers: bytes, keeps_expiration: bool) -> bytes:
        """The block with this body of its headers table, and with or without its expiration."""
        flags = self._flags | HEADERS
        if not keeps_expiration:
            flags &= ~EXPIRATION
        out = BytesWriter()
        write_short(out, flags)
        out.write(self._before_headers)
        write_longstr(out, headers)
        out.write(self._between)
        if keeps_expiration and self.has_expiration:
            out.append(len(self.expiration))
            out.write(self.expiration)
        out.write(self._behind)
        return out.getvalue()

    def _text_end(self, raw: bytes, at: i64, flag: i64) -> i64:
        return shortstr_end(raw, at, len(raw)) if self._flags & flag != 0 else at


def _number_value(tag: i64, number: i64) -> bytes:
    out = BytesWriter()
    write_octet(out, tag)
    write_i64_be(out, number)
    return out.getvalue()


def _counted(fields: list[RawField], count: i64) -> list[RawField]:
    return [(_COUNT, _number_value(TAG_LONG, count)), *fields]


def _routing_keys(routing_key: bytes, headers: list[RawField]) -> bytes:
    """The routing key of the publish and the keys in CC, as an array."""
    keys = [longstr_value(routing_key)]
    copies = find(headers, b"CC")
    if copies and i64(copies[0]) == TAG_ARRAY:
        keys += [key for key in split_array(copies) if i64(key[0]) == TAG_LONGSTR]
    return array_value(keys)


def _with_another_death(old: list[bytes], fields: list[RawField]) -> bytes:
    """The value of x-death after the death described by `fields`; `old` are the items so far."""
    deaths = [_Death(item) for item in old]
    if len(deaths) > 1:
        deaths = _grouped(deaths)
    pair = _queue_and_reason(fields)
    latest = _counted(fields, 1)
    others: list[bytes] = []
    for death in deaths:
        if death.is_table and death.queue_and_reason == pair:
            latest = death.fields
            _set_count(latest, _count(latest) + 1)
        else:
            others.append(death.value())
    sort_by_name(latest)
    return array_value([table_value(latest), *others])


@final
@mypyc_attr(native_class=True, acyclic=True)
class _Death:
    """One item of x-death. A client may have written it, so it may even be no table."""

    def __init__(self, item: bytes) -> None:
        self._item: bytes = item
        self.is_table: bool = i64(item[0]) == TAG_TABLE
        self.fields: list[RawField] = split_table(item[5:]) if self.is_table else []
        self.queue_and_reason: tuple[bytes, bytes] = _queue_and_reason(self.fields)

    def value(self) -> bytes:
        """The item, with its fields as they are now."""
        return table_value(self.fields) if self.is_table else self._item


def _grouped(deaths: list[_Death]) -> list[_Death]:
    """The first table of each queue and reason, in reverse order, and items that are no tables.

    A table without a count gets the number of tables that it stands for: brokers before RabbitMQ
    3.5 wrote one table for each death.
    """
    numbers: dict[tuple[bytes, bytes], int] = {}
    kept: list[_Death] = []
    for death in deaths:
        if not death.is_table:
            kept.append(death)
            continue
        pair = death.queue_and_reason
        if pair not in numbers:
            numbers[pair] = 0
            kept.append(death)
        numbers[pair] += 1
    for death in kept:
        if death.is_table and not find(death.fields, _COUNT):
            death.fields = _counted(death.fields, numbers[death.queue_and_reason])
    kept.reverse()
    return kept


def _queue_and_reason(fields: list[RawField]) -> tuple[bytes, bytes]:
    return find(fields, _QUEUE), find(fields, _REASON)


def _count(fields: list[RawField]) -> int:
    """The count of a table of x-death; 0 when it has none that is a number."""
    value = find(fields, _COUNT)
    if not value:
        return 0
    tag = i64(value[0])
    if tag in (TAG_BYTE, TAG_SHORT, TAG_SIGNED_INT, TAG_LONG):
        return int.from_bytes(value[1:], "big", signed=True)
    if tag in (TAG_UNSIGNED_BYTE, TAG_UNSIGNED_SHORT, TAG_UNSIGNED_INT):
        return int.from_bytes(value[1:], "big")
    return 0


def _set_count(fields: list[RawField], count: int) -> None:
    # A count beyond 64 bits wraps, as in RabbitMQ.
    put(fields, _COUNT, _number_value(TAG_LONG, signed64(count & _U64_MAX)))


def _deaths(headers: bytes) -> list[_Death]:
    """The items of x-death in this headers table; none if it is no array."""
    value = find(split_table(headers), _X_DEATH)
    if not value or i64(value[0]) != TAG_ARRAY:
        return []
    return [_Death(item) for item in split_array(value)]


def _is_cycle(queue: bytes, deaths: list[_Death]) -> bool:
    """True if the message died in `queue`, and since then nobody rejected it."""
    name = longstr_value(queue)
    rejected = longstr_value(REJECTED)
    for death in deaths:
        if not death.is_table or death.queue_and_reason[1] == rejected:
            return False
        if death.queue_and_reason[0] == name:
            return True
    return False
