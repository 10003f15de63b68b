"""The differences of many figures over time, at several resolutions, in a bounded memory.

A ring has a row for each of the last intervals, and a row has a place, the slot, for each figure:
by how much it changed in the interval. A figure that does not change costs nothing, neither time
at a tick nor, until its first change, a slot. Its value at an earlier time is its value now without
the differences since then.

A slot that has not changed within the span of the coarsest ring is free again: all its differences
are 0. When all slots are in use, a figure that begins to change has no samples until one is free.
"""

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from warrenmq.management.statistics.retention import Resolution, Retention

# No slot: the figure has not changed within the span of the samples, or all slots are in use.
NO_SLOT: Final = -1
# Slots by which the tables grow, and slots that one tick checks for whether they are free again.
_BLOCK: Final = 512


class SlotOwner(Protocol):
    """An object with figures that have slots."""

    def lose_slot(self, figure: int, tick_ms: int) -> None:
        """The slot of a figure, by its index, is that of no figure from the tick `tick_ms` on."""


class SlotMove(NamedTuple):
    """A figure goes from a slot, which it has since `since_ms`, to one in other samples."""

    old: int
    new: int
    since_ms: int


class Ring:
    """Rows of the last intervals of one resolution; an interval has a number, time / length."""

    def __init__(self, resolution: Resolution, typecode: str, silence_ms: int) -> None:
        self.resolution = resolution
        self._typecode = typecode
        # Ticks that are so far apart have missed something.
        self._silence_ms = silence_ms
        # By number modulo `kept`. Rows may be shorter than the table: slots beyond are 0.
        self.rows: list[array[float]] = [array(typecode) for _ in range(resolution.kept)]
        # The time of the last tick in each interval, 0 for an interval without one.
        self.ticks_ms = array("q", bytes(8 * resolution.kept))
        # The number of the open interval, 0 before the first tick.
        self.newest = 0

    def open(self, at_ms: int, slots: int) -> "array[float]":
        """The row of the interval of `at_ms`, with place for `slots` figures.

        A clock that was set back stays in its newest interval; the ring begins anew when it was set
        back by more than the ring's span.
        """
        interval_ms, kept = self.resolution
        number = at_ms // interval_ms
        if number + kept < self.newest:
            self.newest = 0
        if number > self.newest:
            self._advance(number, at_ms)
        place = self.newest % kept
        self.ticks_ms[place] = max(self.ticks_ms[place], at_ms)
        row = self.rows[place]
        row.frombytes(bytes((slots - len(row)) * row.itemsize))
        return row

    def _advance(self, number: int, at_ms: int) -> None:
        kept = self.resolution.kept
        before = self.newest
        before_ms = self.ticks_ms[before % kept]
        for passed in range(max(before + 1, number - kept + 1), number + 1):
            self.rows[passed % kept] = array(self._typecode)
            self.ticks_ms[passed % kept] = 0
        self.newest = number
        if number == before + 2 and at_ms - before_ms < self._silence_ms:
            # Ticks are a bit more than an interval apart, so that one interval has none. Its change
            # is in the next row.
            self.ticks_ms[(number - 1) % kept] = before_ms

    def copy(self, source: "Ring", moves: Sequence["SlotMove"]) -> None:
        """Copy the samples of moved objects from their slots in `source` to their new slots here.

        The change of an interval that has no tick here is in the next one that has.
        """
        kept = self.resolution.kept
        size = max([each.new for each in moves]) + 1
        changes = [0.0] * len(moves)
        for number in range(self.newest - kept + 1, max(self.newest, source.newest) + 1):
            tick_ms = source.tick_ms(number)
            if tick_ms:
                found = source.rows[number % kept]
                for place, (old, _, since_ms) in enumerate(moves):
                    if old < len(found) and tick_ms >= since_ms:
                        changes[place] += found[old]
            if self.tick_ms(number):
                row = self.rows[number % kept]
                row.frombytes(bytes(max(0, size - len(row)) * row.itemsize))
                for change, each in zip(changes, moves, strict=True):
                    row[each.new] = change
                changes = [0.0] * len(moves)
        # The other node's clock is ahead.
        row = self.rows[self.newest % kept]
        for change, each in zip(changes, moves, strict=True):
            row[each.new] += change

    def resume(self, number: int, tick_ms: int, differences: bytes) -> None:
        """Take over an interval from a file, the newest last. Raises ValueError for odd bytes."""
        self._advance(number, tick_ms)
        place = number % self.resolution.kept
        self.rows[place].frombytes(differences)
        self.ticks_ms[place] = tick_ms

    def tick_ms(self, number: int) -> int:
        """The time of the last tick in an interval, 0 if it has none or is out of reach."""
        if self.newest - self.resolution.kept < number <= self.newest:
            return self.ticks_ms[number % self.resolution.kept]
        return 0

    def difference(self, number: int, slot: int, since_ms: int) -> float:
        """By how much the figure in `slot`, taken at `since_ms`, changed in an interval."""
        tick_ms = self.tick_ms(number)
        if not tick_ms or tick_ms < since_ms:
            return 0.0
        row = self.rows[number % self.resolution.kept]
        return row[slot] if slot < len(row) else 0.0


