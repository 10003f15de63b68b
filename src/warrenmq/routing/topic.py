"""Topic exchanges: binding keys are patterns of words; `*` stands for one word, `#` for any number.

A publish costs, for each word of its key, at most 257 visits to nodes of a trie (`topic_shapes.py`
says why) and at most 4 x 1,093 digits of an automaton (`topic_automaton.py`); then each matching
binding, once. No set of patterns exceeds this: the trie takes only patterns for which the bound
holds, and a binding for which the automaton has no room is refused.
"""

from typing import Final, final

from mypy_extensions import mypyc_attr

from warrenmq.routing.exchange import Binding, Destination, Exchange
from warrenmq.routing.topic_automaton import STATES_MAX, TopicAutomaton
from warrenmq.routing.topic_pattern import pattern_words
from warrenmq.routing.topic_shapes import ShapeCensus
from warrenmq.routing.topic_trie import TopicTrie
from warrenmq.wire.errors import PRECONDITION_FAILED, ChannelException
from warrenmq.wire.field_table import Field

TOPIC: Final = b"topic"


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

    def matching_cost(self) -> int:
        """Steps of all matches so far: visits to trie nodes plus digits of automaton integers."""
        return self._trie.visits + self._automaton.digits

    def is_index_empty(self) -> bool:
        """Whether there is no binding, and nothing is left of removed ones."""
        return self._trie.is_empty() and self._shapes.is_empty() and self._automaton.is_empty()
