"""Examples of the router's promises in the protocol, and of behaviour beyond the model."""

import os

import pytest

from warrenmq.routing.exchange import Destination, Exchange
from warrenmq.routing.exchange_types import EXCHANGE_TYPES, check_exchange_type
from warrenmq.routing.router import Router
from warrenmq.wire.errors import ConnectionException
from warrenmq.wire.field_table import encode_table, fields_from_python


def queue(router: Router, name: bytes) -> Destination:
    destination = Destination(name, True)
    router.add_queue(destination)
    return destination


def exchange(
    router: Router, name: bytes, type: bytes = b"fanout", alternate: str | None = None
) -> Exchange:
    arguments = {} if alternate is None else {"alternate-exchange": alternate}
    return router.declare_exchange(
        name, type, False, False, False, encode_table(fields_from_python(dict(arguments)))
    )


def auto_delete(router: Router, name: bytes) -> Exchange:
    return router.declare_exchange(name, b"fanout", False, True, False, b"")


def test_predeclared_exchanges() -> None:
    """Every vhost has seven predeclared exchanges, all durable."""
    router = Router(os.urandom)
    found = {(x.name, x.type, x.internal) for x in router.exchanges.values()}
    assert found == {
        (b"", b"direct", False),
        (b"amq.direct", b"direct", False),
        (b"amq.fanout", b"fanout", False),
        (b"amq.topic", b"topic", False),
        (b"amq.headers", b"headers", False),
        (b"amq.match", b"headers", False),
        (b"amq.rabbitmq.trace", b"topic", True),
    }
    assert all(x.durable and not x.auto_delete for x in router.exchanges.values())


def test_default_exchange_routes_by_queue_name_with_every_key() -> None:
    """The default exchange routes every key, also those of CC, to the queue of that name, once."""
    router = Router(os.urandom)
    one, two = queue(router, b"one"), queue(router, b"two")
    assert router.route(router.default_exchange, [b"two", b"one", b"two", b"none"], b"") == [
        two,
        one,
    ]


def test_queue_bound_in_many_ways_is_found_once() -> None:
    """A queue bound by several keys, arguments and paths gets one copy of the message."""
    router = Router(os.urandom)
    target = queue(router, b"q")
    first, second = exchange(router, b"first", b"topic"), exchange(router, b"second")
    arguments = encode_table(fields_from_python({"n": 1}))
    for key, raw in ((b"#", b""), (b"a.*", b""), (b"a.*", arguments)):
        assert router.bind(first, target, key, raw) is not None
    router.bind(first, second, b"a.b", b"")
    router.bind(second, target, b"", b"")
    assert router.route(first, [b"a.b", b"a.c"], b"") == [target]


def test_routing_keeps_nothing_of_a_result() -> None:
    """The caller may change the list that `route` returned."""
    router = Router(os.urandom)
    target = queue(router, b"q")
    router.bind(router.exchanges[b"amq.direct"], target, b"k", b"")
    for source, key in ((router.default_exchange, b"q"), (router.exchanges[b"amq.direct"], b"k")):
        router.route(source, [key], b"").clear()
        assert router.route(source, [key], b"") == [target]


def test_exchange_cycle_ends() -> None:
    """Exchanges bound in a ring, and to themselves, are each visited once."""
    router = Router(os.urandom)
    ring = [exchange(router, b"x%d" % number) for number in range(5)]
    queues = [queue(router, b"q%d" % number) for number in range(5)]
    for number in range(5):
        router.bind(ring[number], ring[(number + 1) % 5], b"", b"")
        router.bind(ring[number], ring[number], b"", b"")
        router.bind(ring[number], queues[number], b"", b"")
    assert router.route(ring[3], [b""], b"") == [queues[number] for number in (3, 4, 0, 1, 2)]


def test_alternate_exchange_chain_with_a_cycle() -> None:
    """An unmatched message follows alternate exchanges with its own key, each exchange once."""
    router = Router(os.urandom)
    first = exchange(router, b"first", b"direct", "second")
    exchange(router, b"second", b"direct", "third")
    third = exchange(router, b"third", b"topic", "first")
    assert router.route(first, [b"a.b"], b"") == []
    target = queue(router, b"q")
    router.bind(third, target, b"a.*", b"")
    assert router.route(first, [b"a.b"], b"") == [target]


