"""Random exchanges: one binding a message, drawn from the node's source of random bytes."""

import random
from collections import Counter

from warrenmq.routing.exchange import Destination, Exchange
from warrenmq.routing.router import Router


def bound(router: Router, *names: bytes) -> Exchange:
    """A random exchange with a binding to the queue of each name."""
    exchange = router.declare_exchange(b"x", b"x-random", False, False, False, b"")
    for number, name in enumerate(names):
        if name not in router.queues:
            router.add_queue(Destination(name, True))
        router.bind(exchange, router.queues[name], b"%d" % number, b"")
    return exchange


def drawn(router: Router, exchange: Exchange, count: int) -> list[bytes]:
    found = [router.route(exchange, [b"k", b"copy"], b"") for _ in range(count)]
    assert all(len(queues) == 1 for queues in found)
    return [queues[0].name for queues in found]


def test_every_binding_has_the_same_chance() -> None:
    """A queue with two bindings gets twice as much; the order of draws follows the source."""
    router = Router(random.Random(1).randbytes)
    exchange = bound(router, b"a", b"b", b"b", b"c")
    assert router.depends_on_message(exchange)
    names = drawn(router, exchange, 8000)
    counts = Counter(names)
    for name, expected in ((b"a", 2000), (b"b", 4000), (b"c", 2000)):
        assert abs(counts[name] - expected) < 5 * expected**0.5
    again = Router(random.Random(1).randbytes)
    assert drawn(again, bound(again, b"a", b"b", b"b", b"c"), 8000) == names


def test_few_bindings_and_other_exchanges() -> None:
    """Without a binding nothing matches; an exchange that was drawn routes on."""
    router = Router(random.Random(2).randbytes)
    exchange = bound(router)
    assert router.route(exchange, [b"k"], b"") == []
    router.set_alternate(exchange, b"amq.fanout")
    fanout = router.exchanges[b"amq.fanout"]
    for name in (b"a", b"b"):
        router.add_queue(Destination(name, True))
        router.bind(fanout, router.queues[name], b"", b"")
    both = [router.queues[b"a"], router.queues[b"b"]]
    assert router.route(exchange, [b"k"], b"") == both
    router.bind(exchange, fanout, b"", b"")
    router.bind(exchange, exchange, b"", b"")
    assert {len(router.route(exchange, [b"k"], b"")) for _ in range(50)} == {0, 2}
