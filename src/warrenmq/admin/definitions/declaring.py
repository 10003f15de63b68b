"""Declares imported exchanges, queues and bindings in a running vhost.

As for a client's declaration, a new thing is in memory first and then stored; what cannot be stored
is taken back. What exists by now stays as it is.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice

from warrenmq.admin.clock import Clock
from warrenmq.admin.definitions.document import SLICE_ROWS
from warrenmq.admin.definitions.new_topology import NewTopology
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import Change, PutBinding, PutExchange, PutQueue
from warrenmq.broker.vhost.new_definitions import New, store_new
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.queues.arguments import parse_arguments
from warrenmq.queues.definition import QueueDefinition
from warrenmq.vocabulary.names import name_text
from warrenmq.wire.errors import AmqpError


class Declaring:
    """Declares `topology` in `vhost`, a slice a turn; then calls `done` with "" or what failed.

    `on_slice` gets the number of objects of each slice when the slice is declared.
    A failure leaves the slices before it in place: another import goes on from there.
    """

    def __init__(
        self,
        broker: Broker,
        vhost: Vhost,
        topology: NewTopology,
        clock: Clock,
        on_slice: Callable[[int], None],
        done: Callable[[str], None],
    ) -> None:
        self._broker = broker
        self._vhost = vhost
        self._clock = clock
        self._on_slice = on_slice
        self._done = done
        self._steps: Iterator[Callable[[], None]] = chain(
            (partial(self._declare_exchange, *each) for each in topology.exchanges),
            (partial(self._declare_queue, each) for each in topology.queues),
            (partial(self._bind, each) for each in topology.bindings),
        )
        # Durable things of this slice, with the changes that store them.
        self._made: list[New] = []
        self._changes: list[Change] = []

    def start(self) -> None:
        """Declare the next slice, and then the others."""
        vhost = self._vhost
        if self._broker.vhosts.get(vhost.name) is not vhost:
            self._done(f"vhost '{name_text(vhost.name)}' is deleted")
            return
        self._made = []
        self._changes = []
        steps = list(islice(self._steps, SLICE_ROWS))
        if not steps:
            self._done("")
            return
        for step in steps:
            step()
        self._on_slice(len(steps))
        if not self._changes:
            self._clock.call_soon(self.start)
            return

        def on_stored(ok: bool, _now_ms: int) -> None:
            if ok:
                self._clock.call_soon(self.start)
            else:
                name = name_text(vhost.name)
                self._done(f"definitions of vhost '{name}' could not be written to disk")

        store_new(vhost, self._made, self._changes).callbacks.append(on_stored)

    def _declare_exchange(self, exchange: PutExchange, durable: bool) -> None:
        router = self._vhost.router
        if exchange.name in router.exchanges:
            return
        new = router.declare_exchange(
            exchange.name,
            exchange.type,
            durable,
            exchange.auto_delete,
            exchange.internal,
            exchange.arguments,
        )
        self._vhost.policies.on_exchange(new)
        self._vhost.announce("exchange.created", new)
        if durable:
            self._store(new, exchange)

    def _declare_queue(self, queue: PutQueue) -> None:
        vhost = self._vhost
        if queue.name in vhost.queues:
            return
        definition = QueueDefinition(
            queue.name,
            vhost.node.next_queue_id(),
            queue.durable,
            queue.auto_delete,
            None,
            queue.arguments,
            parse_arguments(queue.arguments, vhost.queue_text(queue.name)),
        )
        new = vhost.add_queue(definition, self._clock.now_ms())
        if queue.durable:
            self._store(
                new,
                PutQueue(vhost.name, new.id, queue.name, True, queue.auto_delete, queue.arguments),
            )

    def _bind(self, binding: PutBinding) -> None:
        router = self._vhost.router
        source = router.exchanges.get(binding.source)
        ends = router.queues if binding.destination_is_queue else router.exchanges
        destination = ends.get(binding.destination)
        if source is None or destination is None:
            # An end was deleted meanwhile, and with it would the binding be.
            return
        try:
            new = router.bind(source, destination, binding.key, binding.arguments)
        except AmqpError:
            # The source is another exchange by now, which takes no such binding.
            return
        if new is None:
            return
        self._vhost.announce("binding.created", new)
        if new.is_durable():
            self._store(new, binding)

    def _store(self, made: New, change: Change) -> None:
        self._made.append(made)
        self._changes.append(change)
