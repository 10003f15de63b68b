"""The program of a pattern that RE2 cannot express, for `machine.py`.

An instruction is a code with two numbers. All matching goes forward in the list but for the jumps
of loops; looks and atomic groups are programs of their own inside, each with an ACCEPT at its end.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from warrenmq.vocabulary.patterns import nodes
from warrenmq.vocabulary.patterns.errors import PatternError

ACCEPT: Final = 0
# Take an octet out of the set `first`.
OCTET: Final = 1
# Be at the place `first`.
PLACE: Final = 2
# Try at `first`; at `second` if that fails.
SPLIT: Final = 3
JUMP: Final = 4
# The program behind it, up to `first`: see `Look` and `Atomic`. A look behind begins `second`
# octets before the place.
AHEAD: Final = 5
NOT_AHEAD: Final = 6
BEHIND: Final = 7
NOT_BEHIND: Final = 8
ATOMIC: Final = 9
# Remember the place in the slot `first`.
MARK: Final = 10
# The group with the slots from `first` on ends here: start and end of its text, and the mark.
CLOSE: Final = 11
# Go to `second` if nothing was taken since the mark `first`: ends loops whose part can be empty.
IF_EMPTY: Final = 12
# Take the text of the group with the slots from `first` on; `second`: in any case of letters.
REPEAT: Final = 13

# Instructions, of which repeats may need many.
_LENGTH_MAX: Final = 4096
# A group has slots for the start and the end of its last text, and for the start of the next.
_GROUP_SLOTS: Final = 3


@final
class Program:
    """`codes`, `first` and `second` by index; `sets`: tables of 256 flags.

    `shortest`: octets that a match takes at least. `has_memory`: the rest of a match depends only
    on the instruction and the place, so each pair is tried once. References depend on texts, and an
    atomic group on the way through empty repeats.
    """

    def __init__(self, node: nodes.Node) -> None:
        """Raises PatternError when the program is too long."""
        self.codes: list[i64] = []
        self.first: list[i64] = []
        self.second: list[i64] = []
        self.sets: list[bytes] = []
        self.shortest: i64 = node.shortest
        self.slot_count: i64 = 0
        self._set_numbers: dict[int, i64] = {}
        # Slots of the groups that references repeat, by number of the group.
        self._slots: dict[i64, i64] = {}
        self._find_references(node)
        self.has_memory: bool = not self._slots and not _is_order_felt(node, False)
        self._write(node)
        self._add(ACCEPT, 0, 0)

    def _find_references(self, node: nodes.Node) -> None:
        if isinstance(node, nodes.Reference) and node.number not in self._slots:
            self._slots[node.number] = self.slot_count
            self.slot_count += _GROUP_SLOTS
        for part in _parts(node):
            self._find_references(part)

    def _add(self, code: i64, first: i64, second: i64) -> i64:
        if len(self.codes) >= _LENGTH_MAX:
            raise PatternError("regular expression is too large", 0)
        self.codes.append(code)
        self.first.append(first)
        self.second.append(second)
        return len(self.codes) - 1

    def _write(self, node: nodes.Node) -> None:
        if isinstance(node, nodes.Octet):
            self._add(OCTET, self._set_number(node.members), 0)
        elif isinstance(node, nodes.Place):
            self._add(PLACE, node.kind, 0)
        elif isinstance(node, nodes.Sequence):
            for part in node.parts:
                self._write(part)
        elif isinstance(node, nodes.Choice):
            self._write_choice(node.branches, ACCEPT)
        elif isinstance(node, nodes.Repeat):
            if node.mode == nodes.POSSESSIVE:
                self._write_inner(ATOMIC, nodes.Repeat(node.part, node.low, node.high, 0))
            else:
                self._write_repeat(node)
        elif isinstance(node, nodes.Group):
            self._write_group(node)
        elif isinstance(node, nodes.Reference):
            self._add(REPEAT, self._slots[node.number], int(node.is_caseless))
        elif isinstance(node, nodes.Atomic):
            self._write_inner(ATOMIC, node.part)
        elif isinstance(node, nodes.Look):
            self._write_look(node)

    def _write_look(self, node: nodes.Look) -> None:
        code = (AHEAD if node.is_ahead else BEHIND) + int(node.is_negative)
        if node.is_negative:
            for branch in node.branches:
                self._write_inner(code, branch)
        else:
            self._write_choice(node.branches, code)

    def _set_number(self, members: int) -> i64:
        number = self._set_numbers.get(members)
        if number is None:
            number = len(self.sets)
            self._set_numbers[members] = number
            self.sets.append(bytes([members >> octet & 1 for octet in range(256)]))
        return number

    def _write_choice(self, branches: list[nodes.Node], code: i64) -> None:
        """Branches of a choice, or those of a look with this code."""
        jumps: list[i64] = []
        for index, branch in enumerate(branches):
            is_last = index == len(branches) - 1
            split: i64 = -1 if is_last else self._add(SPLIT, len(self.codes) + 1, 0)
            if code == ACCEPT:
                self._write(branch)
            else:
                self._write_inner(code, branch)
            if not is_last:
                jumps.append(self._add(JUMP, 0, 0))
                self.second[split] = len(self.codes)
        for jump in jumps:
            self.first[jump] = len(self.codes)

    def _write_repeat(self, node: nodes.Repeat) -> None:
        for _ in range(node.low):
            self._write(node.part)
        if node.high == nodes.UNBOUNDED:
            self._write_loop(node)
            return
        splits: list[i64] = []
        for _ in range(node.high - node.low):
            splits.append(self._add(SPLIT, 0, 0))
            self._write(node.part)
        for split in splits:
            self._aim(split, split + 1, len(self.codes), node.mode)

    def _write_loop(self, node: nodes.Repeat) -> None:
        split = self._add(SPLIT, 0, 0)
        # With memory the machine comes to no instruction twice at a place, so no loop is endless.
        is_guarded = not self.has_memory and node.part.shortest == 0
        slot = self.slot_count
        if is_guarded:
            self.slot_count += 1
            self._add(MARK, slot, 0)
        self._write(node.part)
        guard = self._add(IF_EMPTY, slot, 0) if is_guarded else -1
        self._add(JUMP, split, 0)
        if guard >= 0:
            self.second[guard] = len(self.codes)
        self._aim(split, split + 1, len(self.codes), node.mode)

    def _aim(self, split: i64, part: i64, behind: i64, mode: i64) -> None:
        self.first[split] = behind if mode == nodes.LAZY else part
        self.second[split] = part if mode == nodes.LAZY else behind

    def _write_group(self, node: nodes.Group) -> None:
        slots = self._slots.get(node.number)
        if slots is None:
            self._write(node.part)
            return
        self._add(MARK, slots + 2, 0)
        self._write(node.part)
        self._add(CLOSE, slots, 0)

    def _write_inner(self, code: i64, node: nodes.Node) -> None:
        """Add an atomic group or a look. A look behind starts its own length before the place."""
        start = self._add(code, 0, node.shortest)
        self._write(node)
        self._add(ACCEPT, 0, 0)
        self.first[start] = len(self.codes)


def _parts(node: nodes.Node) -> list[nodes.Node]:
    if isinstance(node, nodes.Sequence):
        return node.parts
    if isinstance(node, nodes.Choice):
        return node.branches
    if isinstance(node, nodes.Repeat):
        return [node.part]
    if isinstance(node, nodes.Group):
        return [node.part]
    if isinstance(node, nodes.Atomic):
        return [node.part]
    if isinstance(node, nodes.Look):
        return node.branches
    return []


def _is_order_felt(node: nodes.Node, is_atomic: bool) -> bool:
    """Whether an atomic group has a loop whose part can be empty.

    Such a loop ends with an empty turn although the part could take octets in another way.
    """
    if isinstance(node, nodes.Atomic):
        is_atomic = True
    if isinstance(node, nodes.Repeat):
        is_atomic = is_atomic or node.mode == nodes.POSSESSIVE
        if is_atomic and node.high == nodes.UNBOUNDED and node.part.shortest == 0:
            return True
    return any([_is_order_felt(part, is_atomic) for part in _parts(node)])
