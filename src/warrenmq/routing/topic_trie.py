"""Topic patterns in a trie of their words, matched against a key in one pass over its words.

Semantics: protocol 6. Matching follows all patterns at once, as a finite automaton: the active
nodes are those that some beginning of a pattern has reached with the words read so far. A `#` node
stays active once it is reached, since every further word fits. It is therefore reached once in a
key, and the bindings that end in it are found right then.

Invariant: a pattern has at most one `#` that does not end it, and the shapes are counted
(`topic.py`). Without that only the number of patterns would bound the active nodes.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64, mypyc_attr

from warrenmq.routing.exchange import Binding, Destination
from warrenmq.routing.topic_pattern import ANY_WORDS, ONE_WORD


@final
@mypyc_attr(native_class=True)
class TopicNode:
    """The common beginning of some patterns; `bindings` are those whose pattern ends here."""

    def __init__(self) -> None:
        self.words: dict[bytes, TopicNode] = {}
        self.one_word: TopicNode | None = None
        self.any_words: TopicNode | None = None
        self.bindings: dict[Binding, None] = {}
        # Number of the last key that found the node's bindings or, in a `#` node, activated it.
        self.last_key: i64 = 0

    def is_empty(self) -> bool:
        """Whether no pattern ends here or passes through."""
        return (
            not self.bindings
            and not self.words
            and self.one_word is None
            and self.any_words is None
        )

    def child(self, word: bytes) -> TopicNode | None:
        """The child node for the next word of a pattern, or None."""
        if word == ONE_WORD:
            return self.one_word
        if word == ANY_WORDS:
            return self.any_words
        return self.words.get(word)

    def add_child(self, word: bytes) -> TopicNode:
        """Make the child node for `word`, which must not exist."""
        node = TopicNode()
        if word == ONE_WORD:
            self.one_word = node
        elif word == ANY_WORDS:
            self.any_words = node
        else:
            self.words[word] = node
        return node

    def remove_child(self, word: bytes) -> None:
        """Drop the child node for `word`."""
        if word == ONE_WORD:
            self.one_word = None
        elif word == ANY_WORDS:
            self.any_words = None
        else:
            del self.words[word]


@final
@mypyc_attr(native_class=True)
class TopicTrie:
    """The bindings of one topic exchange that `ShapeCensus` admits, in a trie of their words."""

    def __init__(self) -> None:
        self._root: TopicNode = TopicNode()
        # Numbers the keys of all matchings, so that `TopicNode.last_key` never has to be cleared.
        self._last_key: i64 = 0
        # Active `#` nodes of the current match, each of which may continue with the next word. One
        # list for all matches saves an allocation each.
        self._waiting: list[TopicNode] = []
        # Nodes visited since the trie was made, as the cost of all matches.
        self.visits: i64 = 0

    def is_empty(self) -> bool:
        """Whether there is no binding, and nothing is left of removed ones."""
        return self._root.is_empty()

    def add(self, binding: Binding, words: list[bytes]) -> None:
        """Add a new binding under the words of its key in normal form."""
        node = self._root
        for word in words:
            child = node.child(word)
            node = node.add_child(word) if child is None else child
        node.bindings[binding] = None

    def remove(self, binding: Binding, words: list[bytes]) -> None:
        """Remove a binding, which must be here, and the nodes that only it needed."""
        node = self._root
        path: list[TopicNode] = []
        for word in words:
            path.append(node)
            child = node.child(word)
            assert child is not None
            node = child
        del node.bindings[binding]
        while path and node.is_empty():
            node = path.pop()
            node.remove_child(words[len(path)])

    def match(self, keys: list[bytes], found: list[Destination]) -> None:
        """Append the destination of each binding that matches one of `keys`, once a binding."""
        first: i64 = self._last_key + 1
        for key in keys:
            self._last_key += 1
            self._match(key, first, found)

    def _match(self, key: bytes, first: i64, found: list[Destination]) -> None:
        """Match one key; skip bindings that keys from number `first` on have found already."""
        number = self._last_key
        waiting = self._waiting
        if waiting:
            waiting.clear()
        active = [self._root]
        _follow_any_words(active, number, first, waiting, found)
        if key:
            visits: i64 = 0
            for word in key.split(b"."):
                visits += len(active) + len(waiting)
                reached: list[TopicNode] = []
                for node in waiting:
                    child = node.words.get(word)
                    if child is not None:
                        reached.append(child)
                for node in active:
                    child = node.one_word
                    if child is not None:
                        reached.append(child)
                    child = node.words.get(word)
                    if child is not None:
                        reached.append(child)
                _follow_any_words(reached, number, first, waiting, found)
                active = reached
                if not active and not waiting:
                    break
            self.visits += visits
        for node in active:
            if node.bindings and node.last_key < first:
                node.last_key = number
                _find(node, found)


def _follow_any_words(
    reached: list[TopicNode],
    number: i64,
    first: i64,
    waiting: list[TopicNode],
    found: list[Destination],
) -> None:
    """Activate the `#` below the `reached` nodes, since `#` may stand for no word at all."""
    for node in reached:
        any_words = node.any_words
        if any_words is not None and any_words.last_key != number:
            if any_words.last_key < first:
                _find(any_words, found)
            any_words.last_key = number
            if any_words.words:
                waiting.append(any_words)


def _find(node: TopicNode, found: list[Destination]) -> None:
    for binding in node.bindings:
        found.append(binding.destination)  # see direct.py
