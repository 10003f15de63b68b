"""A naive router without index or speed, which the tests compare the real router with."""

import math
import zlib
from collections.abc import Iterable

from warrenmq.wire.field_table import Field, decode_table
from warrenmq.wire.field_types import TAG_LONGSTR, TAG_VOID, type_name

# A binding: source, destination is a queue, destination, key, arguments as a comparable value.
Bound = tuple[bytes, bool, bytes, bytes, object]


def topic_fits(pattern: bytes, key: bytes) -> bool:
    """Whether the binding key `pattern` matches the routing key `key`."""
    return _words_fit(_words(pattern), _words(key))


def _words(key: bytes) -> list[bytes]:
    return key.split(b".") if key else []


def _words_fit(pattern: list[bytes], words: list[bytes]) -> bool:
    # fits[i]: the words read so far match the first i words of the pattern.
    fits = [all(word == b"#" for word in pattern[:end]) for end in range(len(pattern) + 1)]
    for word in words:
        before, fits = fits, [False]
        for position, wanted in enumerate(pattern):
            if wanted == b"#":
                fits.append(fits[position] or before[position + 1])
            else:
                fits.append(before[position] and wanted in (b"*", word))
    return fits[-1]


def plain(field: Field) -> object:
    """Return a comparable value; two are equal if the fields are equal by value (protocol 6)."""
    value = field.value
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, int | float):
        return "number", value
    if isinstance(value, bytes):
        return "bytes", value
    if isinstance(value, list):
        return "list", [(type_name(inner.tag), plain(inner)) for inner in value]
    if isinstance(value, dict):
        return "list", [(name, type_name(inner.tag), plain(inner)) for name, inner in value.items()]
    return type_name(field.tag), value


def headers_fit(arguments: dict[str, Field], headers: dict[str, Field]) -> bool:
    """Whether headers match the arguments of a binding, by the rules of the headers exchange."""
    mode = arguments.get("x-match", Field(TAG_LONGSTR, b"all")).value
    assert isinstance(mode, bytes)
    wanted = {
        name: field
        for name, field in arguments.items()
        if name != "x-match" and (mode.endswith(b"-with-x") or not name.startswith("x-"))
    }
    met = [
        name in headers and (field.tag == TAG_VOID or plain(field) == plain(headers[name]))
        for name, field in wanted.items()
    ]
    return all(met) if mode.startswith(b"all") else any(met)


def _scattered(number: int) -> int:
    number = (number ^ number >> 16) * 0x7FEB352D % 2**32
    number = (number ^ number >> 15) * 0x846CA68B % 2**32
    return number ^ number >> 16


def hash_score(is_queue: bool, name: bytes, weight: int, value: bytes) -> float:
    """The score of a destination of a consistent hash exchange; the lowest one wins."""
    seed = _scattered(zlib.crc32((b"q" if is_queue else b"x") + name))
    drawn = _scattered(_scattered(zlib.crc32(value)) ^ seed)
    return -math.log((drawn + 0.5) / 2**32) / weight


class NaiveExchange:
    """An exchange of the model: type, auto-delete flag, alternate exchange.

    The type of a delayed exchange is that of its routing.
    """

    def __init__(
        self,
        type: bytes,
        auto_delete: bool,
        alternate: bytes | None,
        is_delayed: bool = False,
        hash_header: str = "",
    ) -> None:
        self.type = type
        self.auto_delete = auto_delete
        self.alternate = alternate
        self.is_delayed = is_delayed
        self.hash_header = hash_header


