"""Asks one node for what has changed, tick by tick, in a thread."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from warrenmq.admin.client.client import (
    AdminClient,
    AdminRefusedError,
    NodeAddress,
    NodeUnreachableError,
)
from warrenmq.admin.protocol.changes import COUNTERS, NODE, Changes, ReadChanges
from warrenmq.admin.protocol.control import DescribeUser, UserDescription
from warrenmq.management.feed.known_objects import KnownObjects
from warrenmq.management.feed.sink import ChangeSink

_log: Final = logging.getLogger("warren.management")

# The longest pause after a tick that has failed by a fault of this process (s).
_PAUSE_MAX_S: Final = 60.0


class NodeFeed:
    """The changes of `node`, "" for that at `address`, which passes on requests for other nodes.

    A tick of all kinds begins every `interval_s`, and one that takes longer delays the next. While
    the node does not answer, each interval costs one attempt. When the sink fails, the feed begins
    anew after a pause, which doubles with each failure in a row. `on_nodes` takes the node's own
    name and those of the running nodes with each tick.
    """

    def __init__(
        self,
        node: str,
        address: Callable[[], NodeAddress],
        sink: ChangeSink,
        interval_s: float,
        on_nodes: Callable[[str, list[str]], None],
    ) -> None:
        self._node = node
        self._address = address
        self._sink = sink
        self._interval_s = interval_s
        self._on_nodes = on_nodes
        # The name that the sink is told.
        self._name = node
        self._known = {kind: KnownObjects() for kind in COUNTERS}
        # None while there is no session.
        self._client: AdminClient | None = None
        # Sessions lost in a row, and whether the log says so.
        self._losses = 0
        self._is_told_lost = False
        self._ends = threading.Event()
        threading.Thread(target=self._run, name=f"feed of {node}", daemon=True).start()

    def end(self) -> None:
        """Begin no tick any more; one that is under way goes on."""
        self._ends.set()

    def _run(self) -> None:
        next_s = time.monotonic()
        pause_s = self._interval_s
        while not self._ends.wait(max(0.0, next_s - time.monotonic())):
            next_s = max(next_s, time.monotonic() - self._interval_s) + self._interval_s
            try:
                self._tick()
                pause_s = self._interval_s
            except (AdminRefusedError, NodeUnreachableError) as error:
                self._lose_session(str(error))
            except Exception as error:  # A bug costs ticks, and not the thread.
                self._lose_session("internal error", error)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)
                next_s = time.monotonic() + pause_s
        self._close()

    def _tick(self) -> None:
        client = self._session()
        now_ms = 0
        for kind in COUNTERS:
            has_more = True
            while has_more:
                answer = client.request(ReadChanges(kind, self._node), Changes)
                for changes in self._known[kind].completed(answer):
                    self._sink.on_changes(self._name, kind, changes)
                has_more, now_ms = answer.has_more, answer.now_ms
                if kind == NODE:
                    self._on_nodes(self._name, answer.nodes)
        self._losses = 0
        self._is_told_lost = False
        self._sink.on_tick(self._name, now_ms)

    def _session(self) -> AdminClient:
        if self._client is None:
            self._client = AdminClient(self._address(), "statistics")
            if not self._node:
                self._name = self._client.request(DescribeUser(), UserDescription).node
        return self._client

    def _lose_session(self, why: str, fault: Exception | None = None) -> None:
        self._close()
        for known in self._known.values():
            known.begin_session()
        self._losses += 1
        # A session breaks when its node stops, and mostly this process with it: one that cannot be
        # opened again is worth a warning.
        if not self._is_told_lost and (fault is not None or self._losses > 1):
            self._is_told_lost = True
            name = self._name or "(unknown)"
            _log.warning("no figures of node %s: %s", name, why, exc_info=fault)

    def _close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
