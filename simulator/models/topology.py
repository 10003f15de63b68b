"""Exchanges, queues and bindings as clients declared them, and where a message must go.

The model follows the rules of the protocol without `warrenmq.routing`: no index, no cache, no
versions. Every expected delivery of a history comes from `TopologyModel.route`.
`stored_definitions.py` has what a crash may undo of the definitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from simulator.models.messages import QueueModel, Violation
from simulator.models.stored_definitions import Key, StoredDefinitions
from warrenmq.broker.definitions.metadata import Definitions
from warrenmq.wire.field_table import decode_table, encode_table, fields_from_python, to_python

DIRECT: Final = b"direct"
FANOUT: Final = b"fanout"
TOPIC: Final = b"topic"
HEADERS: Final = b"headers"
PREDECLARED: Final = (
    (b"", DIRECT), (b"amq.direct", DIRECT), (b"amq.fanout", FANOUT), (b"amq.topic", TOPIC), (b"amq.headers", HEADERS),
    (b"amq.match", HEADERS), (b"amq.rabbitmq.trace", TOPIC),
)  # fmt: skip

# (name, value) of each field that clients write into a field table, in the order of the names.
Arguments = tuple[tuple[str, object], ...]


def encode_arguments(arguments: Arguments) -> bytes:
    """Encode `arguments` as the body of a field table."""
    return encode_table(fields_from_python(dict(arguments))) if arguments else b""


def decode_arguments(raw: bytes) -> Arguments:
    """Decode the body of a field table; the result is in the order of the names."""
    return (
        tuple(sorted(to_python(decode_table(raw)).items(), key=lambda item: item[0])) if raw else ()
    )


@dataclass(frozen=True)
class BindingModel:
    """One binding; all attributes together are its identity."""

    source: bytes
    destination: bytes
    is_to_queue: bool
    key: bytes
    arguments: Arguments

    def takes(self, kind: bytes, keys: list[bytes], headers: dict[str, object]) -> bool:
        """Whether an exchange of type `kind` routes these keys and headers along this binding."""
        if kind == FANOUT:
            return True
        if kind == HEADERS:
            return _headers_match(dict(self.arguments), headers)
        if kind == TOPIC:
            return any(_topic_matches(_words(self.key), _words(key)) for key in keys)
        return self.key in keys


@dataclass
class ExchangeModel:
    """One exchange; `bindings` lead from it to others; an empty `alternate` means none."""

    name: bytes
    kind: bytes
    durable: bool
    auto_delete: bool
    internal: bool
    alternate: bytes
    bindings: dict[BindingModel, None]

    def definition(self) -> tuple[object, ...]:
        """All properties that the declaration names."""
        return self.kind, self.durable, self.auto_delete, self.internal, self.alternate


class TopologyModel:
    """Exchanges, queues and bindings of a vhost; a change returns the keys of its stored parts."""

    def __init__(self) -> None:
        self.exchanges: dict[bytes, ExchangeModel] = {}
        self.queues: dict[bytes, QueueModel] = {}
        self.stored = StoredDefinitions()
        self._predeclare()

    def route(
        self, exchange: bytes, keys: list[bytes], headers: dict[str, object] | None = None
    ) -> list[QueueModel]:
        """The queues that a message must reach, each once; [] for an unknown exchange."""
        if not exchange:
            return [self.queues[key] for key in dict.fromkeys(keys) if key in self.queues]
        reached: dict[bytes, None] = {}
        seen = {exchange}
        ahead = [exchange]
        while ahead:
            model = self.exchanges.get(ahead.pop())
            if model is None:
                continue
            taken = [
                binding
                for binding in model.bindings
                if binding.takes(model.kind, keys, headers or {})
            ]
            following = [binding.destination for binding in taken if not binding.is_to_queue]
            reached.update((binding.destination, None) for binding in taken if binding.is_to_queue)
            if not taken and model.alternate:
                following = [model.alternate]
            for name in following:
                if name not in seen:
                    seen.add(name)
                    ahead.append(name)
        return [self.queues[name] for name in reached]

    # -- changes -----------------------------------------------------------------------------------

    def declare_exchange(self, exchange: ExchangeModel) -> list[Key]:
        """Add an exchange without bindings."""
        self.exchanges[exchange.name] = exchange
        if not exchange.durable:
            return []
        return [self.stored.put(("exchange", exchange.name), exchange.definition())]

    def delete_exchange(self, name: bytes) -> list[Key]:
        """Delete an exchange with its bindings in both directions."""
        exchange = self.exchanges.pop(name)
        keys = [self.stored.drop(("exchange", name))] if exchange.durable else []
        keys += self._drop_bindings(exchange, list(exchange.bindings))
        return keys + self._drop_bindings_to(name, False)

    def add_queue(self, queue: QueueModel) -> list[Key]:
        """Add a queue."""
        name = queue.name.encode()
        self.queues[name] = queue
        if not queue.durable:
            return []
        return [self.stored.put(("queue", queue.id), (name, queue.auto_delete, queue.arguments))]

    def remove_queue(self, queue: QueueModel) -> list[Key]:
        """Delete a queue with the bindings to it."""
        name = queue.name.encode()
        del self.queues[name]
        keys = [self.stored.drop(("queue", queue.id))] if queue.durable else []
        return keys + self._drop_bindings_to(name, True)

    def bind(self, binding: BindingModel) -> list[Key]:
        """Add a binding, if it is not there yet."""
        source = self.exchanges[binding.source]
        if binding in source.bindings:
            return []
        source.bindings[binding] = None
        return (
            [self.stored.put(_key_of(binding), True)] if self._is_durable(source, binding) else []
        )

    def unbind(self, binding: BindingModel) -> list[Key]:
        """Delete a binding; an auto-delete exchange goes with its last one."""
        return self._drop_bindings(self.exchanges[binding.source], [binding])

    def bindings(self) -> list[BindingModel]:
        """All bindings that clients made."""
        return [binding for exchange in self.exchanges.values() for binding in exchange.bindings]

    def _is_durable(self, source: ExchangeModel, binding: BindingModel) -> bool:
        if not source.durable:
            return False
        if binding.is_to_queue:
            return self.queues[binding.destination].durable
        return self.exchanges[binding.destination].durable

    def _drop_bindings_to(self, name: bytes, is_queue: bool) -> list[Key]:
        keys: list[Key] = []
        for exchange in list(self.exchanges.values()):
            to_it = [
                binding
                for binding in exchange.bindings
                if binding.destination == name and binding.is_to_queue == is_queue
            ]
            keys += self._drop_bindings(exchange, to_it)
        return keys

    def _drop_bindings(self, exchange: ExchangeModel, bindings: list[BindingModel]) -> list[Key]:
        keys = []
        for binding in bindings:
            del exchange.bindings[binding]
            if self.stored.knows(_key_of(binding)):
                keys.append(self.stored.drop(_key_of(binding)))
        is_gone = self.exchanges.get(exchange.name) is not exchange
        if bindings and exchange.auto_delete and not exchange.bindings and not is_gone:
            keys += self.delete_exchange(exchange.name)
        return keys

    # -- restarts ----------------------------------------------------------------------------------

    def restart(self, definitions: Definitions, queues: dict[int, QueueModel], now_ms: int) -> None:
        """Restart with the stored `definitions`; Violation when they are not possible."""
        found: dict[Key, object] = {}
        self.exchanges = {}
        self.queues = {}
        self._predeclare()
        for put in definitions.exchanges:
            alternate = dict(decode_arguments(put.arguments)).get("alternate-exchange", "")
            exchange = ExchangeModel(
                put.name, put.type, True, put.auto_delete, put.internal, str(alternate).encode(), {}
            )
            self.exchanges[put.name] = exchange
            found["exchange", put.name] = exchange.definition()
        for put_queue in definitions.queues:
            found["queue", put_queue.id] = (
                put_queue.name,
                put_queue.auto_delete,
                put_queue.arguments,
            )
            queue = queues.get(put_queue.id)
            if queue is None:
                raise Violation("queue", f"nobody declared queue {put_queue.name.decode()}")
            queue.start(now_ms)
            self.queues[put_queue.name] = queue
        for put_binding in definitions.bindings:
            arguments = decode_arguments(put_binding.arguments)
            binding = BindingModel(
                put_binding.source,
                put_binding.destination,
                put_binding.destination_is_queue,
                put_binding.key,
                arguments,
            )
            found[_key_of(binding)] = True
            names = self.queues if binding.is_to_queue else self.exchanges
            if binding.source not in self.exchanges or binding.destination not in names:
                raise Violation("binding", f"{binding} is stored without both of its ends")
            self.exchanges[binding.source].bindings[binding] = None
        self.stored.restart(found)

    def _predeclare(self) -> None:
        for name, kind in PREDECLARED:
            is_internal = name == b"amq.rabbitmq.trace"
            self.exchanges[name] = ExchangeModel(name, kind, True, False, is_internal, b"", {})


def _key_of(binding: BindingModel) -> Key:
    return (
        "binding", binding.source, binding.destination, binding.is_to_queue, binding.key, binding.arguments,
    )  # fmt: skip


def _words(key: bytes) -> list[bytes]:
    return key.split(b".") if key else []


def _topic_matches(pattern: list[bytes], words: list[bytes]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == b"#":
        return any(
            _topic_matches(pattern[1:], words[skipped:]) for skipped in range(len(words) + 1)
        )
    return bool(words) and pattern[0] in (b"*", words[0]) and _topic_matches(pattern[1:], words[1:])


def _headers_match(wanted: dict[str, object], headers: dict[str, object]) -> bool:
    mode = str(wanted.get("x-match", "all"))
    met = [
        name in headers and (value is None or headers[name] == value)
        for name, value in wanted.items()
        if name != "x-match" and (mode.endswith("-with-x") or not name.startswith("x-"))
    ]
    return any(met) if mode.startswith("any") else all(met)