class Samples:
    """The rings of a group of figures, and who has which slot."""

    def __init__(self, retention: Retention) -> None:
        self.retention = retention
        silence_ms = 2 * retention.resolutions[0].interval_ms
        self.rings = [Ring(each, retention.typecode, silence_ms) for each in retention.resolutions]
        # By slot: since when it has its figure, and when that changed last.
        self.since_ms = array("q")
        self._changed_ms = array("q")
        self._owners: list[tuple[SlotOwner, int] | None] = []
        self._free: list[int] = []
        # The open row of each ring, and the time of the tick that opened them.
        self._open: list[array[float]] = []
        self._tick_ms = 0
        self._next_check = 0

    def begin_tick(self, at_ms: int) -> None:
        """What `add` is told from now on has happened up to `at_ms`."""
        if at_ms != self._tick_ms:
            self._tick_ms = at_ms
            self._open_rows()
            self._free_idle()

    def slot_of(self, owner: SlotOwner, figure: int) -> int:
        """A slot for a figure of `owner` that begins to change; NO_SLOT if all are in use."""
        if not self._free and len(self._owners) < self.retention.slots_max:
            self._grow()
            self._open_rows()
        if not self._free:
            return NO_SLOT
        slot = self._free.pop()
        self.take(slot, owner, figure, self._tick_ms)
        for row in self._open:
            row[slot] = 0
        return slot

    def take(self, slot: int, owner: SlotOwner, figure: int, since_ms: int) -> None:
        """Give a slot that is not in use to a figure of `owner`."""
        self._owners[slot] = (owner, figure)
        self.since_ms[slot] = since_ms
        self._changed_ms[slot] = self._tick_ms

    def inherit(self, source: "Samples", slots: Sequence[int], owner: SlotOwner) -> "array[int]":
        """A slot for each figure of `owner` that has one of `slots` in `source`, with its samples.

        NO_SLOT for the others, and once all slots are in use.
        """
        taken = array("i", [NO_SLOT]) * len(slots)
        moves = []
        for figure, old in enumerate(slots):
            new = NO_SLOT if old == NO_SLOT else self.slot_of(owner, figure)
            if new != NO_SLOT:
                taken[figure] = new
                self.since_ms[new] = source.since_ms[old]
                moves.append(SlotMove(old, new, source.since_ms[old]))
        if moves:
            for ring, other in zip(self.rings, source.rings, strict=True):
                ring.copy(other, moves)
        return taken

    def give_back(self, slot: int) -> None:
        """The figure is gone."""
        self._owners[slot] = None
        self._free.append(slot)

    def add(self, slot: int, difference: int) -> None:
        """The figure in `slot` has changed by `difference`."""
        for row in self._open:
            row[slot] += difference
        self._changed_ms[slot] = self._tick_ms

    def ring_for(self, age_ms: int, step_ms: int) -> Ring:
        """The coarsest ring that reaches back `age_ms` and is fine enough for steps of `step_ms`.

        If there is none, the finest one that reaches back, or the one that reaches furthest.
        """
        reaching = [each for each in self.rings if each.resolution.span_ms >= age_ms]
        fitting = [each for each in reaching if each.resolution.interval_ms <= step_ms]
        if fitting:
            return fitting[-1]
        return reaching[0] if reaching else self.rings[-1]

    def resume(self, since_ms: bytes, tick_ms: int) -> None:
        """Go on with rings that were read from a file, of the slots since `since_ms`.

        The figures then `take` their slots.
        """
        while 8 * len(self._owners) < len(since_ms):
            self._grow()
        self.since_ms = array("q", since_ms)
        self._tick_ms = tick_ms
        self._open_rows()

    def end_resume(self) -> None:
        """The slots that no figure has taken are free."""
        self._free = [slot for slot, owner in enumerate(self._owners) if owner is None]

    @property
    def slots(self) -> int:
        """Slots of the tables, in use or not."""
        return len(self._owners)

    def _open_rows(self) -> None:
        self._open = [ring.open(self._tick_ms, len(self._owners)) for ring in self.rings]

    def _grow(self) -> None:
        first = len(self._owners)
        self._owners.extend([None] * _BLOCK)
        self.since_ms.frombytes(bytes(8 * _BLOCK))
        self._changed_ms.frombytes(bytes(8 * _BLOCK))
        self._free.extend(range(first + _BLOCK - 1, first - 1, -1))

    def _free_idle(self) -> None:
        """Free those of the next slots that have not changed for so long that all is 0."""
        oldest_ms = self._tick_ms - self.retention.span_ms - self.rings[-1].resolution.interval_ms
        last = min(self._next_check + _BLOCK, len(self._owners))
        for slot in range(self._next_check, last):
            owner = self._owners[slot]
            if owner is not None and self._changed_ms[slot] < oldest_ms:
                owner[0].lose_slot(owner[1], self._tick_ms)
                self.give_back(slot)
        self._next_check = last if last < len(self._owners) else 0
