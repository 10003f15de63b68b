"""Consistent hash exchanges: shares by weight, places that stay, what is hashed and refused."""

import os
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.routing.exchange import Destination, Exchange
from warrenmq.routing.router import Router
from warrenmq.wire.errors import ChannelException
from warrenmq.wire.field_table import Field, encode_table, fields_from_python
from warrenmq.wire.properties import Properties

KEYS = [b"key-%d" % number for number in range(12_000)]
weights = st.lists(st.integers(1, 9), min_size=1, max_size=6)


class Ring:
    """A consistent hash exchange with queues."""

    def __init__(self, **arguments: object) -> None:
        self.router = Router(os.urandom)
        raw = encode_table(fields_from_python(arguments))
        self.exchange: Exchange = self.router.declare_exchange(
            b"x", b"x-consistent-hash", False, False, False, raw
        )

    def bind(self, name: bytes, weight: bytes) -> None:
        if name not in self.router.queues:
            self.router.add_queue(Destination(name, True))
        self.router.bind(self.exchange, self.router.queues[name], weight, b"")

    def place(self, key: bytes, headers: bytes = b"", properties: bytes = b"") -> bytes:
        (queue,) = self.router.route(self.exchange, [key], headers, properties)
        return queue.name

    def places(self, keys: list[bytes]) -> list[bytes]:
        return [self.place(key) for key in keys]


@pytest.mark.parametrize("shares", [(1, 1), (1, 2, 3), (5,) * 8, (1, 99), (1000, 2000, 1)])
def test_shares_are_in_proportion_to_the_weights(shares: tuple[int, ...]) -> None:
    ring = Ring()
    for number, weight in enumerate(shares):
        ring.bind(b"q%d" % number, b"%d" % weight)
    counts = Counter(ring.places(KEYS))
    for number, weight in enumerate(shares):
        expected = len(KEYS) * weight / sum(shares)
        # Five standard deviations: chance exceeds them never.
        assert abs(counts[b"q%d" % number] - expected) <= 5 * expected**0.5


@given(weights, st.integers(1, 9))
def test_only_a_new_queue_takes_values_over(before: list[int], weight: int) -> None:
    """A new binding, and its removal, move no value between the other queues."""
    ring = Ring()
    for number, each in enumerate(before):
        ring.bind(b"q%d" % number, b"%d" % each)
    old = ring.places(KEYS[:200])
    ring.bind(b"new", b"%d" % weight)
    for was, now in zip(old, ring.places(KEYS[:200]), strict=True):
        assert now in (was, b"new")
    ring.router.remove_queue(ring.router.queues[b"new"])
    assert ring.places(KEYS[:200]) == old
    ring.router.check()


@given(weights, st.randoms())
def test_places_do_not_depend_on_the_order_of_bindings(
    given_weights: list[int], chance: random.Random
) -> None:
    bindings = [(b"q%d" % number, b"%d" % each) for number, each in enumerate(given_weights)]
    one, other = Ring(), Ring()
    for name, weight in bindings:
        one.bind(name, weight)
    chance.shuffle(bindings)
    for name, weight in bindings:
        other.bind(name, weight)
    assert one.places(KEYS[:100]) == other.places(KEYS[:100])


def test_no_binding_and_the_alternate_exchange() -> None:
    """Without a binding nothing matches."""
    ring = Ring(**{"alternate-exchange": "amq.fanout"})
    assert ring.router.route(ring.exchange, [b"k"], b"") == []
    spare = Destination(b"spare", True)
    ring.router.add_queue(spare)
    ring.router.bind(ring.router.exchanges[b"amq.fanout"], spare, b"", b"")
    assert ring.place(b"k") == b"spare"
    ring.bind(b"q", b"1")
    assert ring.place(b"k") == b"q"


def test_the_oldest_binding_of_a_queue_gives_its_weight() -> None:
    """As in RabbitMQ, a second binding changes nothing; when the first one goes, it counts."""
    ring = Ring()
    ring.bind(b"a", b"1")
    ring.bind(b"b", b"1")
    even = ring.places(KEYS[:1000])
    ring.bind(b"a", b"1000000")
    assert ring.places(KEYS[:1000]) == even
    ring.router.unbind(ring.exchange, ring.router.queues[b"a"], b"1", b"")
    assert set(ring.places(KEYS[:1000])) == {b"a"}
    ring.router.unbind(ring.exchange, ring.router.queues[b"a"], b"1000000", b"")
    assert set(ring.places(KEYS[:1000])) == {b"b"}


def test_copies_do_not_count() -> None:
    """The routing key alone is hashed, whatever CC and BCC say."""
    ring = Ring()
    for number in range(5):
        ring.bind(b"q%d" % number, b"1")
    for key in KEYS[:50]:
        found = ring.router.route(ring.exchange, [key, b"copy", b"other"], b"")
        assert [queue.name for queue in found] == [ring.place(key)]
    assert not ring.router.depends_on_message(ring.exchange)


