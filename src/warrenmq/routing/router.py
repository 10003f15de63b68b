"""The router of one vhost: exchanges, bindings, and routes of messages (protocol 6, 9.5).

A message goes from exchange to exchange along the bindings and ends in queues. It takes each queue
once and visits each exchange once, so cycles end. An exchange at which nothing matched sends the
message on to its alternate exchange. The cost of a message is the cost of its keys at each exchange
it reaches (for topic and headers exchanges see `topic.py` and `headers.py`; elsewhere one
dictionary look-up a key), plus the bindings that match, each at most once a key.

A publisher may keep the result of `route` as long as `version` stays the same: it counts every
change that could give another result. The result holds for other messages with the same keys unless
`depends_on_message` is true: headers exchanges read the headers, random ones draw, and so on.

Invariants, `check()`: a binding is in its source's `outgoing` and its destination's `incoming` or
in neither, and both its ends are in `exchanges` or `queues`; an auto-delete exchange that lost its
last outgoing binding is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from warrenmq.routing.direct import DefaultExchange
from warrenmq.routing.exchange import Binding, Destination, Exchange, binding_identity
from warrenmq.routing.exchange_types import make_exchange
from warrenmq.routing.message_content import NO_FIELDS, MessageContent

# Exchanges of every vhost as (name, type, internal); all are durable, none is auto-delete.
PREDECLARED: Final = (
    (b"amq.direct", b"direct", False),
    (b"amq.fanout", b"fanout", False),
    (b"amq.topic", b"topic", False),
    (b"amq.headers", b"headers", False),
    (b"amq.match", b"headers", False),
    (b"amq.rabbitmq.trace", b"topic", True),
)
# Alternate exchanges that `depends_on_message` follows: a longer chain counts as dependent.
_ALTERNATES_FOLLOWED: Final = 4
# Random bytes for a draw: with a power of 2 so far above the number of bindings, each has the same
# chance.
_DRAWN_BYTES: Final = 8


@final
@mypyc_attr(native_class=True)
class RemovedBindings:
    """The bindings and exchanges that one call removed.

    The caller removes the durable ones from the metadata.
    """

    def __init__(self) -> None:
        self.bindings: list[Binding] = []
        # The exchange that was deleted, and auto-delete exchanges that lost their last binding.
        self.exchanges: list[Exchange] = []


@final
@mypyc_attr(native_class=True)
class Router:
    """Routes messages in one vhost.

    Read `exchanges` and `queues` freely; change them by the methods only.
    """

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        # Number of changes that could change a route.
        self.version: i64 = 0
        # The tries of all matches so far (`Exchange.tried`).
        self.tried: i64 = 0
        self.queues: dict[bytes, Destination] = {}
        self.default_exchange: DefaultExchange = DefaultExchange(self.queues)
        self.exchanges: dict[bytes, Exchange] = {b"": self.default_exchange}
        self._mark: i64 = 0
        # The number of the last exchange made; the default exchange has 0.
        self._last_number: i64 = 0
        self._random_bytes: Callable[[int], bytes] = random_bytes
        self._content: MessageContent = MessageContent()
        for name, type, internal in PREDECLARED:
            self._add(make_exchange(name, type, True, False, internal, b""))

    # -- the way of a message ----------------------------------------------------------------------

    def route(
        self,
        exchange: Exchange,
        routing_keys: list[bytes],
        headers: bytes,
        properties: bytes = b"",
        waits: list[Exchange] | None = None,
    ) -> list[Destination]:
        """The queues for a message published to `exchange`, as a new list in order of bindings.

        `routing_keys`: the key of the message, then those of CC and BCC. `headers`: the body of the
        headers table, `properties`: the block of all properties; each is decoded only if an
        exchange on the way reads it; ConnectionException 541 if it is malformed then.

        With `waits`, the delayed exchanges at which the message has to wait are appended there, and
        it goes no further from these; without, it waits nowhere.
        """
        self._mark += 1
        exchange.route_mark = self._mark
        if len(routing_keys) > 1:
            # Drop duplicates: a CC header may name one key thousands of times.
            routing_keys = list(dict.fromkeys(routing_keys))
        found: list[Destination] = []
        if exchange.is_by_keys:
            self._match_keys(exchange, routing_keys, found)
            # The most frequent case by far is one queue: nothing to follow, nothing to drop.
            if len(found) == 1 and found[0].is_queue:
                return found
            self._content.begin(headers, properties, waits)
        else:
            self._content.begin(headers, properties, waits)
            self._match_content(exchange, routing_keys, found)
            if len(found) == 1 and found[0].is_queue:
                return found
        return self._follow(exchange, found, routing_keys)

    def depends_on_message(self, exchange: Exchange) -> bool:
        """Whether two messages with the same key could take different routes from `exchange`.

        True for every exchange that may lead to one whose matches the keys do not decide, wherever
        its bindings really lead. Alternate exchanges are followed for some steps, as a policy may
        give all exchanges one.
        """
        for _ in range(_ALTERNATES_FOLLOWED):
            if not exchange.is_by_keys or exchange.exchange_binding_count > 0:
                return True
            if exchange.alternate is None:
                return False
            alternate = self.exchanges.get(exchange.alternate)
            if alternate is None:
                return False
            exchange = alternate
        return True

    def _follow(
        self, first: Exchange, found: list[Destination], routing_keys: list[bytes]
    ) -> list[Destination]:
        """Follow the destinations `found` at the `first` exchange to the queues."""
        mark = self._mark
        queues: list[Destination] = []
        # Exchanges to visit. Each is marked when it is added, so it is added once; the list grows
        # during the walk.
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
            is_lost = not found and not self._content.waits_at(exchange)
            if is_lost and exchange.alternate is not None:
                alternate = self.exchanges.get(exchange.alternate)
                if alternate is not None and alternate.route_mark != mark:
                    alternate.route_mark = mark
                    exchanges.append(alternate)
            position += 1
            if position == len(exchanges):
                return queues
            exchange = exchanges[position]
            found = []
            if exchange.is_by_keys:
                self._match_keys(exchange, routing_keys, found)
            else:
                self._match_content(exchange, routing_keys, found)

    def _match_keys(
        self, exchange: Exchange, routing_keys: list[bytes], found: list[Destination]
    ) -> None:
        """Append the destinations at an exchange where the keys decide."""
        tried = exchange.tried
        exchange.match(routing_keys, NO_FIELDS, found)
        self.tried += exchange.tried - tried

    def _match_content(
        self, exchange: Exchange, routing_keys: list[bytes], found: list[Destination]
    ) -> None:
        """Append the destinations at an exchange where the keys do not decide alone."""
        content = self._content
        if exchange.is_delayed and content.has_to_wait(exchange):
            return
        tried = exchange.tried
        exchange.match(routing_keys, content.fields(exchange.reads), found)
        self.tried += exchange.tried - tried
        if exchange.draws_one and len(found) > 1:
            number = int.from_bytes(self._random_bytes(_DRAWN_BYTES), "big")
            found[:] = [found[number % len(found)]]

    # -- queues and exchanges ----------------------------------------------------------------------

    def add_queue(self, queue: Destination) -> None:
        """Make a queue reachable by the default exchange and bindable; its name must be free."""
        assert queue.is_queue and queue.name not in self.queues
        self.version += 1
        self.queues[queue.name] = queue

    def remove_queue(self, queue: Destination) -> RemovedBindings:
        """Remove a queue and the bindings to it."""
        assert self.queues.get(queue.name) is queue
        self.version += 1
        del self.queues[queue.name]
        removed = RemovedBindings()
        self._remove_all(list(queue.incoming), removed)
        return removed

    def replace_queue(self, old: Destination, new: Destination) -> None:
        """Let `new`, which nothing is bound to, take the place of the queue `old` in all bindings.

        Both have the same name. No binding is made or removed, and their order stays.
        """
        assert self.queues.get(old.name) is old and new.is_queue and new.name == old.name
        assert len(new.incoming) == 0
        self.version += 1
        self.queues[new.name] = new
        new.incoming = old.incoming
        old.incoming = {}
        sources: dict[Exchange, None] = {}
        for binding in new.incoming:
            binding.destination = new
            sources[binding.source] = None
        for source in sources:
            source.on_replaced(old, new)

    def declare_exchange(
        self,
        name: bytes,
        type: bytes,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: bytes,
    ) -> Exchange:
        """Make an exchange, whose name must be free; raises as `make_exchange`."""
        assert name not in self.exchanges
        exchange = make_exchange(name, type, durable, auto_delete, internal, arguments)
        self.version += 1
        self._add(exchange)
        return exchange

    def set_alternate(self, exchange: Exchange, alternate: bytes | None) -> None:
        """Let `alternate` name the exchange for messages that match nothing at `exchange`."""
        self.version += 1
        exchange.alternate = alternate

    def delete_exchange(self, exchange: Exchange) -> RemovedBindings:
        """Remove an exchange (not the default one) and the bindings from and to it."""
        assert (
            self.exchanges.get(exchange.name) is exchange and exchange is not self.default_exchange
        )
        self.version += 1
        removed = RemovedBindings()
        self._remove_all(self._forget(exchange, removed), removed)
        return removed

    # -- bindings ----------------------------------------------------------------------------------

    def bind(
        self, source: Exchange, destination: Destination, key: bytes, arguments: bytes
    ) -> Binding | None:
        """Make a binding; returns None if an equal one exists.

        Both ends must exist; `source` must not be the default exchange. Raises ChannelException 406
        as `Exchange.check_binding` and `Exchange.check_room`.
        """
        if binding_identity(destination, key, arguments) not in source.outgoing:
            source.check_room(key)
        return self.restore_binding(source, destination, key, arguments)

    def restore_binding(
        self, source: Exchange, destination: Destination, key: bytes, arguments: bytes
    ) -> Binding | None:
        """Make a binding as `bind` does, but skip `check_room`.

        There is room for every binding from before a restart.
        """
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
        """Remove a binding; None if there is none.

        An auto-delete `source` goes with its last binding.
        """
        binding = source.outgoing.get(binding_identity(destination, key, arguments))
        if binding is None:
            return None
        self.version += 1
        removed = RemovedBindings()
        self._remove_all([binding], removed)
        return removed

    def bindings_of_source(self, exchange: Exchange) -> list[Binding]:
        """The bindings from `exchange`, for listings.

        The default exchange has one for each queue.
        """
        if exchange is self.default_exchange:
            return [self._implicit_binding(queue) for queue in self.queues.values()]
        return list(exchange.outgoing.values())

    def bindings_of_destination(self, destination: Destination) -> list[Binding]:
        """The bindings to `destination`, for listings.

        A queue's first one is from the default exchange.
        """
        bindings = list(destination.incoming)
        if destination.is_queue:
            bindings.insert(0, self._implicit_binding(destination))
        return bindings

    def all_bindings(self) -> list[Binding]:
        """The bindings of all exchanges, the default one's first, for listings."""
        bindings: list[Binding] = []
        for exchange in self.exchanges.values():
            bindings.extend(self.bindings_of_source(exchange))
        return bindings

    def check(self) -> None:
        """Assert the invariants of the module's docstring."""
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

    # -- parts -------------------------------------------------------------------------------------

    def _add(self, exchange: Exchange) -> None:
        self._last_number += 1
        exchange.number = self._last_number
        self.exchanges[exchange.name] = exchange

    def _remove_all(self, bindings: list[Binding], removed: RemovedBindings) -> None:
        """Remove `bindings`, then auto-delete exchanges left without any, then theirs, and so on.

        The list grows instead of the call stack, since clients may make a chain of auto-delete
        exchanges of any length.
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
        """Remove an exchange from the names; returns the bindings that must be removed with it."""
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
