"""Topic exchanges match as a naive matcher does, at a bounded cost for any set of patterns."""

import os
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.routing.naive import topic_fits
from warrenmq.routing.exchange import Destination
from warrenmq.routing.router import Router
from warrenmq.routing.topic import SHAPES_MAX, TopicExchange
from warrenmq.routing.topic_automaton import STATES_MAX
from warrenmq.wire.errors import ChannelException

words = st.sampled_from([b"a", b"b", b"", b"c", b"*", b"#"])
pattern_words = st.sampled_from([b"a", b"b", b"", b"*", b"#", b"#", b"#."])
keys = st.lists(words, max_size=8).map(b".".join) | st.binary(max_size=8)
patterns = st.lists(pattern_words, max_size=8).map(b".".join) | st.binary(max_size=8)

# Cost of a word of a key that `topic.py` promises: nodes of the trie, and digits of 30 bits of the
# automaton. When a word of patterns first occurs, the automaton visits each of its places, and
# computes one more integer.
VISITS_A_WORD = SHAPES_MAX + 1
DIGITS_A_WORD = 5 * (STATES_MAX // 30 + 1)
KEY_BYTES = 255


class Bound:
    """A topic exchange with a queue for each pattern."""

    def __init__(self, bound: list[bytes]) -> None:
        self.router = Router(os.urandom)
        exchange = self.router.declare_exchange(b"x", b"topic", False, False, False, b"")
        assert isinstance(exchange, TopicExchange)
        self.exchange = exchange
        self.patterns: dict[bytes, bytes] = {}
        self.count = 0
        for pattern in bound:
            self.bind(pattern)

    def bind(self, pattern: bytes) -> None:
        name = b"%d" % self.count
        self.count += 1
        queue = Destination(name, True)
        try:
            self.router.bind(self.exchange, queue, pattern, b"")
        except ChannelException:
            return
        self.router.add_queue(queue)
        self.patterns[name] = pattern

    def unbind(self, name: bytes) -> None:
        self.router.unbind(self.exchange, self.router.queues[name], self.patterns.pop(name), b"")

    def matched(self, *routing_keys: bytes) -> set[bytes]:
        found: list[Destination] = []
        self.exchange.match(list(dict.fromkeys(routing_keys)), {}, found)
        names = [destination.name for destination in found]
        assert len(set(names)) == len(names), "a binding is found once"
        return set(names)

    def expected(self, *routing_keys: bytes) -> set[bytes]:
        return {
            n
            for n, pattern in self.patterns.items()
            if any(topic_fits(pattern, k) for k in routing_keys)
        }

    def cost(self, *routing_keys: bytes) -> int:
        """Steps of one matching, without building the automaton.

        The automaton is built once after a change of the bindings.
        """
        self.matched()
        before = self.exchange.matching_cost()
        self.matched(*routing_keys)
        return self.exchange.matching_cost() - before


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
        (b"#.*.#.*", b"a", False),
        (b"#.*.#.*", b"a.b", True),
        (b"a*", b"ab", False),
        (b"a*", b"a*", True),
        (b"a#", b"a", False),
        (b"a.#.b.#.c", b"a.c", False),
        (b"a.#.b.#.c", b"a.x.b.c", True),
        (b"#.a.#.a.#", b"a", False),
        (b"#.a.#.a.#", b"b.a.a", True),
        (b"*", b"*", True),
        (b"*", b"#", True),
        (b"a", b"#", False),
        (b"#.".join([b""] * 128), b"", False),
        (b".".join([b"#"] * 128), b"." * 254, True),
        (b".".join([b"*"] * 128), b"." * 127, True),
        (b"#." + b"." * 250 + b".#", b"." * 254, True),
    ],
)
def test_topic_pattern_cases(pattern: bytes, key: bytes, fits: bool) -> None:
    """Words match whole; `*` matches one, `#` any number; the empty key has no words."""
    assert (Bound([pattern]).matched(key) == {b"0"}) is fits
    assert topic_fits(pattern, key) is fits


@given(st.lists(patterns, max_size=12), st.lists(keys, max_size=4), st.data())
def test_topic_exchange_matches_as_the_naive_matcher(
    bound: list[bytes], routing_keys: list[bytes], data: st.DataObject
) -> None:
    """After any binds and unbinds each pattern matches the right keys, one by one and as CC."""
    topic = Bound(bound)
    assert topic.matched(*routing_keys) == topic.expected(*routing_keys)
    for name in (
        data.draw(st.lists(st.sampled_from(sorted(topic.patterns)), unique=True)) if bound else []
    ):
        topic.unbind(name)
    for pattern in data.draw(st.lists(patterns, max_size=2)):
        topic.bind(pattern)
    for key in routing_keys:
        assert topic.matched(key) == topic.expected(key)
    assert topic.matched(*routing_keys) == topic.expected(*routing_keys)


def choices(count: int, seed: int, alphabet: list[bytes], length: int) -> Iterator[list[bytes]]:
    rng = random.Random(seed)
    for _ in range(count):
        yield [rng.choice(alphabet) for _ in range(length)]


