"""A bit-parallel automaton for topic patterns that would keep too many nodes of the trie active.

Source: R. Baeza-Yates and G. H. Gonnet, "A new approach to text searching", CACM 35(10), 1992
(Shift-And). A `#` is a state that stays set.

Each pattern has a state for its beginning and one for each word other than `#`; all states of all
patterns are the bits of one integer. A word of the key moves every set bit one place up, and keeps
the bits whose pattern has this word or `*` there; bits at which a `#` stands also stay in place.
That is four operations on integers of `states` bits, whatever the patterns and the key: with
`STATES_MAX` states 4 x 1,093 digits of 30 bits a word, a few microseconds.

The first match after a change makes the integers anew, which visits each word of each pattern once.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from warrenmq.routing.exchange import Binding, Destination
from warrenmq.routing.topic_pattern import ANY_WORDS, ONE_WORD

# The most states of all patterns together that clients may make.
STATES_MAX: Final = 32_768
# The most masks of words kept between keys; each has `states` bits.
_MASKS_MAX: Final = 256
_BITS_OF_DIGIT: Final = 30


@final
@mypyc_attr(native_class=True)
class TopicAutomaton:
    """The bindings of one topic exchange that the trie cannot take."""

    def __init__(self) -> None:
        # The words of each binding's pattern, in normal form.
        self._patterns: dict[Binding, list[bytes]] = {}
        self.states: i64 = 0
        # The integers and tables below match `_patterns`.
        self._is_built: bool = True
        # Bits of the states at which patterns begin.
        self._starts: int = 0
        # Bits of the states at which a `#` stands.
        self._loops: int = 0
        # Bits of the states behind a `*`.
        self._ones: int = 0
        # Bits of the states at which patterns end.
        self._ends: int = 0
        # The states behind each literal word, by word.
        self._literals: dict[bytes, list[int]] = {}
        # The binding whose pattern ends at a state, by state.
        self._ending: dict[int, Binding] = {}
        # `_literals` and `_ones` of a word as one integer, for the words of the last keys.
        self._masks: dict[bytes, int] = {}
        # Digits of integers computed since the automaton was made, as the cost of all matches.
        self.digits: i64 = 0

    def __contains__(self, binding: Binding) -> bool:
        return binding in self._patterns

    def is_empty(self) -> bool:
        """Whether there is no binding."""
        return not self._patterns

    def has_room(self, words: list[bytes]) -> bool:
        """Whether a pattern of these words (in normal form) would stay within `STATES_MAX`."""
        return self.states + _states_of(words) <= STATES_MAX

    def add(self, binding: Binding, words: list[bytes]) -> None:
        """Add a new binding, with the words of its key in normal form."""
        self._patterns[binding] = words
        self.states += _states_of(words)
        self._is_built = False

    def remove(self, binding: Binding) -> None:
        """Remove a binding, which must be here."""
        self.states -= _states_of(self._patterns.pop(binding))
        self._is_built = False

    def match(self, keys: list[bytes], found: list[Destination]) -> None:
        """Append the destination of each binding that matches one of `keys`, once a binding."""
        if not self._is_built:
            self._build()
        digits: i64 = self.states // _BITS_OF_DIGIT + 1
        matched: int = 0
        for key in keys:
            state = self._starts
            if key:
                for word in key.split(b"."):
                    mask = self._masks.get(word)
                    if mask is None:
                        mask = self._mask(word)
                    state = (state << 1 & mask) | (state & self._loops)
                    self.digits += 4 * digits
            matched |= state & self._ends
        if matched != 0:
            self._find(matched, found)

    def _find(self, matched: int, found: list[Destination]) -> None:
        """Append the destinations of the patterns that end at the set bits."""
        octets = matched.to_bytes(self.states // 8 + 1, "little")
        for index, octet in enumerate(octets):
            if octet != 0:
                for bit in range(8):
                    if octet >> bit & 1 != 0:
                        found.append(self._ending[index * 8 + bit].destination)

    def _mask(self, word: bytes) -> int:
        """The bits of the states that `word` can lead to."""
        positions = self._literals.get(word)
        mask = self._ones
        if positions is not None:
            mask |= self._integer(positions)
            self.digits += self.states // _BITS_OF_DIGIT + 1 + len(positions)
        if len(self._masks) >= _MASKS_MAX:
            self._masks.clear()
        self._masks[word] = mask
        return mask

    def _build(self) -> None:
        starts: list[int] = []
        loops: list[int] = []
        ones: list[int] = []
        ends: list[int] = []
        self._literals = {}
        self._ending = {}
        self._masks = {}
        state = 0
        for binding, words in self._patterns.items():
            starts.append(state)
            for word in words:
                if word == ANY_WORDS:
                    loops.append(state)
                    continue
                state += 1
                if word == ONE_WORD:
                    ones.append(state)
                else:
                    self._literals.setdefault(word, []).append(state)
            ends.append(state)
            self._ending[state] = binding
            state += 1
        self._starts = self._integer(starts)
        self._loops = self._integer(loops)
        self._ones = self._integer(ones)
        self._ends = self._integer(ends)
        self._is_built = True

    def _integer(self, positions: list[int]) -> int:
        """The integer with the bits at `positions` set."""
        octets = bytearray(self.states // 8 + 1)
        for position in positions:
            octets[position >> 3] |= 1 << (position & 7)
        return int.from_bytes(octets, "little")


def _states_of(words: list[bytes]) -> int:
    return len(words) + 1 - words.count(ANY_WORDS)
