"""Delayed exchanges: the delay of a message, where it waits, and how it is routed without."""

import os

import pytest

from warrenmq.routing.delay import DELAY_MS_MAX, delay_ms
from warrenmq.routing.exchange import Destination, Exchange
from warrenmq.routing.router import Router
from warrenmq.wire.errors import ChannelException, ConnectionException
from warrenmq.wire.field_table import Field, encode_table, fields_from_python


def delayed(router: Router, name: bytes, inner: str, **arguments: object) -> Exchange:
    raw = encode_table(fields_from_python({"x-delayed-type": inner, **arguments}))
    return router.declare_exchange(name, b"x-delayed-message", False, False, False, raw)


def queue(router: Router, name: bytes) -> Destination:
    destination = Destination(name, True)
    router.add_queue(destination)
    return destination


def headers(**values: object) -> bytes:
    return encode_table(
        fields_from_python({name.replace("__", "-"): value for name, value in values.items()})
    )


@pytest.mark.parametrize(
    ("field", "delay"),
    [
        (None, 0),
        *[(Field(ord(tag), 100), 100) for tag in "bBsuIilL"],
        (Field(ord("l"), 0), 0),
        (Field(ord("l"), -100), 0),
        (Field(ord("l"), DELAY_MS_MAX), DELAY_MS_MAX),
        (Field(ord("l"), DELAY_MS_MAX + 1), 0),
        (Field(ord("l"), -(1 << 63)), 0),
        (Field(ord("d"), 1500.9), 1500),
        (Field(ord("f"), 0.5), 0),
        (Field(ord("d"), -1500.0), 0),
        (Field(ord("d"), 4294967295.5), DELAY_MS_MAX),
        (Field(ord("d"), 4294967296.0), 0),
        (Field(ord("d"), float("inf")), 0),
        (Field(ord("d"), float("nan")), 0),
        (Field(ord("S"), b"1500"), 1500),
        (Field(ord("x"), b"+0015"), 15),
        (Field(ord("S"), b"-1500"), 0),
        (Field(ord("S"), b"4294967296"), 0),
        (Field(ord("S"), b"9" * 5000), 0),
        (Field(ord("S"), b"1.5"), 0),
        (Field(ord("S"), b""), 0),
        (Field(ord("S"), b" 5"), 0),
        (Field(ord("S"), b"soon"), 0),
        (Field(ord("t"), True), 0),
        (Field(ord("T"), 100), 0),
        (Field(ord("D"), (0, 100)), 0),
        (Field(ord("V"), None), 0),
        (Field(ord("A"), [Field(ord("I"), 100)]), 0),
    ],
)
def test_delay(field: Field | None, delay: int) -> None:
    """Numbers above 0 within the bounds delay a message, as texts too; nothing else does."""
    table = {"other": Field(ord("I"), 1)}
    if field is not None:
        table["x-delay"] = field
    assert delay_ms(table) == delay


def test_a_message_waits_only_with_a_delay() -> None:
    """The router names the exchange where a message waits, and sends it nowhere meanwhile."""
    router = Router(os.urandom)
    exchange = delayed(router, b"x", "direct", **{"alternate-exchange": "amq.fanout"})
    target, spare = queue(router, b"q"), queue(router, b"spare")
    router.bind(exchange, target, b"k", b"")
    router.bind(router.exchanges[b"amq.fanout"], spare, b"", b"")
    assert exchange.is_delayed and router.depends_on_message(exchange)
    for table, expected, expected_waits in (
        (headers(x__delay=50), [], [exchange]),
        (headers(x__delay=-50), [target], []),
        (headers(), [target], []),
    ):
        waits: list[Exchange] = []
        assert router.route(exchange, [b"k"], table, b"", waits) == expected
        assert waits == expected_waits
    # Who asks for no exchanges to wait at gets the queues of a message whose time has come.
    assert router.route(exchange, [b"k"], headers(x__delay=50)) == [target]
    # The alternate exchange gets what matches nothing, but not what waits.
    assert router.route(exchange, [b"other"], headers(x__delay=50), b"", []) == []
    assert router.route(exchange, [b"other"], headers(x__delay=-50), b"", []) == [spare]


