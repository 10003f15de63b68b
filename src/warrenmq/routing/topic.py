"""Topic exchanges: binding keys are patterns of words; `*` stands for one word, `#` for any number.

A publish costs, for each word of its key, at most 257 visits to nodes of a trie (`ShapeCensus`
says why) and at most 4 x 1,093 digits of an automaton (`topic_automaton.py`); then each matching
binding, once. No set of patterns exceeds this: the trie takes only patterns for which the bound
holds, and a binding for which the automaton has no room is refused.
"""

from typing import Final, final

from mypy_extensions import mypyc_attr

from warrenmq.routing.exchange import Binding, Destination, Exchange
from warrenmq.routing.topic_automaton import STATES_MAX, TopicAutomaton
from warrenmq.routing.topic_pattern import (
    inner_any_words,
    literal_prefix,
    pattern_shape,
    pattern_words,
)
from warrenmq.routing.topic_trie import TopicTrie
from warrenmq.wire.errors import PRECONDITION_FAILED, ChannelException
from warrenmq.wire.field_table import Field

TOPIC: Final = b"topic"

# Limit for a trie: prefixes of pattern shapes that it keeps. Prefixes without a wildcard do not
# count.
SHAPES_MAX: Final = 256
# Digits of the automaton's integers that take as long as a visit to a node of the trie.
DIGITS_A_TRY: Final = 64


@final
@mypyc_attr(native_class=True)
class ShapeCensus:
    """Counts the beginnings of the shapes that one trie holds.

    A *shape* is a pattern with its literal words blanked out. A walk through the trie costs one
    visit for each node that a beginning of the key has reached. When a beginning of a shape has at
    most one `#`, the key alone says which literal words stand in its places, so at most one node of
    that shape is active at a time. With the number of beginnings bounded, a word of a key costs at
    most `SHAPES_MAX` + 1 visits, however many patterns there are. (The one is for all beginnings
    without a wildcard: a key has one of each length.)

    Applications have a handful of shapes (`device.*.alarm`, `*.*.temperature`, `logs.#`) and
    thousands of patterns in each. Patterns beyond the bound, and those with two `#` before their
    end, go to the automaton (`topic_automaton.py`).
    """

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


@final
@mypyc_attr(native_class=True)
class TopicExchange(Exchange):
    """A topic exchange: bindings in a trie of their keys' words, or in the automaton."""

    def __init__(
        self, name: bytes, durable: bool, auto_delete: bool, internal: bool, arguments: bytes
    ) -> None:
        super().__init__(name, TOPIC, durable, auto_delete, internal, arguments)
        self._shapes: ShapeCensus = ShapeCensus()
        self._trie: TopicTrie = TopicTrie()
        self._automaton: TopicAutomaton = TopicAutomaton()

    def check_room(self, key: bytes) -> None:
        words = pattern_words(key)
        if not self._shapes.admits(words) and not self._automaton.has_room(words):
            raise ChannelException(
                PRECONDITION_FAILED,
                f"exchange '{self.name.decode('utf-8', 'replace')}' has no room for another pattern with several '#' or with "
                f"wildcards in an order of its own: such patterns may have {STATES_MAX} words together",
            )

    def add(self, binding: Binding) -> None:
        words = pattern_words(binding.key)
        if self._shapes.admits(words):
            self._shapes.add(words)
            self._trie.add(binding, words)
        else:
            self._automaton.add(binding, words)

    def remove(self, binding: Binding) -> None:
        if binding in self._automaton:
            self._automaton.remove(binding)
            return
        words = pattern_words(binding.key)
        self._shapes.remove(words)
        self._trie.remove(binding, words)

    def match(self, keys: list[bytes], fields: dict[str, Field], found: list[Destination]) -> None:
        self._trie.match(keys, found)
        if self._automaton.states > 0:
            self._automaton.match(keys, found)
        self.tried = self._trie.visits + self._automaton.digits // DIGITS_A_TRY

    def matching_cost(self) -> int:
        """Steps of all matches so far: visits to trie nodes plus digits of automaton integers."""
        return self._trie.visits + self._automaton.digits

    def is_index_empty(self) -> bool:
        """Whether there is no binding, and nothing is left of removed ones."""
        return self._trie.is_empty() and self._shapes.is_empty() and self._automaton.is_empty()
