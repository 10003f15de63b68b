"""Topic patterns in a trie, matched against a key in one pass over its words (protocol.md 6).

A key is words separated by dots; the empty key has no words, `a..b` has three. In a pattern `*` stands for exactly one
word, `#` for any number, none included; only as whole words.

Matching follows all patterns at once, as a finite automaton: the active nodes are those that some beginning of a
pattern has reached after the words read so far. A node is active once however many ways lead to it, so a key costs at
most its words times the nodes, whatever the patterns. The obvious recursion (let `#` swallow 0, 1, 2 ... words)
takes exponential time on `#.a.#.a.#.a` and a key of many `a`, which any client may send.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from warren.routing.binding import Binding
from warren.routing.destination import Destination

ONE_WORD: Final = b"*"
ANY_WORDS: Final = b"#"


@final
@mypyc_attr(native_class=True)
class TopicNode:
    """The beginning of some patterns; `bindings` are those whose pattern ends here."""

    def __init__(self, is_any_words: bool) -> None:
        # Ends in `#`: once active it stays so, since every further word fits.
        self.is_any_words: bool = is_any_words
        self.words: dict[bytes, TopicNode] = {}
        self.one_word: TopicNode | None = None
        self.any_words: TopicNode | None = None
        self.bindings: dict[Binding, None] = {}
        # The last step of a matching in which the node became active.
        self.step: i64 = 0

    def is_empty(self) -> bool:
        """No pattern ends or goes on here."""
        return not self.bindings and not self.words and self.one_word is None and self.any_words is None

    def child(self, word: bytes) -> TopicNode | None:
        """The node one word of a pattern further."""
        if word == ONE_WORD:
            return self.one_word
        if word == ANY_WORDS:
            return self.any_words
        return self.words.get(word)

    def add_child(self, word: bytes) -> TopicNode:
        """Make the node one word further, which is not there."""
        node = TopicNode(word == ANY_WORDS)
        if word == ONE_WORD:
            self.one_word = node
        elif word == ANY_WORDS:
            self.any_words = node
        else:
            self.words[word] = node
        return node

    def remove_child(self, word: bytes) -> None:
        """Drop the node one word further."""
        if word == ONE_WORD:
            self.one_word = None
        elif word == ANY_WORDS:
            self.any_words = None
        else:
            del self.words[word]


@final
@mypyc_attr(native_class=True)
class TopicTrie:
    """All bindings of one topic exchange."""

    def __init__(self) -> None:
        self._root: TopicNode = TopicNode(False)
        # Counts the words of all matchings, so that `TopicNode.step` never has to be cleared.
        self._step: i64 = 0

    def is_empty(self) -> bool:
        """There is no binding, and nothing is left of removed ones."""
        return self._root.is_empty()

    def add(self, binding: Binding) -> None:
        """Put in a binding that is not there."""
        node = self._root
        for word in pattern_words(binding.key):
            child = node.child(word)
            node = node.add_child(word) if child is None else child
        node.bindings[binding] = None

    def remove(self, binding: Binding) -> None:
        """Take out a binding that is there, and the nodes that only it needed."""
        words = pattern_words(binding.key)
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

    def match(self, key: bytes, found: list[Destination]) -> None:
        """Append the destinations of all patterns that fit `key`; one of them more than once if several fit."""
        step: i64 = self._step + 1
        active: list[TopicNode] = []
        _activate(self._root, step, active)
        if key:
            for word in key.split(b"."):
                step += 1
                reached: list[TopicNode] = []
                for node in active:
                    if node.is_any_words:
                        _activate(node, step, reached)
                    child = node.one_word
                    if child is not None:
                        _activate(child, step, reached)
                    child = node.words.get(word)
                    if child is not None:
                        _activate(child, step, reached)
                active = reached
        self._step = step
        for node in active:
            for binding in node.bindings:
                found.append(binding.destination)  # see direct.py


def pattern_words(key: bytes) -> list[bytes]:
    """The words of a binding key. Neighbouring `#` are one: they match the same, and no `#` node needs a `#` child."""
    if not key:
        return []
    words: list[bytes] = []
    for word in key.split(b"."):
        if word != ANY_WORDS or not words or words[-1] != ANY_WORDS:
            words.append(word)
    return words


def _activate(node: TopicNode, step: i64, active: list[TopicNode]) -> None:
    """Make `node` active, and with it the `#` below it, which may stand for no word at all."""
    if node.step != step:
        node.step = step
        active.append(node)
    any_words = node.any_words
    if any_words is not None and any_words.step != step:
        any_words.step = step
        active.append(any_words)
