"""Topic patterns: the trie against a recursive matcher, and the corners that other brokers got wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.routing.naive import topic_fits
from warren.routing.binding import Binding
from warren.routing.destination import Destination
from warren.routing.exchange_types import make_exchange
from warren.routing.topic_trie import TopicTrie

SOURCE = make_exchange(b"x", b"topic", False, False, False, b"")
words = st.sampled_from([b"a", b"b", b"", b"c"])
pattern_words = st.sampled_from([b"a", b"b", b"", b"*", b"#", b"#", b"#."])
keys = st.lists(words, max_size=6).map(b".".join) | st.binary(max_size=8)
patterns = st.lists(pattern_words, max_size=6).map(b".".join) | st.binary(max_size=8)


def binding_to(name: bytes, pattern: bytes) -> Binding:
    return Binding(SOURCE, Destination(name, True), pattern, b"")


def matched(trie: TopicTrie, key: bytes) -> set[bytes]:
    found: list[Destination] = []
    trie.match(key, found)
    return {destination.name for destination in found}


@pytest.mark.parametrize(
    ("pattern", "key", "fits"),
    [
        (b"", b"", True),
        (b"#", b"", True),
        (b"*", b"", False),
        (b"#.#", b"", True),
        (b"#.*", b"", False),
        (b"*", b"a", True),
        (b"*", b"a.b", False),
        (b"a.#", b"a", True),
        (b"a.#", b"a.b.c", True),
        (b"#.a", b"a", True),
        (b"#.a", b"b.a.a", True),
        (b"#.a", b"a.b", False),
        (b"a.*.b", b"a..b", True),
        (b"a.b", b"a..b", False),
        (b"*.*.*", b"a..b", True),
        (b"*.*", b".", True),
        (b"#.b.#", b"a.b.c", True),
        (b"#.*.#", b"a", True),
        (b"a*", b"ab", False),
        (b"a*", b"a*", True),
        (b"a#", b"a", False),
        (b"a.#.b.#.c", b"a.c", False),
        (b"a.#.b.#.c", b"a.x.b.c", True),
        (b"*", b"*", True),
        (b"*", b"#", True),
        (b"a", b"#", False),
    ],
)
def test_topic_pattern_cases(pattern: bytes, key: bytes, fits: bool) -> None:
    """Words are whole, `*` is one, `#` is any number, the empty key has none."""
    trie = TopicTrie()
    trie.add(binding_to(b"q", pattern))
    assert (matched(trie, key) == {b"q"}) is fits
    assert topic_fits(pattern, key) is fits


@given(st.lists(patterns, max_size=12), st.lists(keys, max_size=4), st.data())
def test_topic_trie_matches_as_the_recursive_matcher(
    bound: list[bytes], routing_keys: list[bytes], data: st.DataObject
) -> None:
    """Whatever is added and removed, each pattern matches exactly the keys it should."""
    trie = TopicTrie()
    alive = {b"%d" % number: binding_to(b"%d" % number, pattern) for number, pattern in enumerate(bound)}
    for binding in alive.values():
        trie.add(binding)
    for name in data.draw(st.lists(st.sampled_from(sorted(alive)), unique=True)) if alive else []:
        trie.remove(alive.pop(name))
    for key in routing_keys:
        assert matched(trie, key) == {n for n, b in alive.items() if topic_fits(b.key, key)}


def test_topic_trie_forgets_what_is_removed() -> None:
    """No node outlives the last binding that needed it, whatever the order of removal."""
    trie = TopicTrie()
    bindings = [binding_to(b"q", pattern) for pattern in (b"a.b.c", b"a.*.c", b"a.b", b"#.c", b"", b"#")]
    for binding in bindings:
        trie.add(binding)
    for binding in bindings:
        trie.remove(binding)
    assert trie.is_empty()


@pytest.mark.timeout(20)
def test_topic_patterns_cannot_make_matching_slow() -> None:
    """Many `#` in a pattern and equal words in a key: the recursion would not end before the sun does."""
    trie = TopicTrie()
    for count in range(1, 60):
        trie.add(binding_to(b"q%d" % count, b"#.a." * count + b"#.b"))
    key = b".".join([b"a"] * 127)
    assert matched(trie, key) == set()
    assert len(matched(trie, key[:-1] + b"b")) == 59
