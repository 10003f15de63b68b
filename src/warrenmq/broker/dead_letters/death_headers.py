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

from warrenmq.broker.dead_letters import raw_table
from warrenmq.wire import field_types, primitives, properties

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
        """Return `dead_letter_properties`, remembered if the last dead letters were alike."""
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
    headers = raw_table.split_table(parts.headers)
    fields: list[raw_table.RawField] = [
        (_REASON, raw_table.longstr_value(reason)),
        (_QUEUE, raw_table.longstr_value(queue)),
        (b"time", _number_value(field_types.TAG_TIMESTAMP, seconds)),
        (b"exchange", raw_table.longstr_value(exchange)),
        (b"routing-keys", _routing_keys(routing_key, headers)),
    ]
    if parts.has_expiration:
        fields.append((b"original-expiration", raw_table.longstr_value(parts.expiration)))
    old = raw_table.find(headers, _X_DEATH)
    if old and i64(old[0]) == field_types.TAG_ARRAY:
        raw_table.put(headers, _X_DEATH, _with_another_death(raw_table.split_array(old), fields))
    else:
        if not old:
            raw_table.put(headers, b"x-first-death-reason", raw_table.longstr_value(reason))
            raw_table.put(headers, b"x-first-death-queue", raw_table.longstr_value(queue))
            raw_table.put(headers, b"x-first-death-exchange", raw_table.longstr_value(exchange))
        raw_table.put(
            headers, _X_DEATH, raw_table.array_value([raw_table.table_value(_counted(fields, 1))])
        )
    raw_table.sort_by_name(headers)
    if not keeps_cc:
        raw_table.remove(headers, b"CC")
    return parts.joined(raw_table.join_table(headers), False)