def test_delayed_exchanges_behind_others() -> None:
    """A message can wait at several exchanges while other queues have it already."""
    router = Router(os.urandom)
    first = router.exchanges[b"amq.fanout"]
    waiting = [delayed(router, b"x1", "fanout"), delayed(router, b"x2", "topic")]
    now, later = queue(router, b"now"), queue(router, b"later")
    for destination in (*waiting, now):
        router.bind(first, destination, b"", b"")
    router.bind(waiting[0], waiting[1], b"", b"")
    router.bind(waiting[1], later, b"#", b"")
    waits: list[Exchange] = []
    assert router.depends_on_message(first)
    assert router.route(first, [b"k"], headers(x__delay=5), b"", waits) == [now]
    assert waits == waiting
    assert router.route(waiting[0], [b"k"], headers(x__delay=-5), b"", waits) == [later]
    assert router.route(first, [b"k"], headers(), b"", waits) == [now, later]
    assert waits == waiting


@pytest.mark.parametrize(
    "inner", ["direct", "fanout", "topic", "headers", "x-consistent-hash", "x-random"]
)
def test_every_type_can_be_delayed(inner: str) -> None:
    """The inner type checks bindings, matches, and forgets removed bindings."""
    router = Router(os.urandom)
    exchange = delayed(router, b"x", inner)
    plain = router.declare_exchange(b"y", inner.encode(), False, False, False, b"")
    targets = [queue(router, b"q%d" % number) for number in range(3)]
    table = headers(n=1)
    for number, target in enumerate(targets):
        for source in (exchange, plain):
            router.bind(source, target, b"%d" % (number + 1), headers(n=number))
    one_of_all = inner == "x-random"
    for keys in ([b"1"], [b"2", b"3"], [b"none"]):
        found = router.route(exchange, keys, table)
        assert (len(found) == 1) if one_of_all else (found == router.route(plain, keys, table))
    assert exchange.type == b"x-delayed-message"
    for target in targets[1:]:
        router.remove_queue(target)
    found = router.route(exchange, [b"1"], headers(n=0))
    assert found == router.route(plain, [b"1"], headers(n=0)) == [targets[0]]
    router.check()


def test_the_inner_type_refuses_bindings_and_arguments() -> None:
    router = Router(os.urandom)
    exchange = delayed(router, b"x", "x-consistent-hash", **{"hash-header": "h"})
    with pytest.raises(ChannelException, match="must be an integer"):
        router.bind(exchange, queue(router, b"q"), b"k", b"")
    with pytest.raises(ChannelException, match="Unsupported property: x"):
        delayed(router, b"y", "x-consistent-hash", **{"hash-property": "x"})
    headers_exchange = delayed(router, b"z", "headers")
    with pytest.raises(ChannelException, match="Invalid x-match field"):
        headers_exchange.check_binding(b"", headers(x__match="most"))
    assert b"y" not in router.exchanges


MISSING = "Invalid argument, 'x-delayed-type' must be an existing exchange type"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, MISSING),
        ({"x-delayed-type": 1}, MISSING),
        ({"x-delayed-type": None}, MISSING),
        (
            {"x-delayed-type": "x-delayed-message"},
            "Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'",
        ),
    ],
)
def test_a_delayed_exchange_needs_another_type(arguments: dict[str, object], text: str) -> None:
    router = Router(os.urandom)
    raw = encode_table(fields_from_python(arguments))
    with pytest.raises(ChannelException) as caught:
        router.declare_exchange(b"x", b"x-delayed-message", False, False, False, raw)
    assert (caught.value.code, caught.value.text) == (406, "PRECONDITION_FAILED - " + text)


def test_an_unknown_inner_type_closes_the_connection() -> None:
    with pytest.raises(ConnectionException, match="unknown exchange type 'other'") as caught:
        delayed(Router(os.urandom), b"x", "other")
    assert caught.value.code == 503
