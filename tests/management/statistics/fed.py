"""Feeds for tests: ticks with the figures of a few objects, at times that the test chooses."""

from warrenmq.admin.protocol.changes import COUNTERS, LEVELS, NODE, ChangedObject, Changes
from warrenmq.management.statistics.retention import TICK_MS
from warrenmq.management.statistics.statistics import Statistics

NODE_NAME = "warren@here"
# A time at which intervals of all lengths begin.
START_MS = 1_699_833_600_000


def told(kind: str, number: int, name: str, /, **figures: int) -> ChangedObject:
    """An object in the vhost `/` with these figures, and others of 0."""
    counters = [figures.pop(each, 0) for each in COUNTERS[kind]]
    levels = [figures.pop(each, 0) for each in LEVELS[kind]]
    assert not figures
    return ChangedObject(number, "" if kind == NODE else "/", name, counters, levels)


class Fed:
    """Statistics with feeds of nodes, whose clock `now_ms` is that of requests, too."""

    def __init__(self) -> None:
        self.now_ms = self.started_ms = START_MS
        self.statistics = Statistics(clock_ms=lambda: self.now_ms)

    def tell(
        self,
        kind: str,
        *changed: ChangedObject,
        gone: tuple[int, ...] = (),
        node: str = NODE_NAME,
    ) -> None:
        """An answer of a node about objects of one kind."""
        changes = Changes(self.started_ms, self.now_ms, list(changed), list(gone), False)
        self.statistics.on_changes(node, kind, changes)

    def tick(self, *nodes: str, passed_ms: int = TICK_MS) -> None:
        """The end of a tick of `nodes`, or of the usual one; the next one is `passed_ms` later."""
        for node in nodes or (NODE_NAME,):
            self.statistics.on_tick(node, self.now_ms)
        self.now_ms += passed_ms
