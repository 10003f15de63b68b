"""Runs the program of a pattern (`program.py`): a backtracking machine that counts its steps.

A program with memory tries each instruction once at each place of the name, as an attempt that has
failed fails again: the time grows with the product of both lengths, however the pattern repeats.
The text of a reference makes this impossible, and a look that succeeds is tried anew. The count of
steps bounds these. RabbitMQ ends a match likewise, at PCRE's limit, and the name does not match.

Steps are counted, and time is not measured: an answer about rights must not depend on how busy the
machine is.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from warrenmq.vocabulary.patterns import nodes
from warrenmq.vocabulary.patterns.octets import UPPER, WORD
from warrenmq.vocabulary.patterns.program import (
    ACCEPT,
    ATOMIC,
    BEHIND,
    CLOSE,
    IF_EMPTY,
    JUMP,
    MARK,
    NOT_AHEAD,
    NOT_BEHIND,
    OCTET,
    PLACE,
    REPEAT,
    SPLIT,
    Program,
)

# The place that means: no match.
_FAILED: Final = -1
_NEWLINE: Final = 10
_IS_WORD: Final = bytes([WORD >> octet & 1 for octet in range(256)])
_LOWER_CASE: Final = bytes([octet + 32 if UPPER >> octet & 1 else octet for octet in range(256)])


class OutOfSteps(Exception):
    """A search took all its steps without an answer."""


@final
class Machine:
    """One search of a program in a name, of at most `steps_max` steps."""

    def __init__(self, program: Program, name: bytes, steps_max: i64) -> None:
        self._program: Program = program
        self._name: bytes = name
        self._size: i64 = len(name)
        self.steps: i64 = 0
        self._steps_max: i64 = steps_max
        # Instructions tried at places, as `instruction * (size + 1) + place`.
        self._tried: set[i64] = set()
        self._slots: list[i64] = [-1] * program.slot_count
        # Attempts to come back to: instruction and place, or ~slot and its former value.
        self._stack: list[i64] = []

    def is_found(self) -> bool:
        """Whether the program matches somewhere in the name; OutOfSteps if it takes too many."""
        last = self._size - self._program.shortest
        start: i64 = 0
        while start <= last and self._run(0, start) == _FAILED:
            start += 1
        return start <= last

    def _run(self, pc: i64, at: i64) -> i64:
        """The place at which the program that begins at `pc` ends, _FAILED if it does not match.

        Leaves on the stack, when it matches, only the former values of slots.
        """
        program = self._program
        codes, first, second = program.codes, program.first, program.second
        name, size = self._name, self._size
        stack, slots = self._stack, self._slots
        base: i64 = len(stack)
        trail: list[i64] = []
        while True:
            self.steps += 1
            if self.steps > self._steps_max:
                raise OutOfSteps
            code = codes[pc]
            if code == OCTET:
                if at < size and program.sets[first[pc]][name[at]] == 1:
                    pc += 1
                    at += 1
                    continue
            elif code == JUMP:
                pc = first[pc]
                continue
            elif code == PLACE:
                if self._is_at(first[pc], at):
                    pc += 1
                    continue
            elif code == ACCEPT:
                self._drop_attempts(base, trail)
                return at
            elif SPLIT <= code <= ATOMIC:
                if self._is_new(pc, at, trail):
                    if code == SPLIT:
                        stack.append(second[pc])
                        stack.append(at)
                        pc = first[pc]
                        continue
                    end = self._end_of_inner(pc, at)
                    if end != _FAILED:
                        at = end
                        pc = first[pc]
                        continue
            elif code == MARK:
                self._set_slot(first[pc], at)
                pc += 1
                continue
            elif code == CLOSE:
                slot = first[pc]
                self._set_slot(slot, slots[slot + 2])
                self._set_slot(slot + 1, at)
                pc += 1
                continue
            elif code == IF_EMPTY:
                pc = second[pc] if slots[first[pc]] == at else pc + 1
                continue
            elif code == REPEAT:
                length = self._repeated(first[pc], at, second[pc] == 1)
                if length != _FAILED:
                    at += length
                    pc += 1
                    continue
            if not self._back(base):
                return _FAILED
            at = stack.pop()
            pc = stack.pop()

    def _is_new(self, pc: i64, at: i64, trail: list[i64]) -> bool:
        """Whether the instruction is tried at this place for the first time; notes that it is."""
        if not self._program.has_memory:
            return True
        index = pc * (self._size + 1) + at
        if index in self._tried:
            return False
        self._tried.add(index)
        trail.append(index)
        return True

    def _end_of_inner(self, pc: i64, at: i64) -> i64:
        """The place behind the look or atomic group at `pc`, _FAILED if it does not match."""
        code = self._program.codes[pc]
        start = at
        if code in (BEHIND, NOT_BEHIND):
            start -= self._program.second[pc]
        base: i64 = len(self._stack)
        end: i64 = self._run(pc + 1, start) if start >= 0 else _FAILED
        if code in (NOT_AHEAD, NOT_BEHIND):
            # Groups keep no text of a look that must not match.
            self._back(base)
            return at if end == _FAILED else _FAILED
        return end if code == ATOMIC or end == _FAILED else at

    def _back(self, base: i64) -> bool:
        """Restore slots up to the last attempt above `base` on the stack; False without one."""
        stack = self._stack
        while len(stack) > base:
            if stack[-2] >= 0:
                return True
            value = stack.pop()
            self._slots[~stack.pop()] = value
        return False

    def _drop_attempts(self, base: i64, trail: list[i64]) -> None:
        """Forget how else the program could match, and that what has been tried has failed."""
        stack = self._stack
        kept: list[i64] = []
        for index in range(base, len(stack), 2):
            if stack[index] < 0:
                kept.append(stack[index])
                kept.append(stack[index + 1])
        del stack[base:]
        stack.extend(kept)
        for tried in trail:
            self._tried.discard(tried)
        self.steps += len(trail)

    def _set_slot(self, slot: i64, value: i64) -> None:
        self._stack.append(~slot)
        self._stack.append(self._slots[slot])
        self._slots[slot] = value

    def _repeated(self, slot: i64, at: i64, is_caseless: bool) -> i64:
        """The length of the group's text if it comes next, else _FAILED."""
        start, end = self._slots[slot], self._slots[slot + 1]
        if end < 0:
            return _FAILED
        length = end - start
        text = self._name[start:end]
        following = self._name[at : at + length]
        if is_caseless:
            text, following = text.translate(_LOWER_CASE), following.translate(_LOWER_CASE)
        return length if text == following else _FAILED

    def _is_at(self, kind: i64, at: i64) -> bool:
        """Whether `at` is a place of this kind."""
        name, size = self._name, self._size
        if kind == nodes.START:
            return at == 0
        if kind == nodes.END:
            return at == size
        if kind == nodes.LAST:
            return at == size or (at == size - 1 and name[at] == _NEWLINE)
        if kind == nodes.LINE_START:
            return at == 0 or (at < size and name[at - 1] == _NEWLINE)
        if kind == nodes.LINE_END:
            return at == size or name[at] == _NEWLINE
        if kind in (nodes.BORDER, nodes.NO_BORDER):
            before = at > 0 and _IS_WORD[name[at - 1]] == 1
            after = at < size and _IS_WORD[name[at]] == 1
            return (before != after) == (kind == nodes.BORDER)
        return True