def cycling_queues(raw: bytes, reason: bytes, names: list[bytes]) -> list[bytes]:
    """The queues among `names` that must not get the dead letter with the property block `raw`.

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
    headers = raw_table.split_table(parts.headers)
    raw_table.put(headers, b"x-delivery-count", _number_value(field_types.TAG_LONG, count))
    raw_table.sort_by_name(headers)
    return parts.joined(raw_table.join_table(headers), True)


@final
@mypyc_attr(native_class=True, acyclic=True)
class _PropertyParts:
    """A property block cut at its headers and its expiration; the other properties stay raw."""

    def __init__(self, raw: bytes) -> None:
        end: i64 = len(raw)
        self._flags: i64 = primitives.read_short(raw, 0, end) & _PROPERTY_FLAGS
        at: i64 = 2
        at = self._text_end(raw, at, properties.CONTENT_TYPE)
        at = self._text_end(raw, at, properties.CONTENT_ENCODING)
        self._before_headers: bytes = raw[2:at]
        # Body of the headers table; b"" when the block has none.
        self.headers: bytes = b""
        if self._flags & properties.HEADERS != 0:
            self.headers, at = primitives.read_longstr(raw, at, end)
        start = at
        if self._flags & properties.DELIVERY_MODE != 0:
            at += 1
        if self._flags & properties.PRIORITY != 0:
            at += 1
        primitives.need(at, end, 0)
        at = self._text_end(raw, at, properties.CORRELATION_ID)
        at = self._text_end(raw, at, properties.REPLY_TO)
        self._between: bytes = raw[start:at]
        self.has_expiration: bool = self._flags & properties.EXPIRATION != 0
        self.expiration: bytes = b""
        if self.has_expiration:
            self.expiration, at = primitives.read_shortstr(raw, at, end)
        self._behind: bytes = raw[at:]

    def joined(self, headers: bytes, keeps_expiration: bool) -> bytes:
        """The block with this body of its headers table, and with or without its expiration."""
        flags = self._flags | properties.HEADERS
        if not keeps_expiration:
            flags &= ~properties.EXPIRATION
        out = BytesWriter()
        primitives.write_short(out, flags)
        out.write(self._before_headers)
        primitives.write_longstr(out, headers)
        out.write(self._between)
        if keeps_expiration and self.has_expiration:
            out.append(len(self.expiration))
            out.write(self.expiration)
        out.write(self._behind)
        return out.getvalue()

    def _text_end(self, raw: bytes, at: i64, flag: i64) -> i64:
        return primitives.shortstr_end(raw, at, len(raw)) if self._flags & flag != 0 else at


def _number_value(tag: i64, number: i64) -> bytes:
    out = BytesWriter()
    primitives.write_octet(out, tag)
    write_i64_be(out, number)
    return out.getvalue()


def _counted(fields: list[raw_table.RawField], count: i64) -> list[raw_table.RawField]:
    return [(_COUNT, _number_value(field_types.TAG_LONG, count)), *fields]


def _routing_keys(routing_key: bytes, headers: list[raw_table.RawField]) -> bytes:
    """The routing key of the publish and the keys in CC, as an array."""
    keys = [raw_table.longstr_value(routing_key)]
    copies = raw_table.find(headers, b"CC")
    if copies and i64(copies[0]) == field_types.TAG_ARRAY:
        keys += [
            key for key in raw_table.split_array(copies) if i64(key[0]) == field_types.TAG_LONGSTR
        ]
    return raw_table.array_value(keys)


def _with_another_death(old: list[bytes], fields: list[raw_table.RawField]) -> bytes:
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
    raw_table.sort_by_name(latest)
    return raw_table.array_value([raw_table.table_value(latest), *others])


@final
@mypyc_attr(native_class=True, acyclic=True)
class _Death:
    """One item of x-death. A client may have written it, so it may even be no table."""

    def __init__(self, item: bytes) -> None:
        self._item: bytes = item
        self.is_table: bool = i64(item[0]) == field_types.TAG_TABLE
        self.fields: list[raw_table.RawField] = (
            raw_table.split_table(item[5:]) if self.is_table else []
        )
        self.queue_and_reason: tuple[bytes, bytes] = _queue_and_reason(self.fields)

    def value(self) -> bytes:
        """The item, with its fields as they are now."""
        return raw_table.table_value(self.fields) if self.is_table else self._item


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
        if death.is_table and not raw_table.find(death.fields, _COUNT):
            death.fields = _counted(death.fields, numbers[death.queue_and_reason])
    kept.reverse()
    return kept


def _queue_and_reason(fields: list[raw_table.RawField]) -> tuple[bytes, bytes]:
    return raw_table.find(fields, _QUEUE), raw_table.find(fields, _REASON)


def _count(fields: list[raw_table.RawField]) -> int:
    """The count of a table of x-death; 0 when it has none that is a number."""
    value = raw_table.find(fields, _COUNT)
    if not value:
        return 0
    tag = i64(value[0])
    if tag in (
        field_types.TAG_BYTE,
        field_types.TAG_SHORT,
        field_types.TAG_SIGNED_INT,
        field_types.TAG_LONG,
    ):
        return int.from_bytes(value[1:], "big", signed=True)
    if tag in (
        field_types.TAG_UNSIGNED_BYTE,
        field_types.TAG_UNSIGNED_SHORT,
        field_types.TAG_UNSIGNED_INT,
    ):
        return int.from_bytes(value[1:], "big")
    return 0


def _set_count(fields: list[raw_table.RawField], count: int) -> None:
    # A count beyond 64 bits wraps, as in RabbitMQ.
    raw_table.put(
        fields, _COUNT, _number_value(field_types.TAG_LONG, primitives.signed64(count & _U64_MAX))
    )


def _deaths(headers: bytes) -> list[_Death]:
    """The items of x-death in this headers table; none if it is no array."""
    value = raw_table.find(raw_table.split_table(headers), _X_DEATH)
    if not value or i64(value[0]) != field_types.TAG_ARRAY:
        return []
    return [_Death(item) for item in raw_table.split_array(value)]


def _is_cycle(queue: bytes, deaths: list[_Death]) -> bool:
    """True if the message died in `queue`, and since then nobody rejected it."""
    name = raw_table.longstr_value(queue)
    rejected = raw_table.longstr_value(REJECTED)
    for death in deaths:
        if not death.is_table or death.queue_and_reason[1] == rejected:
            return False
        if death.queue_and_reason[0] == name:
            return True
    return False
