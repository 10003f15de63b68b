"""The internal events of a node for the sessions that watch them.

The broker has a listener only while a session watches. An event that no session wants is not even
made a text.
"""

from __future__ import annotations

import json
import time

from warrenmq.admin.events.fields import event_fields
from warrenmq.admin.events.queue import EventQueue
from warrenmq.broker.broker import Broker


class EventStream:
    """Gives the events of `broker` to the queues that are open."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._queues: list[EventQueue] = []

    def open(self, queue: EventQueue) -> None:
        """Give events to `queue` from now on."""
        self._queues.append(queue)
        self._broker.set_events(self._on_event)

    def close(self, queue: EventQueue) -> None:
        """Give no more events to `queue`."""
        self._queues.remove(queue)
        if not self._queues:
            self._broker.set_events(None)

    def _on_event(self, name: str, subject: object, vhost: bytes, user: bytes) -> None:
        queues = [queue for queue in self._queues if name in queue.names]
        if not queues:
            return
        now_ms = time.time_ns() // 1_000_000
        fields = {
            "event": name,
            **event_fields(self._broker, name, subject, vhost, user),
            "timestamp_in_ms": now_ms,
        }
        line = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
        for queue in queues:
            queue.add(line, now_ms)
