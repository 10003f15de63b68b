"""One object with figures: a queue, an exchange, a channel, a connection, a node or a vhost.

Counters go on rising when the node that counts begins anew at 0, or when a queue moves to a node
that does: what had been counted before is in the object's offsets.
"""

from array import array
from collections.abc import Iterable
from typing import Final

from warrenmq.admin.protocol.changes import (
    CHANNEL,
    CONNECTION,
    COUNTERS,
    EXCHANGE,
    LEVELS,
    NODE,
    QUEUE,
)
from warrenmq.management.statistics.samples import NO_SLOT, Samples

# A kind of objects that the feed does not have: sums over what is in a vhost.
VHOST: Final = "vhost"
# Levels that a node and its vhosts sum up over their queues.
QUEUE_LEVELS: Final = ("messages_ready", "messages_unacknowledged")
# The names of an object's figures, in order: counters, then levels.
FIGURES: Final = {
    NODE: (*COUNTERS[NODE], *LEVELS[NODE], *QUEUE_LEVELS),
    QUEUE: (*COUNTERS[QUEUE], *LEVELS[QUEUE]),
    EXCHANGE: COUNTERS[EXCHANGE],
    CHANNEL: (*COUNTERS[CHANNEL], *LEVELS[CHANNEL]),
    CONNECTION: (*COUNTERS[CONNECTION], *LEVELS[CONNECTION]),
    VHOST: (*COUNTERS[CHANNEL], *COUNTERS[CONNECTION], *QUEUE_LEVELS),
}
# Levels without rates and samples: the API shows them as they are, and `memory` of a queue changes
# with each message.
_UNSAMPLED: Final = {
    QUEUE: ("message_bytes", "memory", "consumers"),
    CHANNEL: LEVELS[CHANNEL],
    CONNECTION: LEVELS[CONNECTION],
}
# The places of the figures that have rates and samples. Of the forms of a queue's messages alpha
# has none: it is what is left of the ready ones, so that a queue that does not page has no more
# samples than its length.
SAMPLED: Final = {
    kind: frozenset(
        place for place, name in enumerate(names) if name not in _UNSAMPLED.get(kind, ())
    )
    for kind, names in FIGURES.items()
}
# The place of the first level among the figures of a kind.
FIRST_LEVEL: Final = {
    **{kind: len(names) for kind, names in COUNTERS.items()},
    VHOST: len(FIGURES[VHOST]) - len(QUEUE_LEVELS),
}
assert LEVELS[QUEUE][: len(QUEUE_LEVELS)] == QUEUE_LEVELS


