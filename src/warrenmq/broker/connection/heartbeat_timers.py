"""The heartbeat timers of all connections: a wheel of slots, so that one tick costs what is due.

A connection is in one slot, that of its next look or check. Those with long intervals pass their
slot once a round. A closed connection leaves when its slot comes round.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.broker.connection.connection import Connection
from warrenmq.broker.connection.states import CLOSED, RUNNING

# Time of one slot (ms): a look or check is at most this much late.
SLOT_MS: Final = 50
_SLOTS: Final = 256


class HeartbeatTimers:
    """Calls `Connection.look_at_heartbeats` of each open connection when it is due."""

    def __init__(self) -> None:
        self._slots: list[list[Connection]] = [[] for _ in range(_SLOTS)]
        # Number of the last slot that was visited, counted from 1970; -1: none yet.
        self._visited: i64 = -1

    def start(self, connection: Connection, interval_ms: i64) -> None:
        """Begin the heartbeats of `connection`, at this interval above 0 (ms)."""
        connection.heartbeats.start(interval_ms, connection.now_ms)
        self._add(connection)

    def tick(self, now_ms: i64) -> None:
        """Look at the connections that are due; to be called every SLOT_MS."""
        last: i64 = now_ms // SLOT_MS
        # After a long pause, one round visits every slot.
        number: i64 = max(self._visited + 1, last - _SLOTS + 1)
        while number <= last:
            self._visited = number
            self._visit(number % _SLOTS, now_ms)
            number += 1

    def _visit(self, place: i64, now_ms: i64) -> None:
        connections = self._slots[place]
        if len(connections) == 0:
            return
        self._slots[place] = []
        for connection in connections:
            if connection.state == CLOSED:
                continue
            if connection.state == RUNNING and connection.heartbeats.due_ms <= now_ms:
                connection.look_at_heartbeats(now_ms)
            self._add(connection)

    def _add(self, connection: Connection) -> None:
        # The slot begins when the connection is due, or is the next one if that time has passed.
        number: i64 = (connection.heartbeats.due_ms + SLOT_MS - 1) // SLOT_MS
        number = max(number, self._visited + 1)
        self._slots[number % _SLOTS].append(connection)