def test_alternate_exchange_is_not_used_when_a_bound_exchange_matched() -> None:
    """A match without a queue still excludes the alternate exchange; a missing one is ignored."""
    router = Router(os.urandom)
    first = exchange(router, b"first", b"fanout", "spare")
    spare = exchange(router, b"spare")
    router.bind(spare, queue(router, b"q"), b"", b"")
    assert len(router.route(first, [b""], b"")) == 1
    dead_end = exchange(router, b"dead end")
    router.bind(first, dead_end, b"", b"")
    assert router.route(first, [b""], b"") == []
    router.delete_exchange(dead_end)
    router.delete_exchange(spare)
    assert router.route(first, [b""], b"") == []


def test_default_exchange_as_alternate() -> None:
    """With the default exchange as alternate, an unmatched message goes to its key's queue."""
    router = Router(os.urandom)
    target = queue(router, b"q")
    assert router.route(exchange(router, b"x", b"direct", ""), [b"q"], b"") == [target]


def test_auto_delete_exchange_stays_until_it_had_a_binding() -> None:
    """An auto-delete exchange is deleted with its last outgoing binding, not an incoming one."""
    router = Router(os.urandom)
    source, middle = exchange(router, b"source"), auto_delete(router, b"middle")
    target = queue(router, b"q")
    router.bind(source, middle, b"", b"")
    assert router.unbind(source, middle, b"", b"") is not None
    assert b"middle" in router.exchanges
    router.bind(source, middle, b"", b"")
    router.bind(middle, target, b"", b"")
    removed = router.remove_queue(target)
    assert removed.exchanges == [middle]
    assert [binding.source.name for binding in removed.bindings] == [b"middle", b"source"]
    assert list(source.outgoing) == []
    router.check()


def test_auto_delete_cascade_is_not_recursive() -> None:
    """A chain of exchanges longer than any call stack is deleted with the queue at its end."""
    router = Router(os.urandom)
    target = queue(router, b"q")
    chain = [auto_delete(router, b"x%d" % number) for number in range(20_000)]
    for number in range(1, len(chain)):
        router.bind(chain[number], chain[number - 1], b"", b"")
    router.bind(chain[0], target, b"", b"")
    assert router.route(chain[-1], [b""], b"") == [target]
    removed = router.remove_queue(target)
    assert removed.exchanges == chain and len(removed.bindings) == len(chain)
    assert len(router.exchanges) == 7


def test_binding_arguments_in_any_order_with_their_tags() -> None:
    """Equal arguments in any order are one binding; another type tag is another; L equals l."""
    router = Router(os.urandom)
    source, target = router.exchanges[b"amq.direct"], queue(router, b"q")
    assert router.bind(source, target, b"k", b"\x01aI\0\0\0\x01\x01bt\x01") is not None
    assert router.bind(source, target, b"k", b"\x01bt\x01\x01aI\0\0\0\x01") is None
    assert router.bind(source, target, b"k", b"\x01bt\x01\x01al\0\0\0\0\0\0\0\x01") is not None
    assert router.bind(source, target, b"k", b"\x01bt\x01\x01aL\0\0\0\0\0\0\0\x01") is None
    assert router.unbind(source, target, b"k", b"\x01aI\0\0\0\x02") is None
    assert router.unbind(source, target, b"k", b"\x01bt\x01\x01aI\0\0\0\x01") is not None
    assert len(router.bindings_of_destination(target)) == 2


def test_binding_is_durable_when_both_ends_are() -> None:
    """A binding is durable only when both its ends are durable."""
    router = Router(os.urandom)
    target = queue(router, b"q")
    transient = router.bind(router.exchanges[b"amq.direct"], target, b"k", b"")
    target.durable = True
    assert transient is not None and transient.is_durable()
    other = router.bind(exchange(router, b"x"), target, b"k", b"")
    assert other is not None and not other.is_durable()