class Figures:
    """The figures of one object on one node, by their places in `FIGURES`."""

    __slots__ = (
        "_changes", "_offsets", "_slots", "birth", "changed_ms", "elapsed_ms", "epoch", "has_moved", "id", "kind", "name", "node", "round",
        "samples", "seen", "started_ms", "tick_ms", "vhost",
    )  # fmt: skip

    def __init__(self, samples: Samples, node: str, kind: str, vhost: str, name: str) -> None:
        self.samples = samples
        self.node = node
        self.kind = kind
        self.vhost = vhost
        self.name = name
        # Its id, and the start of the node since which it has the id.
        self.id = 0
        self.started_ms = 0
        # See ChangedObject.
        self.birth = 0
        self.epoch = 0
        # Another node has the queue, and its history.
        self.has_moved = False
        # The round in which the node has told of it last.
        self.round = 0
        # The last tick in which a figure changed or the object was new.
        self.changed_ms = 0
        # The last tick that told of the object, and the time since the tick before.
        self.tick_ms = 0
        self.elapsed_ms = 0
        # The last values that the node told.
        self.seen = array("q", bytes(8 * len(FIGURES[kind])))
        # Added to each value, so that counters go on after a start of the node; None: all are 0.
        self._offsets: array[int] | None = None
        # By how much each figure changed in the tick `tick_ms`; None: no figure ever changed.
        self._changes: array[int] | None = None
        # The slot of each figure in `Samples`; None: no figure has samples.
        self._slots: array[int] | None = None

    def value(self, figure: int) -> int:
        """The value of a figure, which never falls if it is a counter."""
        return self.seen[figure] + (self._offsets[figure] if self._offsets is not None else 0)

    def rate(self, figure: int) -> float:
        """The change of a sampled figure in the tick `tick_ms`, by second."""
        return 0.0 if self._changes is None else self._changes[figure] * 1000 / self.elapsed_ms

    def slot(self, figure: int) -> int:
        """The slot of a sampled figure in `samples`, or NO_SLOT."""
        return NO_SLOT if self._slots is None else self._slots[figure]

    def begin_anew(self) -> None:
        """The node that counts begins at 0."""
        counters = len(COUNTERS.get(self.kind, ()))
        if self._offsets is None:
            self._offsets = array("q", bytes(8 * len(self.seen)))
        for figure in range(counters):
            self._offsets[figure] += self.seen[figure]
            self.seen[figure] = 0

    def inherit(self, earlier: "Figures") -> None:
        """Go on with the figures and the history of this queue on the node that it has left."""
        first_level = FIRST_LEVEL[self.kind]
        self._offsets = array("q", bytes(8 * len(self.seen)))
        for figure in range(first_level):
            self._offsets[figure] = earlier.value(figure)
        self.seen[first_level:] = earlier.seen[first_level:]
        if earlier._slots is not None:
            self._slots = self.samples.inherit(earlier.samples, earlier._slots, self)
        earlier.close()

    def put(self, tick_ms: int, values: Iterable[int]) -> list[tuple[int, int]]:
        """Take what the node says of the first figures in a tick: an older node has fewer levels.

        Returns the changes of sampled figures: their places, and by how much.
        """
        seen = self.seen
        changes = [
            (figure, value - before)
            for figure, (value, before) in enumerate(zip(values, seen, strict=False))
            if value != before
        ]
        for figure, difference in changes:
            seen[figure] += difference
        if changes or not self.changed_ms:
            self.changed_ms = tick_ms
        sampled = SAMPLED[self.kind]
        return [each for each in changes if each[0] in sampled]

    def sample(self, tick_ms: int, elapsed_ms: int, changes: list[tuple[int, int]]) -> None:
        """Sample changes of a tick, `elapsed_ms` after the one before; the values have them."""
        if tick_ms != self.tick_ms:
            self.tick_ms = tick_ms
            self._changes = None
        self.elapsed_ms = elapsed_ms
        if not changes:
            return
        if self._changes is None:
            self._changes = array("q", bytes(8 * len(self.seen)))
        if self._slots is None:
            self._slots = array("i", [NO_SLOT]) * len(self.seen)
        samples = self.samples
        for figure, difference in changes:
            self._changes[figure] += difference
            slot = self._slots[figure]
            if slot == NO_SLOT:
                slot = self._slots[figure] = samples.slot_of(self, figure)
            if slot != NO_SLOT:
                samples.add(slot, difference)

    def dump(self) -> tuple[bytes, bytes | None, bytes | None]:
        """All figures as `resume` takes them."""
        return (
            self.seen.tobytes(),
            None if self._offsets is None else self._offsets.tobytes(),
            None if self._slots is None else self._slots.tobytes(),
        )

    def resume(self, seen: bytes, offsets: bytes | None, slots: bytes | None) -> None:
        """Go on with what `dump` gave. Raises ValueError if it is of other figures."""
        self.seen = _array("q", seen, len(self.seen))
        if offsets is not None:
            self._offsets = _array("q", offsets, len(self.seen))
        if slots is not None:
            self._slots = _array("i", slots, len(self.seen))
            for figure, slot in enumerate(self._slots):
                if slot != NO_SLOT:
                    self.samples.take(slot, self, figure, self.samples.since_ms[slot])

    def lose_slot(self, figure: int, tick_ms: int) -> None:
        """See SlotOwner."""
        assert self._slots is not None
        self._slots[figure] = NO_SLOT
        # The object has changed for those who keep it, although no figure has.
        self.sample(tick_ms, 1, [])

    def clear_samples(self, samples: Samples) -> None:
        """Forget rates and samples; `samples` has the next ones."""
        self.samples = samples
        self._changes = None
        self._slots = None

    def close(self) -> None:
        """Give the slots back: the object is gone."""
        for slot in self._slots or ():
            if slot != NO_SLOT:
                self.samples.give_back(slot)
        self._slots = None


def _array(typecode: str, data: bytes, length: int) -> "array[int]":
    values: array[int] = array(typecode)
    values.frombytes(data)
    if len(values) != length:
        raise ValueError(f"{len(values)} figures instead of {length}")
    return values
