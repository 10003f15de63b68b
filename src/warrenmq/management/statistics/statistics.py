"""The figures of all nodes: the sink of their feeds, and what requests read.

Feeds call from threads of their own, requests from others; a lock keeps a request from reading a
figure while its samples move. No step under the lock takes longer than one answer of the feed.
"""

import threading
import time
from collections.abc import Callable, Iterable
from functools import partial

from warrenmq.admin.protocol.changes import ChangedObject, Changes
from warrenmq.management.statistics.figures import VHOST, Figures
from warrenmq.management.statistics.node import NodeFigures
from warrenmq.management.statistics.retention import TICK_MS
from warrenmq.management.statistics.view import PLACES, View

# A node that has been silent for so many ticks has no rates.
_SILENT_TICKS = 3


class Statistics:
    """The figures of nodes whose ticks are `tick_ms` apart.

    `clock_ms` is the time in which requests count how long ago a tick was.
    """

    def __init__(self, tick_ms: int = TICK_MS, clock_ms: Callable[[], int] | None = None) -> None:
        self._tick_ms = tick_ms
        self._clock_ms = clock_ms or (lambda: time.monotonic_ns() // 1_000_000)
        self.lock = threading.Lock()
        self.nodes: dict[str, NodeFigures] = {}
        # The node that has ticked last, and when each has, by this process's clock.
        self._last_node = ""
        self._ended_ms: dict[str, int] = {}

    # -- the feed ----------------------------------------------------------------------------------

    def on_changes(self, node: str, kind: str, changes: Changes) -> None:
        """Take an answer of a tick about objects of one kind."""
        with self.lock:
            self._node(node).take(kind, changes)

    def on_tick(self, node: str, now_ms: int) -> None:
        """The answers of a tick about all kinds have come; `now_ms` is the node's time."""
        with self.lock:
            self._node(node).end_tick(now_ms)
        self._last_node = node
        self._ended_ms[node] = self._clock_ms()

    def new_node(self, name: str) -> NodeFigures:
        """A node of which nothing is known yet."""
        return NodeFigures(name, self._tick_ms, partial(self._claim, name))

    def _claim(self, claimant: str, told: ChangedObject) -> Figures | None:
        """The figures of a queue that has moved to the node `claimant`; see NodeFigures."""
        for node in self.nodes.values():
            if node.name != claimant:
                found = node.hand_over(told)
                if found is not None:
                    return found
        return None

    def _node(self, name: str) -> NodeFigures:
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = self.new_node(name)
        return node

    # -- requests ----------------------------------------------------------------------------------

    def find(self, kind: str, vhost: str = "", name: str = "", node: str = "") -> View:
        """The object of a kind with this name, on `node` or on all nodes that have it."""
        found = [each.find(kind, vhost, name) for each in self._chosen(node)]
        return self._view(kind, [each for each in found if each is not None])

    def find_vhosts(self, names: Iterable[str]) -> View:
        """The vhosts called `names` as one."""
        chosen = self._chosen("")
        found = [each.find(VHOST, name, name) for name in names for each in chosen]
        return self._view(VHOST, [each for each in found if each is not None])

    def idle_since_ms(self, kind: str, vhost: str, name: str) -> int:
        """The tick in which an object changed last, 0 if that is the last one or none is known."""
        newest_ms = 0
        for node in self._chosen(""):
            figures = node.find(kind, vhost, name)
            if figures is not None:
                if figures.changed_ms >= node.ended_ms:
                    return 0
                newest_ms = max(newest_ms, figures.changed_ms)
        return newest_ms

    def by_name(
        self, kind: str, names: Iterable[str], is_rate: bool
    ) -> dict[tuple[str, str], float]:
        """By vhost and name, the sum of some figures of all objects of a kind, or of their rates.

        Without objects whose figures are 0.
        """
        places = [PLACES[kind][name] for name in names]
        found: dict[tuple[str, str], float] = {}
        for node in self._chosen(""):
            for key, figures in list(node.objects[kind].items()):
                if is_rate:
                    value = sum(map(figures.rate, places)) if self._is_current(figures) else 0.0
                else:
                    value = sum(map(figures.value, places))
                if value:
                    found[key] = found.get(key, 0) + value
        return found

    def clear(self, node: str = "") -> None:
        """Forget the rates and samples of a node, or of all nodes; values stay."""
        for each in self._chosen(node):
            with self.lock:
                each.clear_samples()

    def _view(self, kind: str, objects: list[Figures]) -> View:
        return View(kind, objects, self._is_current, self._now_ms(), self.lock)

    def _now_ms(self) -> int:
        """The time by the clock of the node that has ticked last, 0 before the first tick."""
        if not self._last_node:
            return 0
        passed_ms = self._clock_ms() - self._ended_ms[self._last_node]
        return self.nodes[self._last_node].ended_ms + passed_ms

    def _is_current(self, figures: Figures) -> bool:
        """Whether its rates are those of the last tick, and that is not long ago."""
        node = figures.node
        ended_ms = self._ended_ms.get(node)
        if ended_ms is None or figures.tick_ms < self.nodes[node].ended_ms:
            return False
        return self._clock_ms() - ended_ms < _SILENT_TICKS * self._tick_ms

    def _chosen(self, node: str) -> list[NodeFigures]:
        return [each for each in list(self.nodes.values()) if node in ("", each.name)]
