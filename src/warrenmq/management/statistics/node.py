"""All objects of one node with their figures, and the sums over its vhosts and its queues.

A tick begins with the first answer of the feed and ends with `end_tick`; all its changes count as
of one time.

A node that has started again tells of its queues and exchanges under new ids; they are known by
their names then, and their counters go on. Its first tick tells of everything, so those that it
has not told of are gone, although the feed takes all earlier objects for gone at once. The same
holds for objects that were read from a file.

A queue whose master moves is gone from one node and new on another one, in any order. The new node
takes over its figures and its history, so a queue that is gone keeps them for some ticks.
"""

from collections.abc import Callable, Iterable
from typing import Final

from warrenmq.admin.protocol.changes import (
    CHANNEL,
    CONNECTION,
    COUNTERS,
    EXCHANGE,
    NODE,
    QUEUE,
    ChangedObject,
    Changes,
)
from warrenmq.management.statistics.figures import FIGURES, VHOST, Figures
from warrenmq.management.statistics.retention import long_retention, short_retention
from warrenmq.management.statistics.samples import Samples

# Kinds of objects that are in a vhost.
MEMBER_KINDS: Final = (QUEUE, EXCHANGE, CHANNEL, CONNECTION)
# The first and the last of the figures that a vhost sums up, and how much further on they stand
# among the vhost's.
_SUMMED: Final = {
    CHANNEL: (0, len(COUNTERS[CHANNEL]) - 1, 0),
    CONNECTION: (0, len(COUNTERS[CONNECTION]) - 1, len(COUNTERS[CHANNEL])),
    QUEUE: (
        len(COUNTERS[QUEUE]),
        len(COUNTERS[QUEUE]) + 1,
        len(FIGURES[VHOST]) - 2 - len(COUNTERS[QUEUE]),
    ),
}
# A queue of a cluster that is gone keeps its figures for so many ticks, and so many queues do.
_DEPARTED_TICKS: Final = 3
_DEPARTED_MAX: Final = 1000
# How much further on the levels of queues stand among a node's figures than among a vhost's.
_VHOST_TO_NODE: Final = len(FIGURES[NODE]) - len(FIGURES[VHOST])


