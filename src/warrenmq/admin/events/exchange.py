"""The exchange `amq.rabbitmq.event`: events as messages, as RabbitMQ's event exchange has them.

A vhost has the exchange while a queue is bound to it (admin/control/event_queues.py declares it).
Each event of the node, of whichever vhost, is published to the exchanges that there are: the
routing key is the event's name, the headers are its fields, and the body is empty. The messages are
persistent, so an event in a durable queue is on disk with the next group commit of its vhost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from warrenmq.broker.broker import Broker
from warrenmq.broker.vhost.arrival import arrive
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.queues.settings import NO_LIMIT
from warrenmq.routing.exchange import Exchange
from warrenmq.store.model.message import Message
from warrenmq.wire.field_table import encode_table, fields_from_python
from warrenmq.wire.properties import Properties

EVENT_EXCHANGE: Final = b"amq.rabbitmq.event"
_PERSISTENT: Final = 2


class EventExchanges:
    """The event exchanges of the vhosts of `broker`; `later` runs a function in the next turn."""

    def __init__(self, broker: Broker, later: Callable[[Callable[[], object]], object]) -> None:
        self._broker = broker
        self._later = later
        # The names of the vhosts that have, or had, the exchange.
        self._vhosts = {
            name
            for name, vhost in broker.vhosts.items()
            if EVENT_EXCHANGE in vhost.router.exchanges
        }
        # Events that the next turn publishes: name, fields and time (ms since 1970).
        self._waiting: list[tuple[str, dict[str, Any], int]] = []

    @property
    def are_wanted(self) -> bool:
        """Whether there may be an exchange to publish to."""
        return bool(self._vhosts)

    def follow(self, name: str, subject: object, vhost: bytes) -> None:
        """Note the vhost of an event exchange that was declared."""
        if name != "exchange.created" or not isinstance(subject, Exchange):
            return
        if subject.name == EVENT_EXCHANGE:
            self._vhosts.add(vhost)

    def add(self, name: str, fields: dict[str, Any], now_ms: int) -> None:
        """Publish an event in the next turn: it is told in the midst of the change of a queue."""
        if not self._waiting:
            self._later(self._publish)
        self._waiting.append((name, fields, now_ms))

    def _publish(self) -> None:
        waiting, self._waiting = self._waiting, []
        for name in sorted(self._vhosts):
            vhost = self._broker.vhosts.get(name)
            exchange = None if vhost is None else vhost.router.exchanges.get(EVENT_EXCHANGE)
            if vhost is None or exchange is None:
                self._vhosts.discard(name)
                continue
            for event in waiting:
                _publish_in(vhost, exchange, *event)


def _publish_in(
    vhost: Vhost, exchange: Exchange, name: str, fields: dict[str, Any], now_ms: int
) -> None:
    key = name.encode()
    queues = vhost.route(exchange, [key], b"")
    if not queues:
        return
    address = bytes([len(EVENT_EXCHANGE)]) + EVENT_EXCHANGE + bytes([len(key)]) + key
    properties = Properties(
        headers=encode_table(fields_from_python(fields)),
        delivery_mode=_PERSISTENT,
        timestamp=now_ms // 1000,
    )
    message = Message(address, properties.encode(), b"", True, now_ms)
    arrive(queues, message, NO_LIMIT, 0, now_ms, False)