@pytest.mark.parametrize(
    ("one", "other", "is_equal"),
    [
        ({"h": "a"}, {"h": "a", "other": 1}, True),
        ({"h": "a"}, {"h": "b"}, False),
        ({}, {"other": 1}, True),
        ({"h": 5}, {"h": 5}, True),
        ({"h": [1, {"n": None}]}, {"h": [2]}, False),
    ],
)
def test_hash_of_a_header(one: dict[str, object], other: dict[str, object], is_equal: bool) -> None:
    """Messages with equal headers have one place; those without the header have one as well."""
    ring = Ring(**{"hash-header": "h"})
    for number in range(50):
        ring.bind(b"q%d" % number, b"1")
    assert ring.router.depends_on_message(ring.exchange)
    places = [ring.place(b"k", encode_table(fields_from_python(table))) for table in (one, other)]
    assert (places[0] == places[1]) is is_equal
    assert {ring.place(key, encode_table(fields_from_python(one))) for key in KEYS[:20]} == {
        places[0]
    }


@pytest.mark.parametrize("name", ["message_id", "correlation_id", "timestamp"])
def test_hash_of_a_property(name: str) -> None:
    """The named property alone decides."""
    ring = Ring(**{"hash-property": name})
    for number in range(50):
        ring.bind(b"q%d" % number, b"1")
    assert ring.router.depends_on_message(ring.exchange)

    def place(value: int, content_type: bytes | None = None) -> bytes:
        given_properties = Properties(content_type, app_id=b"a")
        setattr(given_properties, name, value if name == "timestamp" else b"%d" % value)
        return ring.place(b"k", b"", given_properties.encode())

    assert len({place(number) for number in range(500)}) == 50
    assert place(1) == place(1, content_type=b"t")
    without = {ring.place(key, b"", Properties(app_id=key).encode()) for key in KEYS[:50]}
    assert without == {ring.place(b"k")}


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b"0", "The binding key must be greater than 0"),
        (b"-3", "The binding key must be greater than 0"),
        (b"", "The binding key must be an integer: <<>>"),
        (b"a", 'The binding key must be an integer: <<"a">>'),
        (b"1.5", 'The binding key must be an integer: <<"1.5">>'),
        (b" 1", 'The binding key must be an integer: <<" 1">>'),
        (b"1_0", 'The binding key must be an integer: <<"1_0">>'),
        (b"--1", 'The binding key must be an integer: <<"--1">>'),
        ("٣".encode(), 'The binding key must be an integer: <<"٣">>'),
    ],
)
def test_a_key_that_is_no_weight(key: bytes, text: str) -> None:
    ring = Ring()
    for attempt in (
        lambda: ring.bind(b"q", key),
        lambda: ring.exchange.check_binding(key, b""),
    ):
        with pytest.raises(ChannelException) as caught:
            attempt()
        assert caught.value.text == "PRECONDITION_FAILED - " + text
    assert ring.router.bindings_of_source(ring.exchange) == []


@pytest.mark.parametrize("key", [b"+5", b"007", b"9" * 255])
def test_a_key_that_is_a_weight(key: bytes) -> None:
    """Signs, leading zeros and any size are allowed; a large weight costs no memory."""
    ring = Ring()
    ring.bind(b"q", key)
    ring.bind(b"r", b"1")
    assert {b"q"} <= set(ring.places(KEYS[:50]))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"hash-header": "h", "hash-property": "app_id"},
            "hash-header and hash-property are mutually exclusive",
        ),
        ({"hash-property": "app_id"}, "Unsupported property: app_id"),
        ({"hash-property": ""}, "Unsupported property: "),
        ({"hash-header": 1}, "invalid type 'signedint' for arg 'hash-header'; expected longstr"),
        ({"hash-property": None}, "invalid type 'void' for arg 'hash-property'; expected longstr"),
    ],
)
def test_arguments_that_are_refused(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(ChannelException) as caught:
        Ring(**arguments)
    assert (caught.value.code, caught.value.text) == (406, "PRECONDITION_FAILED - " + text)


def test_a_header_name_that_is_not_utf_8() -> None:
    """Names of headers and arguments are bytes to RabbitMQ."""
    router = Router(os.urandom)
    raw = encode_table({"hash-header": Field(ord("S"), b"\xff")})
    exchange = router.declare_exchange(b"x", b"x-consistent-hash", False, False, False, raw)
    for number in range(9):
        queue = Destination(b"%d" % number, True)
        router.add_queue(queue)
        router.bind(exchange, queue, b"1", b"")
    tables = [encode_table(fields_from_python({"\udcff": number})) for number in range(30)]
    assert len({router.route(exchange, [b"k"], table)[0].name for table in tables}) > 5
