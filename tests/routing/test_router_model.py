"""The router agrees with the naive model after any order of declarations, binds and deletions."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.routing.naive import Bound, NaiveExchange, NaiveRouter
from warrenmq.routing.exchange import Binding, Destination, Exchange
from warrenmq.routing.router import RemovedBindings, Router
from warrenmq.wire.errors import ChannelException
from warrenmq.wire.field_table import Field, encode_table, fields_from_python

HASH = b"x-consistent-hash"
# The one draw of all random exchanges.
DRAW = 7

exchange_names = st.sampled_from([b"x1", b"x2", b"x3", b"x4"])
queue_names = st.sampled_from([b"q1", b"a", b"x1"])
# A consistent hash exchange takes the numbers only.
binding_keys = st.sampled_from([b"a", b"a.b", b"*", b"a.#", b"1", b"3"])
routing_keys = st.lists(st.sampled_from([b"a", b"q1", b"a.b", b"c", b""]), min_size=1, max_size=3)
types = st.sampled_from([b"direct", b"fanout", b"topic", b"headers", HASH, b"x-random"])
hash_headers = st.sampled_from(["", "h"])
alternates = st.sampled_from([None, None, b"x1", b"x2", b"x3", b"nowhere", b""])
argument_tables = st.sampled_from(
    [{}, {}, {"x-match": "any", "h": 1}, {"h": 1, "x-match": "any"}, {"h": 1}, {"h": True}]
)
header_tables: st.SearchStrategy[dict[str, object]] = st.sampled_from(
    [{}, {"h": 1}, {"h": "a"}, {"h": True, "g": "x"}, {"h": 2, "x-delay": 10}]
)


def described(binding: Binding, model: NaiveRouter) -> Bound:
    destination = binding.destination
    return model.bound(
        binding.source.name, destination.is_queue, destination.name, binding.key, binding.arguments
    )


class RoutingMachine(RuleBasedStateMachine):
    """Every rule changes router and model alike, and compares the removals that they report."""

    def __init__(self) -> None:
        super().__init__()
        self.router = Router(lambda size: DRAW.to_bytes(size, "big"))
        self.model = NaiveRouter(DRAW)
        self.predeclared = set(self.router.exchanges)
        # Begin with a small topology, because most runs are too short to build one.
        for name in (b"q1", b"a"):
            self.add(name)
        self.declare_new(b"x1", NaiveExchange(b"topic", True, b"x2"))
        self.declare_new(b"x2", NaiveExchange(b"direct", False, b""))
        # Results as publishers cache them: (version, exchange, keys, headers, queues). A result is
        # valid while the version is the same.
        self.kept: list[tuple[int, Exchange, list[bytes], bytes, list[Destination]]] = []

    def compare(self, removed: RemovedBindings, expected: tuple[set[Bound], set[bytes]]) -> None:
        bindings = [described(binding, self.model) for binding in removed.bindings]
        exchanges = [exchange.name for exchange in removed.exchanges]
        assert len(set(bindings)) == len(bindings) and len(set(exchanges)) == len(exchanges)
        assert (set(bindings), set(exchanges)) == expected

    @rule(
        name=exchange_names,
        exchange=st.builds(
            NaiveExchange, types, st.booleans(), alternates, st.booleans(), hash_headers
        ),
    )
    def declare(self, name: bytes, exchange: NaiveExchange) -> None:
        if name not in self.model.exchanges:
            self.declare_new(name, exchange)

    def declare_new(self, name: bytes, exchange: NaiveExchange) -> None:
        arguments = {}
        if exchange.alternate is not None:
            arguments["alternate-exchange"] = Field(ord("S"), exchange.alternate)
        if exchange.hash_header:
            arguments["hash-header"] = Field(ord("S"), exchange.hash_header.encode())
        if exchange.is_delayed:
            arguments["x-delayed-type"] = Field(ord("S"), exchange.type)
        type = b"x-delayed-message" if exchange.is_delayed else exchange.type
        self.router.declare_exchange(
            name, type, False, exchange.auto_delete, False, encode_table(arguments)
        )
        self.model.exchanges[name] = exchange

    @rule(name=exchange_names)
    def delete_exchange(self, name: bytes) -> None:
        if name in self.model.exchanges:
            removed = self.router.delete_exchange(self.router.exchanges[name])
            self.compare(removed, self.model.delete_exchange(name))

    @rule(name=queue_names)
    def add_queue(self, name: bytes) -> None:
        if name not in self.model.queues:
            self.add(name)

    def add(self, name: bytes) -> None:
        self.router.add_queue(Destination(name, True))
        self.model.queues.add(name)

    @rule(name=queue_names)
    def remove_queue(self, name: bytes) -> None:
        if name in self.model.queues:
            removed = self.router.remove_queue(self.router.queues[name])
            self.compare(removed, self.model.delete_queue(name))

    @rule(name=queue_names)
    def replace_queue(self, name: bytes) -> None:
        """Another object stands for the queue: every binding and its place stay."""
        if name in self.model.queues:
            before = [binding for binding in self.router.all_bindings() if binding.arguments]
            version = self.router.version
            self.router.replace_queue(self.router.queues[name], Destination(name, True))
            assert self.router.version == version + 1
            after = [binding for binding in self.router.all_bindings() if binding.arguments]
            assert before == after

    @precondition(lambda self: self.model.exchanges)
    @rule(data=st.data(), key=binding_keys, arguments=argument_tables, to_queue=st.booleans())
    def bind(
        self, data: st.DataObject, key: bytes, arguments: dict[str, object], to_queue: bool
    ) -> None:
        source = data.draw(st.sampled_from(sorted(self.model.exchanges)))
        names = sorted(self.model.queues if to_queue else self.model.exchanges)
        if not names:
            return
        name = data.draw(st.sampled_from(names))
        raw = encode_table(fields_from_python(arguments))
        destination = self.router.queues[name] if to_queue else self.router.exchanges[name]
        if self.model.exchanges[source].type == HASH and not key.isdigit():
            with pytest.raises(ChannelException):
                self.router.bind(self.router.exchanges[source], destination, key, raw)
            return
        binding = self.router.bind(self.router.exchanges[source], destination, key, raw)
        expected = self.model.bound(source, to_queue, name, key, raw)
        assert (binding is None) is (expected in self.model.bindings)
        assert binding is None or described(binding, self.model) == expected
        self.model.bindings.setdefault(expected, raw)

    @precondition(lambda self: self.model.bindings)
    @rule(data=st.data())
    def unbind(self, data: st.DataObject) -> None:
        bound = data.draw(st.sampled_from(sorted(self.model.bindings, key=repr)))
        raw = self.model.bindings[bound]
        source, is_queue, name, key, _ = bound
        destination = self.router.queues[name] if is_queue else self.router.exchanges[name]
        exchange = self.router.exchanges[source]
        removed = self.router.unbind(exchange, destination, key, raw)
        assert removed is not None
        self.compare(removed, self.model.remove([bound]))
        assert self.router.unbind(exchange, destination, key, raw) is None

    @rule(data=st.data(), keys=routing_keys, headers=header_tables)
    def route(self, data: st.DataObject, keys: list[bytes], headers: dict[str, object]) -> None:
        name = data.draw(st.sampled_from([b"", *sorted(self.model.exchanges)]))
        fields = fields_from_python(headers)
        exchange = self.router.exchanges[name]
        raw = encode_table(fields)
        waits: list[Exchange] = []
        expected_waits: set[bytes] = set()
        now = self.router.route(exchange, keys, raw, b"", waits)
        assert {queue.name for queue in now} == self.model.route(name, keys, fields, expected_waits)
        assert {each.name for each in waits} == expected_waits
        queues = self.router.route(exchange, keys, raw)
        names = [queue.name for queue in queues]
        assert len(set(names)) == len(names)
        assert set(names) == self.model.route(name, keys, fields)
        assert all(self.router.queues[queue.name] is queue for queue in queues)
        self.kept.append((self.router.version, exchange, keys, raw, queues))

    @invariant()
    def kept_routes_are_good(self) -> None:
        for version, exchange, keys, raw, queues in self.kept[-3:]:
            if version == self.router.version:
                assert self.router.route(exchange, keys, raw) == queues
                if not self.router.depends_on_message(exchange):
                    assert self.router.route(exchange, keys, b"") == queues

    @invariant()
    def agree(self) -> None:
        self.router.check()
        assert set(self.router.exchanges) - self.predeclared == set(self.model.exchanges)
        assert set(self.router.queues) == self.model.queues
        explicit = [
            b for b in self.router.all_bindings() if b.source is not self.router.default_exchange
        ]
        assert {described(binding, self.model) for binding in explicit} == set(self.model.bindings)

    @invariant()
    def route_everywhere(self) -> None:
        headers = fields_from_python({"h": 1})
        raw = encode_table(headers)
        for name in self.model.exchanges:
            for keys in ([b"a"], [b"a.b"], [b"q1", b"c"]):
                queues = self.router.route(self.router.exchanges[name], keys, raw)
                assert sorted(q.name for q in queues) == sorted(
                    self.model.route(name, keys, headers)
                )


TestRoutingMachine = RoutingMachine.TestCase
TestRoutingMachine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