class NaiveRouter:
    """The exchanges, queues and bindings of a vhost; `bindings` maps each to its raw arguments.

    Random exchanges take the binding number `draw`, modulo their number of bindings.
    """

    def __init__(self, draw: int = 0) -> None:
        self.draw = draw
        self.exchanges: dict[bytes, NaiveExchange] = {}
        self.queues: set[bytes] = set()
        self.bindings: dict[Bound, bytes] = {}

    def bound(
        self, source: bytes, is_queue: bool, destination: bytes, key: bytes, arguments: bytes
    ) -> Bound:
        values = {
            (name, type_name(f.tag), repr(plain(f))) for name, f in decode_table(arguments).items()
        }
        return source, is_queue, destination, key, frozenset(values)

    def remove(self, bindings: Iterable[Bound]) -> tuple[set[Bound], set[bytes]]:
        """Remove bindings, and auto-delete exchanges left without any; return both."""
        gone = set(bindings)
        for binding in gone:
            del self.bindings[binding]
        exchanges: set[bytes] = set()
        for source in {binding[0] for binding in gone}:
            exchange = self.exchanges.get(source)
            if exchange is not None and exchange.auto_delete and not self.of_source(source):
                more_bindings, more_exchanges = self.delete_exchange(source)
                gone |= more_bindings
                exchanges |= more_exchanges
        return gone, exchanges

    def delete_exchange(self, name: bytes) -> tuple[set[Bound], set[bytes]]:
        del self.exchanges[name]
        ends = {b for b in self.bindings if b[0] == name or (b[1:3] == (False, name))}
        bindings, exchanges = self.remove(ends)
        return bindings, exchanges | {name}

    def delete_queue(self, name: bytes) -> tuple[set[Bound], set[bytes]]:
        self.queues.remove(name)
        return self.remove({b for b in self.bindings if b[1:3] == (True, name)})

    def of_source(self, name: bytes) -> list[Bound]:
        """The bindings of an exchange, oldest first."""
        return [binding for binding in self.bindings if binding[0] == name]

    def matches(self, binding: Bound, keys: list[bytes], headers: dict[str, Field]) -> bool:
        kind = self.exchanges[binding[0]].type
        if kind == b"fanout":
            return True
        if kind == b"headers":
            return headers_fit(decode_table(self.bindings[binding]), headers)
        if kind == b"topic":
            return any(topic_fits(binding[3], key) for key in keys)
        return binding[3] in keys

    def hits(self, name: bytes, keys: list[bytes], headers: dict[str, Field]) -> list[Bound]:
        """The bindings of an exchange that a message goes along."""
        exchange = self.exchanges[name]
        bindings = self.of_source(name)
        if exchange.type == b"x-random":
            return [bindings[self.draw % len(bindings)]] if bindings else []
        if exchange.type != b"x-consistent-hash":
            return [binding for binding in bindings if self.matches(binding, keys, headers)]
        value = keys[0]
        if exchange.hash_header:
            field = headers.get(exchange.hash_header, Field(TAG_LONGSTR, b""))
            value = (
                field.value if isinstance(field.value, bytes) else str(field.value).lower().encode()
            )
        # The first binding of a destination gives its weight.
        oldest = {binding[1:3]: binding for binding in reversed(bindings)}
        scores = {
            binding: hash_score(*destination, int(binding[3]), value)
            for destination, binding in oldest.items()
        }
        return [min(scores, key=lambda binding: scores[binding])] if scores else []

    def route(
        self,
        first: bytes,
        keys: list[bytes],
        headers: dict[str, Field],
        waits: set[bytes] | None = None,
    ) -> set[bytes]:
        """Return the names of the queues that get the message.

        With `waits`, a message with a delay waits at delayed exchanges, which are added there.
        """
        queues: set[bytes] = set()
        seen: set[bytes] = set()
        waiting = {first}
        while waiting:
            name = waiting.pop()
            seen.add(name)
            if name == b"":
                queues |= self.queues & set(keys)
                continue
            exchange = self.exchanges[name]
            if exchange.is_delayed and waits is not None and "x-delay" in headers:
                waits.add(name)
                continue
            hits = self.hits(name, keys, headers)
            queues |= {b[2] for b in hits if b[1]}
            reached = {b[2] for b in hits if not b[1]}
            if not hits and exchange.alternate is not None:
                if exchange.alternate == b"" or exchange.alternate in self.exchanges:
                    reached.add(exchange.alternate)
            waiting |= reached - seen
        return queues
