"""Declares imported exchanges, queues and bindings in a cluster: it proposes them, kind after kind.

A binding can only be proposed when its ends are there, so each kind waits for the one before. What
exists by now stays as it is.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from warrenmq.admin.clock import Clock
from warrenmq.admin.definitions.new_topology import NewTopology
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import Change, PutBinding, PutExchange, PutQueue
from warrenmq.broker.definitions.shared import SharedDefinitions
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.routing.exchange import binding_identity
from warrenmq.vocabulary.names import name_text

# Proposals under way at the same time.
_SLICE: Final = 32


class Proposing:
    """Proposes `topology` in `vhost` to `shared`; then calls `done` with "" or what failed.

    `on_slice` gets the number of objects of each slice when the slice is decided. After a failure
    what was decided stays: another import goes on from there.
    """

    def __init__(
        self,
        broker: Broker,
        shared: SharedDefinitions,
        vhost: Vhost,
        topology: NewTopology,
        clock: Clock,
        on_slice: Callable[[int], None],
        done: Callable[[str], None],
    ) -> None:
        self._broker = broker
        self._shared = shared
        self._vhost = vhost
        self._clock = clock
        self._on_slice = on_slice
        self._done = done
        exchanges: list[Change] = []
        for exchange, durable in topology.exchanges:
            exchange.durable = durable
            exchanges.append(exchange)
        self._kinds: list[Iterator[Change]] = [
            iter(exchanges),
            iter(topology.queues),
            iter(topology.bindings),
        ]
        # Proposals of this slice that are not decided, and the first failure among them.
        self._left = 0
        self._failure = ""

    def start(self) -> None:
        """Propose the next slice, and then the others."""
        vhost = self._vhost
        if self._broker.vhosts.get(vhost.name) is not vhost:
            self._done(f"vhost '{name_text(vhost.name)}' is deleted")
            return
        if self._failure or not self._kinds:
            self._done(self._failure)
            return
        changes = list(islice(self._kinds[0], _SLICE))
        if not changes:
            self._kinds.pop(0)
            self._clock.call_soon(self.start)
            return
        wanted = [change for change in changes if self._is_missing(change)]
        self._on_slice(len(changes))
        self._left = len(wanted)
        if not wanted:
            self._clock.call_soon(self.start)
        for change in wanted:
            if isinstance(change, PutQueue):
                self._shared.place(change, None)
            self._shared.propose([change], self._decided)

    def _decided(self, failure: str, _now_ms: int) -> None:
        self._left -= 1
        if failure and not self._failure:
            name = name_text(self._vhost.name)
            self._failure = f"the cluster has not decided definitions of vhost '{name}': {failure}"
        if self._left == 0:
            self._clock.call_soon(self.start)

    def _is_missing(self, change: Change) -> bool:
        vhost = self._vhost
        router = vhost.router
        if isinstance(change, PutExchange):
            return change.name not in router.exchanges
        if isinstance(change, PutQueue):
            return vhost.taker(change.name) is None
        assert isinstance(change, PutBinding)
        source = router.exchanges.get(change.source)
        ends = router.queues if change.destination_is_queue else router.exchanges
        end = ends.get(change.destination)
        # With an end that was deleted meanwhile the binding would be gone too.
        return (
            source is not None
            and end is not None
            and binding_identity(end, change.key, change.arguments) not in source.outgoing
        )
