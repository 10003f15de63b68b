"""The call of one session that lets a durable queue take the events of the node or the cluster.

It declares what a client cannot: the exchange `amq.rabbitmq.event`, which goes with its last
binding, and with it a queue and its bindings, as an import of definitions would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from warrenmq.admin.clock import Clock
from warrenmq.admin.control.permits import Permits
from warrenmq.admin.definitions.administration import Refusal
from warrenmq.admin.definitions.declaring import Declaring
from warrenmq.admin.definitions.new_topology import NewTopology
from warrenmq.admin.definitions.proposing import Proposing
from warrenmq.admin.events.exchange import EVENT_EXCHANGE
from warrenmq.admin.protocol.control import ControlReply, Done
from warrenmq.admin.protocol.requests import ErrorReply
from warrenmq.admin.protocol.watching import KeepEvents
from warrenmq.broker.broker import Broker
from warrenmq.broker.channel.tracing import TRACE_EXCHANGE
from warrenmq.broker.definitions.limits import is_reached
from warrenmq.broker.definitions.metadata import PutBinding, PutExchange, PutQueue
from warrenmq.broker.definitions.rights import EXCHANGE, QUEUE
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.vocabulary.error_codes import ACCESS_REFUSED, PRECONDITION, STORAGE_FAILED
from warrenmq.vocabulary.names import name_text

_TELLERS: Final = (EVENT_EXCHANGE, TRACE_EXCHANGE)


class EventQueueCalls:
    """Declares the event queues of a session, each answered once, through `reply`."""

    def __init__(
        self,
        broker: Broker,
        permits: Permits,
        clock: Clock,
        reply: Callable[[ControlReply | ErrorReply], None],
    ) -> None:
        self._broker = broker
        self._permits = permits
        self._clock = clock
        self._reply = reply

    def keep(self, request: KeepEvents) -> None:
        """Declare the queue with its bindings. Raises Refusal."""
        name = request.queue
        vhost = self._permits.expect_configure(request.vhost, name)
        keys = [(EVENT_EXCHANGE, key) for key in request.events]
        keys += [(TRACE_EXCHANGE, key) for key in request.messages]
        self._expect_rights(vhost, name, {source for source, _ in keys})
        self._expect_room(vhost, name, set(keys))
        topology = NewTopology(
            exchanges=[
                (PutExchange(vhost.name, EVENT_EXCHANGE, b"topic", True, True, b""), True)
                for _ in request.events[:1]
            ],
            queues=[PutQueue(vhost.name, 0, name, True, False, b"")],
            bindings=[PutBinding(vhost.name, source, name, True, key, b"") for source, key in keys],
        )
        shared = self._broker.shared
        if shared is None:
            Declaring(
                self._broker, vhost, topology, self._clock, _ignore, self._on_declared
            ).start()
        else:
            Proposing(
                self._broker, shared, vhost, topology, self._clock, _ignore, self._on_declared
            ).start()

    def _expect_rights(self, vhost: Vhost, queue: bytes, sources: set[bytes]) -> None:
        """Expect what `queue.bind` asks for."""
        rights = self._permits.user.rights(vhost.name)
        refusals = [rights.write_refusal(QUEUE, queue)]
        refusals += [rights.read_refusal(EXCHANGE, source) for source in sorted(sources)]
        for refusal in refusals:
            if refusal:
                raise Refusal(ACCESS_REFUSED, refusal)

    def _expect_room(self, vhost: Vhost, name: bytes, keys: set[tuple[bytes, bytes]]) -> None:
        """Expect a queue with no other events, or room for a new one."""
        queue = vhost.taker(name)
        if queue is None:
            if is_reached(vhost.limits.max_queues, len(vhost.router.queues)):
                text = f"vhost '{name_text(vhost.name)}' may have no more queues"
                raise Refusal(PRECONDITION, text)
            return
        known = {
            (binding.source.name, binding.key)
            for binding in queue.incoming
            if binding.source.name in _TELLERS
        }
        # Some of the bindings may be missing: a request before this one may have been cut short.
        other = sorted(known - keys)
        if other or not queue.durable:
            what = f"takes events {name_text(other[0][1])}" if other else "is not durable"
            text = f"{vhost.queue_text(name)} {what}: choose another name, or delete it"
            raise Refusal(PRECONDITION, text)

    def _on_declared(self, failure: str) -> None:
        self._reply(ErrorReply(STORAGE_FAILED, failure) if failure else Done())


def _ignore(_count: int) -> None:
    pass
