"""The shapes of a topic exchange's patterns, counted to decide which patterns the trie may hold.

A *shape* is a pattern with its literal words blanked out. A walk through the trie costs one visit
for each node that a beginning of the key has reached. When a beginning of a shape has at most one
`#`, the key alone says which literal words stand in its places, so at most one node of that shape
is active at a time. With the number of beginnings bounded, a word of a key costs at most
`SHAPES_MAX` + 1 visits, however many patterns there are. (The one is for all beginnings without a
wildcard: a key has one of each length.)

Applications have a handful of shapes (`device.*.alarm`, `*.*.temperature`, `logs.#`) and thousands
of patterns in each. Patterns beyond the bound, and those with two `#` before their end, go to the
automaton (`topic_automaton.py`).
"""

from typing import Final, final

from mypy_extensions import mypyc_attr

from warrenmq.routing.topic_pattern import inner_any_words, literal_prefix, pattern_shape

# The most beginnings of shapes in a trie; only beginnings that contain a wildcard are counted.
SHAPES_MAX: Final = 256


@final
@mypyc_attr(native_class=True)
class ShapeCensus:
    """Counts the beginnings of the shapes that one trie holds."""

    def __init__(self) -> None:
        # Number of patterns with a beginning, by the beginning's shape; at most `SHAPES_MAX` keys.
        self._counts: dict[bytes, int] = {}

    def admits(self, words: list[bytes]) -> bool:
        """Whether the trie may take a pattern of these words (in normal form)."""
        shape = pattern_shape(words)
        if inner_any_words(shape) > 1:
            return False
        fresh = [beginning for beginning in _beginnings(shape) if beginning not in self._counts]
        return len(self._counts) + len(fresh) <= SHAPES_MAX

    def add(self, words: list[bytes]) -> None:
        """Count a pattern, which must be admitted."""
        for beginning in _beginnings(pattern_shape(words)):
            self._counts[beginning] = self._counts.get(beginning, 0) + 1

    def remove(self, words: list[bytes]) -> None:
        """Stop counting a pattern that was added."""
        for beginning in _beginnings(pattern_shape(words)):
            count = self._counts[beginning]
            if count == 1:
                del self._counts[beginning]
            else:
                self._counts[beginning] = count - 1

    def is_empty(self) -> bool:
        """Whether no pattern with a wildcard is counted."""
        return not self._counts


def _beginnings(shape: bytes) -> list[bytes]:
    """The beginnings of a shape that contain a wildcard."""
    return [shape[:end] for end in range(literal_prefix(shape) + 1, len(shape) + 1)]
