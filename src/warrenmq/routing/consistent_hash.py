"""Consistent hash exchanges: a binding's key is a weight, and equal values go to the same place.

The exchange hashes one value of a message: the routing key, or the header or the property that its
argument `hash-header` or `hash-property` names. Each message goes to one destination. A destination
gets a share of the values in proportion to its weight.

Rendezvous hashing selects the destination: each destination draws a score from its own name and the
value, and the lowest score wins. Scores do not depend on other bindings. So a new destination takes
values over from others, a removed one leaves its values to others, and no other value moves. A
restart or another order of bindings changes nothing.

A publish costs one score for each destination of the exchange.
"""

import math
import zlib
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from warrenmq.routing.exchange import Binding, Destination, Exchange
from warrenmq.routing.field_values import erlang_bytes, erlang_value
from warrenmq.routing.message_fields import PROPERTY_NAMES, READS_HEADERS, READS_PROPERTIES
from warrenmq.wire.errors import PRECONDITION_FAILED, ChannelException
from warrenmq.wire.field_table import Field, decode_table
from warrenmq.wire.field_types import TAG_LONGSTR, type_name

CONSISTENT_HASH: Final = b"x-consistent-hash"
HASH_HEADER: Final = "hash-header"
HASH_PROPERTY: Final = "hash-property"
_SCORES: Final = 4294967296.0


@final
@mypyc_attr(native_class=True)
class HashTarget:
    """One destination with its bindings, of which the oldest gives the weight."""

    def __init__(self, destination: Destination) -> None:
        self.destination: Destination = destination
        self.weight: float = 0.0
        self.bindings: dict[Binding, None] = {}
        kind = b"q" if destination.is_queue else b"x"
        self._seed: i64 = _mix(zlib.crc32(kind + destination.name))

    def weigh(self) -> None:
        """Take the weight of the oldest binding; there must be one."""
        for binding in self.bindings:
            self.weight = float(_weight(binding.key))
            break

    def score(self, number: i64) -> float:
        """The score for a value with this `number`: the time until an event with rate `weight`.

        The first of several such events is one of rate w with a chance in proportion to w.
        """
        drawn: i64 = _mix(number ^ self._seed)
        return -math.log((float(drawn) + 0.5) / _SCORES) / self.weight


@final
@mypyc_attr(native_class=True)
class ConsistentHashExchange(Exchange):
    """A consistent hash exchange: destinations that draw a score for each message."""

    def __init__(
        self, name: bytes, durable: bool, auto_delete: bool, internal: bool, arguments: bytes
    ) -> None:
        """Raise ChannelException 406 for arguments that name no value to hash."""
        super().__init__(name, CONSISTENT_HASH, durable, auto_delete, internal, arguments)
        # Name of the header or property to hash; None for the routing key.
        self._hashed: str | None = None
        self._targets: dict[Destination, HashTarget] = {}
        table = decode_table(arguments)
        header = _text_argument(table, HASH_HEADER)
        name_of_property = _text_argument(table, HASH_PROPERTY)
        if header is not None and name_of_property is not None:
            raise ChannelException(
                PRECONDITION_FAILED, "hash-header and hash-property are mutually exclusive"
            )
        if header is not None:
            self._hashed = header
            self.reads = READS_HEADERS
        elif name_of_property is not None:
            if name_of_property not in PROPERTY_NAMES:
                raise ChannelException(
                    PRECONDITION_FAILED, f"Unsupported property: {name_of_property}"
                )
            self._hashed = name_of_property
            self.reads = READS_PROPERTIES
        self.is_by_keys = self._hashed is None

    def check_binding(self, key: bytes, arguments: bytes) -> None:
        _weight(key)

    def add(self, binding: Binding) -> None:
        _weight(binding.key)
        target = self._targets.get(binding.destination)
        if target is None:
            target = HashTarget(binding.destination)
            self._targets[binding.destination] = target
        target.bindings[binding] = None
        target.weigh()

    def remove(self, binding: Binding) -> None:
        target = self._targets[binding.destination]
        del target.bindings[binding]
        if target.bindings:
            target.weigh()
        else:
            del self._targets[binding.destination]

    def on_replaced(self, old: Destination, new: Destination) -> None:
        # The targets keep their order: of equal scores the first wins.
        targets: dict[Destination, HashTarget] = {}
        for destination, target in self._targets.items():
            if destination is old:
                target.destination = new
            targets[target.destination] = target
        self._targets = targets

    def match(self, keys: list[bytes], fields: dict[str, Field], found: list[Destination]) -> None:
        if not self._targets:
            return
        # The keys of CC and BCC do not count: a message goes to one destination.
        value = keys[0] if self._hashed is None else _hashed_bytes(fields.get(self._hashed))
        number: i64 = _mix(zlib.crc32(value))
        best: HashTarget | None = None
        lowest = 0.0
        for target in self._targets.values():
            score = target.score(number)
            if best is None or score < lowest:
                best = target
                lowest = score
        assert best is not None
        found.append(best.destination)


def _mix(number: i64) -> i64:
    """Spread the 32 bits of `number`: a change of one bit changes each bit with a chance of 1/2.

    The second factor stands for 0x846CA68B: the product with a negative one stays within 64 bits
    and has the same lower 32.
    """
    number = ((number ^ (number >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    number = ((number ^ (number >> 15)) * (0x846CA68B - 0x100000000)) & 0xFFFFFFFF
    return number ^ (number >> 16)


def _weight(key: bytes) -> int:
    """The weight that a binding key gives; ChannelException 406 if it is no number above 0."""
    digits = key[1:] if key[:1] in (b"+", b"-") else key
    # Python's `int` reads more than these, such as spaces and underscores.
    if not digits.isdigit():
        raise ChannelException(
            PRECONDITION_FAILED, f"The binding key must be an integer: {erlang_bytes(key)}"
        )
    weight = int(key)
    if weight < 1:
        raise ChannelException(PRECONDITION_FAILED, "The binding key must be greater than 0")
    return weight


def _text_argument(table: dict[str, Field], name: str) -> str | None:
    field = table.get(name)
    if field is None:
        return None
    value = field.value
    if field.tag != TAG_LONGSTR or not isinstance(value, bytes):
        raise ChannelException(
            PRECONDITION_FAILED,
            f"invalid type '{type_name(field.tag)}' for arg '{name}'; expected longstr",
        )
    # Names in tables are decoded in the same way.
    return value.decode("utf-8", "surrogateescape")


def _hashed_bytes(field: Field | None) -> bytes:
    """The bytes to hash for a header or property; messages without it have the same ones."""
    if field is None:
        return b""
    value = field.value
    if isinstance(value, bytes):
        return value
    return erlang_value(field).encode("utf-8", "surrogateescape")