def families() -> Iterator[tuple[str, list[bytes]]]:
    """Yield named pattern sets that keep many trie nodes active for each word of a key."""
    yield (
        "a and *",
        [b".".join(c) + b".z%d" % i for i, c in enumerate(choices(400, 1, [b"#.a", b"#.*"], 62))],
    )
    yield "many #", [b"#.a." * n + b"#.b" for n in range(1, 60)]
    yield "stars and letters", [b".".join(c) + b".z" for c in choices(400, 2, [b"a", b"*"], 120)]
    yield (
        "one # and a long end",
        [b"#." + b".".join(c) + b".z" for c in choices(400, 3, [b"a", b"*"], 60)],
    )
    yield (
        "words within",
        [b"#.%s.#.%s.z" % (c[0], c[1]) for c in choices(400, 4, [b"%d" % i for i in range(30)], 2)],
    )
    yield (
        "all lengths",
        [b".".join([b"a"] * n + [b"*"] * m + [b"z"]) for n in range(20) for m in range(20)],
    )
    yield "short ends", [b"#." + b".".join(c) for c in choices(400, 5, [b"a", b"b", b"*"], 9)]


KEYS = [
    b".".join([b"a"] * 128),
    b"a.b." * 63 + b"a",
    b".".join([b"%d" % (i % 30) for i in range(80)]),
    b"." * KEY_BYTES,
    b"a.z",
    b"",
]


@pytest.mark.parametrize("bound", [pytest.param(bound, id=family) for family, bound in families()])
def test_no_set_of_patterns_makes_a_word_cost_more(bound: list[bytes]) -> None:
    """With any patterns, each word of a key costs at most the limit of `topic.py`."""
    topic = Bound(bound)
    for key in KEYS:
        assert topic.cost(key) <= (key.count(b".") + 1) * (VISITS_A_WORD + DIGITS_A_WORD)
    sample = Bound(bound[::40])
    for key in KEYS:
        assert sample.matched(key) == sample.expected(key)


def test_patterns_without_a_bound_are_refused() -> None:
    """A full automaton refuses more patterns; existing bindings stay and continue to match."""
    topic = Bound([b"#.a." * 40 + b"#.%d" % i for i in range(1000)])
    accepted = len(topic.patterns)
    assert accepted == STATES_MAX // 42
    key = b"a." * 40 + b"7"
    assert topic.cost(key) <= 41 * (VISITS_A_WORD + DIGITS_A_WORD)
    assert topic.matched(key) == {b"7"}
    again = topic.router.bind(topic.exchange, topic.router.queues[b"7"], topic.patterns[b"7"], b"")
    assert again is None, "a client may bind again what it has bound"
    other = topic.router.queues[b"8"]
    with pytest.raises(ChannelException, match="PRECONDITION_FAILED - exchange 'x' has no room"):
        topic.router.bind(topic.exchange, other, topic.patterns[b"7"], b"")
    topic.bind(b"logs.*.error")
    assert len(topic.patterns) == accepted + 1, "a common pattern needs no room"
    topic.unbind(b"7")
    assert topic.router.bind(topic.exchange, other, b"#.a." * 40 + b"#.7", b"") is not None


def test_a_restart_keeps_what_was_bound() -> None:
    """A restart refuses no binding, even beyond the limit: definitions come in any order."""
    router = Router(os.urandom)
    exchange = router.declare_exchange(b"x", b"topic", False, False, False, b"")
    for number in range(STATES_MAX // 42 + 5):
        queue = Destination(b"%d" % number, True)
        router.add_queue(queue)
        assert (
            router.restore_binding(exchange, queue, b"#.a." * 40 + b"#.%d" % number, b"")
            is not None
        )
    last = b"a." * 40 + queue.name
    assert router.route(exchange, [last], b"") == [queue]


def test_common_patterns_cost_what_their_shapes_do() -> None:
    """Ten thousand bindings of a few shapes cost a few visits a word, and no automaton."""
    shapes = [
        b"dev.%d.temp",
        b"dev.%d.*",
        b"*.%d.alarm",
        b"dev.%d.#",
        b"#.%d",
        b"#.%d.#",
        b"*.*.%d",
    ]
    topic = Bound([shapes[number % len(shapes)] % number for number in range(10_000)])
    for number in range(0, 10_000, 999):
        assert topic.cost(b"dev.%d.temp" % number) <= 3 * len(shapes) * 2
    assert topic.cost(b".".join([b"dev"] * 60)) <= 60 * len(shapes) * 2


def test_nothing_is_left_of_removed_patterns() -> None:
    """When all bindings are removed, in any order, the index of the exchange is empty."""
    bound = [b"a.b.c", b"a.*.c", b"a.b", b"#.c", b"", b"#", b"#.a.#.b.#", b"#.*.a.#.*.b"]
    topic = Bound(bound)
    for name in sorted(topic.patterns, key=lambda name: hash(name)):
        topic.unbind(name)
    assert topic.exchange.is_index_empty()


def test_a_key_named_a_thousand_times_is_matched_once() -> None:
    """A key that CC repeats costs one matching; a binding that several keys reach counts once."""
    topic = Bound([b"#.a", b"#.a.#.b"])
    assert [q.name for q in topic.router.route(topic.exchange, [b"a"] * 1000, b"")] == [b"0"]
    once = topic.cost(b"a")
    before = topic.exchange.matching_cost()
    topic.router.route(topic.exchange, [b"a"] * 1000, b"")
    assert topic.exchange.matching_cost() - before == once
