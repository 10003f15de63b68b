"""The exchanges and bindings of one vhost, and the way of a message through them (protocol.md 6, 9.5).

A message goes from exchange to exchange along the bindings and ends in queues, each of them once, each exchange
visited once, so cycles end. An exchange at which nothing matched sends it on to its alternate exchange. So a message
costs what its keys cost at each exchange it reaches (`topic.py` and `headers.py` say how much that is; a dictionary
look-up a key elsewhere), and the bindings that match, each at most once a key.

Whoever publishes may keep the result of `route` for as long as `version` stays the same: it counts every change that
could give another result. Headers exchanges look at more than the keys: a result is then good for those headers only.

Invariants, `check()`: a binding is in its source's `outgoing` and its destination's `incoming` or in neither, and
both its ends are in `exchanges` or `queues`; an auto-delete exchange that lost its last outgoing binding is gone.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from warrenmq.routing.direct import DefaultExchange
from warrenmq.routing.exchange import Binding, Destination, Exchange, binding_identity
from warrenmq.routing.exchange_types import make_exchange
from warrenmq.routing.headers import HeadersExchange
from warrenmq.wire.field_table import Field, decode_table

# (name, type, internal); all durable, none auto-delete.
PREDECLARED: Final = (
    (b"amq.direct", b"direct", False),
    (b"amq.fanout", b"fanout", False),
    (b"amq.topic", b"topic", False),
    (b"amq.headers", b"headers", False),
    (b"amq.match", b"headers", False),
    (b"amq.rabbitmq.trace", b"topic", True),
)
_NO_HEADERS: Final[dict[str, Field]] = {}


@final
@mypyc_attr(native_class=True)
class RemovedBindings:
    """What went with a queue, an exchange or a binding: the caller takes the durable ones out of the metadata."""

    def __init__(self) -> None:
        self.bindings: list[Binding] = []
        # The deleted exchange itself, and auto-delete ones that had no binding left.
        self.exchanges: list[Exchange] = []


@final
@mypyc_attr(native_class=True)
class Router:
    """Routing for one vhost. Read `exchanges` and `queues` freely; change them by the methods only."""

    def __init__(self) -> None:
        # Counts the changes that can change a route.
        self.version: i64 = 0
        self.queues: dict[bytes, Destination] = {}
        self.default_exchange: DefaultExchange = DefaultExchange(self.queues)
        self.exchanges: dict[bytes, Exchange] = {b"": self.default_exchange}
        self._mark: i64 = 0
        for name, type, internal in PREDECLARED:
            self.exchanges[name] = make_exchange(name, type, True, False, internal, b"")

    # -- the way of a message ----------------------------------------------------------------------------------

    def route(
        self, exchange: Exchange, routing_keys: list[bytes], headers: bytes
    ) -> list[Destination]:
        """The queues a message published to `exchange` goes to; a new list, in the order of the bindings.

        `routing_keys`: that of the message, then those of CC and BCC. `headers`: body of the headers table, decoded
        only if a headers exchange is on the way; ConnectionException 541 then if it is malformed.
        """
        self._mark += 1
        exchange.route_mark = self._mark
        if len(routing_keys) > 1:
            # A CC header may name one key thousands of times.
            routing_keys = list(dict.fromkeys(routing_keys))
        found: list[Destination] = []
        if isinstance(exchange, HeadersExchange):
            exchange.match(routing_keys, decode_table(headers), found)
        else:
            exchange.match(routing_keys, _NO_HEADERS, found)
        # By far the most frequent message: nothing to follow, nothing to drop.
        if len(found) == 1 and found[0].is_queue:
            return found
        return self._follow(exchange, found, routing_keys, headers)

    def depends_on_headers(self, exchange: Exchange) -> bool:
        """Could two messages with the same key take different ways from `exchange`?

        True for all that may lead to a headers exchange, without looking where it really leads.
        """
        return (
            isinstance(exchange, HeadersExchange)
            or exchange.exchange_binding_count > 0
            or exchange.alternate is not None
        )

    def _follow(
        self, first: Exchange, found: list[Destination], routing_keys: list[bytes], headers: bytes
    ) -> list[Destination]:
        """Go on from what matched at the `first` exchange."""
        mark = self._mark
        table: dict[str, Field] | None = None
        queues: list[Destination] = []
        # Every exchange put here is marked, so it is put here once; the list grows while it is walked.
        exchanges: list[Exchange] = [first]
        position = 0
        exchange = first
        while True:
            for destination in found:
                if destination.route_mark != mark:
                    destination.route_mark = mark
                    if destination.is_queue:
                        queues.append(destination)
                    else:
                        assert isinstance(destination, Exchange)
                        exchanges.append(destination)
            if not found and exchange.alternate is not None:
                alternate = self.exchanges.get(exchange.alternate)
                if alternate is not None and alternate.route_mark != mark:
                    alternate.route_mark = mark
                    exchanges.append(alternate)
            position += 1
            if position == len(exchanges):
                return queues
            exchange = exchanges[position]
            found = []
            if isinstance(exchange, HeadersExchange):
                if table is None:
                    table = decode_table(headers)
                exchange.match(routing_keys, table, found)
            else:
                exchange.match(routing_keys, _NO_HEADERS, found)

    # -- queues and exchanges ----------------------------------------------------------------------------------

    def add_queue(self, queue: Destination) -> None:
        """Make a queue, whose name must be free, reachable by the default exchange and bindable."""
        assert queue.is_queue and queue.name not in self.queues
        self.version += 1
        self.queues[queue.name] = queue

    def remove_queue(self, queue: Destination) -> RemovedBindings:
        """Forget a queue and the bindings to it."""
        assert self.queues.get(queue.name) is queue
        self.version += 1
        del self.queues[queue.name]
        removed = RemovedBindings()
        self._remove_all(list(queue.incoming), removed)
        return removed

    def declare_exchange(
        self,
        name: bytes,
        type: bytes,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: bytes,
    ) -> Exchange:
        """Make an exchange, whose name must be free. ConnectionException 503 for an unknown type."""
        assert name not in self.exchanges
        exchange = make_exchange(name, type, durable, auto_delete, internal, arguments)
        self.version += 1
        self.exchanges[name] = exchange
        return exchange

    def delete_exchange(self, exchange: Exchange) -> RemovedBindings:
        """Forget an exchange (not the default one) and the bindings from and to it."""
        assert (
            self.exchanges.get(exchange.name) is exchange and exchange is not self.default_exchange
        )
        self.version += 1
        removed = RemovedBindings()
        self._remove_all(self._forget(exchange, removed), removed)
        return removed

    # -- bindings ----------------------------------------------------------------------------------------------

    def bind(
        self, source: Exchange, destination: Destination, key: bytes, arguments: bytes
    ) -> Binding | None:
        """The new binding, or None if there is an equal one.

        Both ends must be there; `source` must not be the default exchange. ChannelException 406 as
        `Exchange.check_binding` and `Exchange.check_room`.
        """
        if binding_identity(destination, key, arguments) not in source.outgoing:
            source.check_room(key)
        return self.restore_binding(source, destination, key, arguments)

    def restore_binding(
        self, source: Exchange, destination: Destination, key: bytes, arguments: bytes
    ) -> Binding | None:
        """As `bind`, but there is room for whatever was bound before a restart."""
        identity = binding_identity(destination, key, arguments)
        if identity in source.outgoing:
            return None
        binding = Binding(source, destination, key, arguments)
        source.add(binding)
        self.version += 1
        source.outgoing[identity] = binding
        if not destination.is_queue:
            source.exchange_binding_count += 1
        destination.incoming[binding] = None
        return binding

    def unbind(
        self, source: Exchange, destination: Destination, key: bytes, arguments: bytes
    ) -> RemovedBindings | None:
        """Remove a binding; None if there is none. An auto-delete `source` may go with its last one."""
        binding = source.outgoing.get(binding_identity(destination, key, arguments))
        if binding is None:
            return None
        self.version += 1
        removed = RemovedBindings()
        self._remove_all([binding], removed)
        return removed

    def bindings_of_source(self, exchange: Exchange) -> list[Binding]:
        """For listings. The default exchange shows one binding for each queue."""
        if exchange is self.default_exchange:
            return [self._implicit_binding(queue) for queue in self.queues.values()]
        return list(exchange.outgoing.values())

    def bindings_of_destination(self, destination: Destination) -> list[Binding]:
        """For listings. A queue's first binding is the one from the default exchange."""
        bindings = list(destination.incoming)
        if destination.is_queue:
            bindings.insert(0, self._implicit_binding(destination))
        return bindings

    def all_bindings(self) -> list[Binding]:
        """For listings: those of all exchanges, the default one first."""
        bindings: list[Binding] = []
        for exchange in self.exchanges.values():
            bindings.extend(self.bindings_of_source(exchange))
        return bindings

    def check(self) -> None:
        """The invariants of the module's docstring."""
        for name, exchange in self.exchanges.items():
            assert exchange.name == name and not exchange.is_queue
            for identity, binding in exchange.outgoing.items():
                assert binding.source is exchange and binding in binding.destination.incoming
                assert identity == binding_identity(
                    binding.destination, binding.key, binding.arguments
                )
                self._check_known(binding.destination)
            to_exchanges = [identity for identity in exchange.outgoing if not identity[0]]
            assert exchange.exchange_binding_count == len(to_exchanges)
            self._check_incoming(exchange)
        for name, queue in self.queues.items():
            assert queue.name == name and queue.is_queue
            self._check_incoming(queue)

    # -- parts -------------------------------------------------------------------------------------------------

    def _remove_all(self, bindings: list[Binding], removed: RemovedBindings) -> None:
        """Remove `bindings`, then exchanges that go with them, then their bindings, and so on.

        The list grows instead of the call stack: a chain of auto-delete exchanges is as long as clients make it.
        """
        position = 0
        while position < len(bindings):
            binding = bindings[position]
            position += 1
            if binding not in binding.destination.incoming:
                continue
            source = binding.source
            del binding.destination.incoming[binding]
            del source.outgoing[
                binding_identity(binding.destination, binding.key, binding.arguments)
            ]
            source.remove(binding)
            if not binding.destination.is_queue:
                source.exchange_binding_count -= 1
            removed.bindings.append(binding)
            if (
                source.auto_delete
                and not source.outgoing
                and self.exchanges.get(source.name) is source
            ):
                bindings.extend(self._forget(source, removed))

    def _forget(self, exchange: Exchange, removed: RemovedBindings) -> list[Binding]:
        """Take an exchange out of the names; returns the bindings that must go with it."""
        del self.exchanges[exchange.name]
        removed.exchanges.append(exchange)
        bindings = list(exchange.outgoing.values())
        bindings.extend(exchange.incoming)
        return bindings

    def _implicit_binding(self, queue: Destination) -> Binding:
        return Binding(self.default_exchange, queue, queue.name, b"")

    def _check_incoming(self, destination: Destination) -> None:
        for binding in destination.incoming:
            assert binding.destination is destination
            assert self.exchanges.get(binding.source.name) is binding.source
            assert binding in binding.source.outgoing.values()

    def _check_known(self, destination: Destination) -> None:
        if destination.is_queue:
            assert self.queues.get(destination.name) is destination
        else:
            assert self.exchanges.get(destination.name) is destination
