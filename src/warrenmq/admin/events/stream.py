"""The internal events of a node, for the sessions that watch them and for the event exchanges.

An event that nobody wants is not even made a text.
"""

from __future__ import annotations

import json
import time

from warrenmq.admin.clock import Clock
from warrenmq.admin.events.exchange import EventExchanges
from warrenmq.admin.events.fields import event_fields
from warrenmq.admin.events.queue import EventQueue
from warrenmq.broker.broker import Broker
from warrenmq.queues.remote.queue import RemoteQueue


class EventStream:
    """Gives the events of `broker` to the queues that are open, and to the event exchanges."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._queues: list[EventQueue] = []
        # None: the node publishes no events (yet).
        self._exchanges: EventExchanges | None = None

    def publish(self, clock: Clock) -> None:
        """Publish events to the event exchanges from now on: the vhosts are there."""
        self._exchanges = EventExchanges(self._broker, clock.call_soon)
        self._broker.set_events(self._on_event)

    def open(self, queue: EventQueue) -> None:
        """Give events to `queue` from now on."""
        self._queues.append(queue)
        self._broker.set_events(self._on_event)

    def close(self, queue: EventQueue) -> None:
        """Give no more events to `queue`."""
        self._queues.remove(queue)
        if not self._queues and self._exchanges is None:
            self._broker.set_events(None)

    def _on_event(self, name: str, subject: object, vhost: bytes, user: bytes) -> None:
        queues = [queue for queue in self._queues if name in queue.names]
        exchanges = self._exchanges
        if exchanges is not None:
            exchanges.follow(name, subject, vhost)
            if not exchanges.are_wanted:
                exchanges = None
        if not queues and exchanges is None:
            return
        if isinstance(subject, RemoteQueue):
            # The node that has the queue tells of it.
            return
        now_ms = time.time_ns() // 1_000_000
        fields = event_fields(self._broker, name, subject, vhost, user)
        if queues:
            told = {"event": name, **fields, "timestamp_in_ms": now_ms}
            line = json.dumps(told, separators=(",", ":"), ensure_ascii=False)
            for queue in queues:
                queue.add(line, now_ms)
        if exchanges is not None:
            node = self._broker.settings.node_name
            exchanges.add(name, {**fields, "node": node, "timestamp_in_ms": now_ms}, now_ms)