@pytest.mark.parametrize(
    ("key", "arguments", "expected"),
    [
        (b"", b"", "~"),
        (b"order.*.created", b"", "order.%2A.created"),
        (b"a b/~\xff", b"", "a+b%2F%7E%FF"),
        (b"", b"\x01at\x01\x01bt\x01", "~"),
        (b"k", b"\x01at\x01\x01bt\x01", "k~"),
    ],
)
def test_properties_key(key: bytes, arguments: bytes, expected: str) -> None:
    """The properties key is the form-encoded key, with six characters of hash for arguments.

    The hash does not depend on the order of the arguments.
    """
    router = Router(os.urandom)
    binding = router.bind(router.exchanges[b"amq.direct"], queue(router, b"q"), key, arguments)
    assert binding is not None
    found = binding.properties_key()
    if arguments:
        assert found[:-6] == expected
        other = router.bind(
            router.exchanges[b"amq.topic"], binding.destination, key, b"\x01bt\x01\x01at\x01"
        )
        assert other is not None and other.properties_key() == found
    else:
        assert found == expected


def test_listings_show_the_implicit_bindings() -> None:
    """A listing shows each queue's binding from the default exchange, first in its list."""
    router = Router(os.urandom)
    target = queue(router, b"q")
    made = router.bind(router.exchanges[b"amq.direct"], target, b"k", b"")
    bindings = router.bindings_of_destination(target)
    assert [(b.source.name, b.key) for b in bindings] == [(b"", b"q"), (b"amq.direct", b"k")]
    assert bindings[1] is made
    assert [b.destination for b in router.bindings_of_source(router.default_exchange)] == [target]
    assert [b.key for b in router.all_bindings()] == [b"q", b"k"]
    assert router.bindings_of_destination(router.exchanges[b"amq.direct"]) == []


def test_version_counts_changes_only() -> None:
    """The version grows with each change; a repeated bind or an unbind of nothing is none."""
    router = Router(os.urandom)
    versions = [router.version]
    target = queue(router, b"q")
    versions.append(router.version)
    source = exchange(router, b"x")
    versions.append(router.version)
    router.bind(source, target, b"k", b"")
    versions.append(router.version)
    assert versions == sorted(set(versions))
    router.bind(source, target, b"k", b"")
    router.unbind(source, target, b"other", b"")
    router.route(source, [b"k"], b"")
    assert router.version == versions[-1]
    for change in (
        lambda: router.unbind(source, target, b"k", b""),
        lambda: router.remove_queue(target),
        lambda: router.delete_exchange(source),
    ):
        before = router.version
        change()
        assert router.version > before


def test_unknown_exchange_type_closes_the_connection() -> None:
    """An unknown exchange type gives 503 with its name, and declares nothing."""
    router = Router(os.urandom)
    for type in EXCHANGE_TYPES:
        check_exchange_type(type)
    with pytest.raises(ConnectionException) as caught:
        router.declare_exchange(b"x", b"x-nonsense", False, False, False, b"")
    assert (caught.value.code, caught.value.text) == (
        503,
        "COMMAND_INVALID - unknown exchange type 'x-nonsense'",
    )
    assert b"x" not in router.exchanges


@pytest.mark.parametrize("type", [name for name in EXCHANGE_TYPES if name != b"x-delayed-message"])
def test_a_replaced_queue_keeps_its_place_among_the_bindings(type: bytes) -> None:
    """Messages take the same routes as before, in the same order, to the object that took over."""
    router = Router(os.urandom)
    source = exchange(router, b"x", type)
    queues = [queue(router, name) for name in (b"one", b"two", b"three")]
    for each in queues:
        router.bind(source, each, b"7", b"")
    before = router.route(source, [b"7"], b"")
    others = {each: Destination(each.name, True) for each in queues}
    for old, new in others.items():
        router.replace_queue(old, new)
        assert not old.incoming and router.queues[new.name] is new
    if type != b"x-random":
        assert router.route(source, [b"7"], b"") == [others[each] for each in before]
    router.check()
    assert {binding.destination for binding in source.outgoing.values()} == set(others.values())
    removed = router.remove_queue(others[queues[1]])
    assert len(removed.bindings) == 1
    router.check()