class NodeFigures:
    """The objects of the node called `name`; `tick_ms` is the interval of ticks.

    `claim` gives the figures of a queue that has moved here, which no other node has from then on;
    None for a queue that no other node had.
    """

    def __init__(
        self, name: str, tick_ms: int, claim: Callable[[ChangedObject], Figures | None]
    ) -> None:
        self.name = name
        self._interval_ms = tick_ms
        self._claim = claim
        # Samples of the node and its vhosts, and of all other objects.
        self.long = Samples(long_retention(tick_ms))
        self.short = Samples(short_retention(tick_ms))
        self.node = Figures(self.long, name, NODE, "", name)
        self.vhosts: dict[str, Figures] = {}
        # Figures of objects, by kind, then by vhost and name.
        self.objects: dict[str, dict[tuple[str, str], Figures]] = {
            each: {} for each in MEMBER_KINDS
        }
        # Figures of the objects that the node has told of since its start, by kind, then by id.
        self.ids: dict[str, dict[int, Figures]] = {each: {} for each in MEMBER_KINDS}
        self.started_ms = 0
        # The last tick that has ended (ms since 1970 by the node's clock), 0 for none.
        self.ended_ms = 0
        # The tick under way, 0 for none, and the time since the one before, 0 for the first.
        self._tick_ms = 0
        self._elapsed_ms = 0
        # Counts the ticks that tell of all objects; whether what they left out is removed.
        self._round = 0
        self._has_swept = True
        # Objects in each vhost; a vhost without any is gone.
        self._members: dict[str, int] = {}
        # Queues that are gone and that another node may have, by vhost and name, with the tick in
        # which they went; the one that went first is the first.
        self._departed: dict[tuple[str, str], tuple[Figures, int]] = {}

    def take(self, kind: str, changes: Changes) -> None:
        """Take an answer about objects of one kind."""
        if changes.started_ms != self.started_ms:
            self._begin_anew(changes.started_ms)
        if not self._tick_ms:
            self._begin_tick(changes.now_ms)
        if kind == NODE:
            for told in changes.changed:
                self._put(self.node, told)
            return
        for told in changes.changed:
            figures = self._object(kind, told)
            if not figures.has_moved:
                self._put(figures, told)
        ids = self.ids[kind]
        for number in changes.gone:
            found = ids.pop(number, None)
            if found is not None:
                self._remove(found)

    def end_tick(self, now_ms: int) -> None:
        """All changes of the tick are told."""
        if not self._tick_ms:
            self._begin_tick(now_ms)
        if not self._has_swept:
            self._has_swept = True
            self._sweep()
        self.ended_ms = self._tick_ms
        self._tick_ms = 0
        self._forget_departed(self.ended_ms - _DEPARTED_TICKS * self._interval_ms)

    def hand_over(self, told: ChangedObject) -> Figures | None:
        """The figures of the queue `told`, which another node has now; None if it was not here."""
        key = told.vhost, told.name
        figures = self.objects[QUEUE].get(key)
        is_here = figures is not None
        if figures is None and key in self._departed:
            figures = self._departed[key][0]
        if figures is None or figures.birth != told.birth or figures.epoch >= told.epoch:
            return None
        if is_here:
            self._take_out(figures)
        else:
            del self._departed[key]
        figures.has_moved = True
        return figures

    def find(self, kind: str, vhost: str, name: str) -> Figures | None:
        """The object of a kind with this name."""
        if kind == NODE:
            return self.node
        if kind == VHOST:
            return self.vhosts.get(vhost)
        return self.objects[kind].get((vhost, name))

    def all(self) -> list[Figures]:
        """Everything with figures."""
        found = [self.node, *self.vhosts.values()]
        for objects in self.objects.values():
            found.extend(objects.values())
        return found

    def clear_samples(self) -> None:
        """Forget all rates and samples; the next tick begins with the values of now."""
        self.long = Samples(long_retention(self._interval_ms))
        self.short = Samples(short_retention(self._interval_ms))
        self._departed = {}
        for figures in self.all():
            figures.clear_samples(self.samples_of(figures.kind))

    def samples_of(self, kind: str) -> Samples:
        """Where objects of a kind have their samples."""
        return self.long if kind in (NODE, VHOST) else self.short

    def resume(self, objects: Iterable[tuple[int, Figures]]) -> None:
        """Go on with objects, and their ids, that were read from a file."""
        for number, figures in objects:
            if figures.kind == NODE:
                self.node = figures
            elif figures.kind == VHOST:
                self.vhosts[figures.vhost] = figures
            else:
                self._add(figures)
                if figures.started_ms == self.started_ms:
                    self.ids[figures.kind][number] = figures
        self._expect_all()

    # -- ticks -------------------------------------------------------------------------------------

    def _begin_anew(self, started_ms: int) -> None:
        self.started_ms = started_ms
        self.node.begin_anew()
        self.ids = {each: {} for each in MEMBER_KINDS}
        self._expect_all()

    def _expect_all(self) -> None:
        """The next tick tells of all objects."""
        self._round += 1
        self._has_swept = False

    def _begin_tick(self, now_ms: int) -> None:
        self._tick_ms = max(now_ms, self.ended_ms + 1)
        self._elapsed_ms = self._tick_ms - self.ended_ms if self.ended_ms else 0
        self.long.begin_tick(self._tick_ms)
        self.short.begin_tick(self._tick_ms)

    def _put(self, figures: Figures, told: ChangedObject) -> None:
        figures.round = self._round
        changes = figures.put(self._tick_ms, _values(figures.kind, told))
        if self._elapsed_ms:
            figures.sample(self._tick_ms, self._elapsed_ms, changes)
        if changes:
            self._sum_up(figures, changes)

    def _sum_up(self, figures: Figures, changes: list[tuple[int, int]]) -> None:
        """Add changes of an object to its vhost, and those of levels of queues to the node."""
        summed = _SUMMED.get(figures.kind)
        if summed is None:
            return
        first, last, shift = summed
        wanted = [(place + shift, by) for place, by in changes if first <= place <= last]
        if not wanted:
            return
        self._add_to(self.vhosts[figures.vhost], wanted)
        if figures.kind == QUEUE:
            self._add_to(self.node, [(place + _VHOST_TO_NODE, by) for place, by in wanted])

    def _add_to(self, total: Figures, changes: list[tuple[int, int]]) -> None:
        for place, by in changes:
            total.seen[place] += by
        if self._elapsed_ms:
            # A queue may move away between two ticks.
            total.sample(self._tick_ms or self.ended_ms, self._elapsed_ms, changes)

    # -- objects -----------------------------------------------------------------------------------

    def _object(self, kind: str, told: ChangedObject) -> Figures:
        ids = self.ids[kind]
        figures = ids.get(told.id)
        if figures is not None and (not figures.has_moved or told.epoch <= figures.epoch):
            return figures
        figures = self.objects[kind].get((told.vhost, told.name))
        if figures is not None and figures.started_ms != self.started_ms:
            figures.begin_anew()
        else:
            if figures is not None:
                # The node tells later that the object that had this name is gone.
                self._remove(figures)
            figures = Figures(self.short, self.name, kind, told.vhost, told.name)
            self._add(figures)
            if told.birth:
                self._inherit(figures, told)
        figures.birth, figures.epoch = told.birth, told.epoch
        figures.started_ms = self.started_ms
        figures.id = told.id
        ids[told.id] = figures
        return figures

    def _add(self, figures: Figures) -> None:
        self.objects[figures.kind][figures.vhost, figures.name] = figures
        if figures.vhost not in self.vhosts:
            vhost = figures.vhost
            self.vhosts[vhost] = Figures(self.long, self.name, VHOST, vhost, vhost)
        self._members[figures.vhost] = self._members.get(figures.vhost, 0) + 1

    def _inherit(self, figures: Figures, told: ChangedObject) -> None:
        """Let a new queue go on with its figures at the node that it has left, if there is one."""
        earlier = self._claim(told)
        if earlier is not None:
            figures.inherit(earlier)
            self._sum_up(figures, _levels_of(figures, 1))

    def _remove(self, figures: Figures) -> None:
        """Remove an object, unless another one has taken its name and its place."""
        key = figures.vhost, figures.name
        if self.objects[figures.kind].get(key) is not figures:
            return
        self._take_out(figures)
        if figures.birth:
            self._forget(key)
            self._departed[key] = figures, self._tick_ms
        else:
            figures.close()

    def _forget_departed(self, since_ms: int) -> None:
        """Forget the queues that went before `since_ms`, and the first ones of too many."""
        for key, (_, gone_ms) in list(self._departed.items()):
            if gone_ms >= since_ms and len(self._departed) <= _DEPARTED_MAX:
                break
            self._forget(key)

    def _forget(self, key: tuple[str, str]) -> None:
        """Forget the queue of this vhost and name that has departed, if there is one."""
        if key in self._departed:
            self._departed.pop(key)[0].close()

    def _take_out(self, figures: Figures) -> None:
        """Let an object be none of this node's, which keeps its samples."""
        del self.objects[figures.kind][figures.vhost, figures.name]
        if figures.kind == QUEUE:
            self._sum_up(figures, _levels_of(figures, -1))
        self._members[figures.vhost] -= 1
        if not self._members[figures.vhost]:
            del self._members[figures.vhost]
            self.vhosts.pop(figures.vhost).close()

    def _sweep(self) -> None:
        """Remove the objects that the last round has not told of."""
        for kind in MEMBER_KINDS:
            ids = self.ids[kind]
            for number in [each for each, found in ids.items() if found.round != self._round]:
                self._remove(ids.pop(number))
            objects = self.objects[kind].values()
            for figures in [each for each in objects if each.round != self._round]:
                self._remove(figures)


def _values(kind: str, told: ChangedObject) -> list[int]:
    """The figures in their order; the counters that a node of an earlier version lacks are 0."""
    lacking = len(COUNTERS[kind]) - len(told.counters)
    return told.counters + [0] * lacking + told.levels


def _levels_of(queue: Figures, sign: int) -> list[tuple[int, int]]:
    """The levels of a queue that are summed up, by their places; negative with the sign -1."""
    first, last, _ = _SUMMED[QUEUE]
    return [(place, sign * queue.value(place)) for place in range(first, last + 1)]
