"""The headers exchange matches as a transcription of its rules does, and refuses bad x-match."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.routing.naive import headers_fit
from tests.wire.strategies import field_tables
from warrenmq.routing.exchange import Destination
from warrenmq.routing.router import Router
from warrenmq.wire.errors import ChannelException, ConnectionException
from warrenmq.wire.field_table import Field, encode_table, fields_from_python

# Few names and similar values, so that matches and near misses are frequent.
TEXT = Field(ord("S"), b"1")
values = st.sampled_from(
    [
        Field(ord("I"), 1),
        Field(ord("l"), 1),
        Field(ord("T"), 1),
        Field(ord("d"), 1.0),
        Field(ord("f"), 1.5),
        Field(ord("t"), True),
        Field(ord("t"), False),
        Field(ord("b"), 0),
        Field(ord("V"), None),
        Field(ord("D"), (0, 1)),
        TEXT,
        Field(ord("x"), b"1"),
        Field(ord("A"), [Field(ord("l"), 1)]),
        Field(ord("A"), [Field(ord("L"), 1)]),
        Field(ord("A"), [Field(ord("I"), 1)]),
        Field(ord("A"), []),
        Field(ord("F"), {}),
        Field(ord("F"), {"n": TEXT, "m": Field(ord("I"), 2)}),
        Field(ord("F"), {"m": Field(ord("I"), 2), "n": TEXT}),
        Field(ord("F"), {"n": Field(ord("x"), b"1"), "m": Field(ord("I"), 2)}),
        Field(ord("F"), {"n": Field(ord("A"), [TEXT])}),
    ]
)
tables = st.dictionaries(st.sampled_from(["a", "b", "x-a", "x-b"]), values, max_size=4)
modes = st.sampled_from([None, b"all", b"any", b"all-with-x", b"any-with-x"])


def routes(arguments: dict[str, Field], headers: dict[str, Field]) -> bool:
    router = Router(os.urandom)
    queue = Destination(b"q", True)
    router.add_queue(queue)
    exchange = router.exchanges[b"amq.headers"]
    router.bind(exchange, queue, b"ignored", encode_table(arguments))
    return router.route(exchange, [b"key", b"other"], encode_table(headers)) == [queue]


def with_mode(arguments: dict[str, Field], mode: bytes | None) -> dict[str, Field]:
    return arguments if mode is None else {"x-match": Field(ord("S"), mode), **arguments}


@given(tables, tables, modes)
def test_headers_match_as_the_rules_say(
    arguments: dict[str, Field], headers: dict[str, Field], mode: bytes | None
) -> None:
    """Headers match in all four modes by value, not by type tag; `x-` names count in two modes."""
    arguments = with_mode(arguments, mode)
    assert routes(arguments, headers) == headers_fit(arguments, headers)


@given(field_tables, modes, st.data())
def test_headers_match_arbitrary_tables(
    headers: dict[str, Field], mode: bytes | None, data: st.DataObject
) -> None:
    """Arbitrary values match, nested ones too, for the binding's headers and for others."""
    some = data.draw(st.lists(st.sampled_from(sorted(headers)), unique=True)) if headers else []
    arguments = {name: headers[name] for name in some if name != "x-match"}
    for candidate in (arguments, {**arguments, **data.draw(field_tables)}):
        candidate.pop("x-match", None)
        wanted = with_mode(candidate, mode)
        assert routes(wanted, headers) == headers_fit(wanted, headers)


@pytest.mark.parametrize(
    ("arguments", "headers", "fits"),
    [
        ({}, {}, True),
        ({"x-match": "any"}, {"a": 1}, False),
        ({"x-match": "all-with-x"}, {}, True),
        ({"a": None}, {"a": 5}, True),
        ({"a": None}, {}, False),
        ({"a": 5}, {"a": None}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": "1"}, {"a": 1}, False),
        ({"a": [1]}, {"a": [1.0]}, False),
        ({"a": []}, {"a": {}}, True),
        ({"a": {"n": 1, "m": 2}}, {"a": {"m": 2, "n": 1}}, False),
        ({"x-a": 1}, {}, True),
        ({"x-match": "any", "x-a": 1}, {"x-a": 1}, False),
        ({"x-match": "any-with-x", "x-a": 1}, {"x-a": 1}, True),
        ({"x-match": "all-with-x", "x-a": 1, "b": 2}, {"b": 2}, False),
        ({"x-match": "any", "a": 1, "b": 2}, {"b": 2}, True),
    ],
)
def test_headers_cases(
    arguments: dict[str, object], headers: dict[str, object], fits: bool
) -> None:
    """The cases of RabbitMQ's headers exchange route as there (protocol 6)."""
    assert routes(fields_from_python(arguments), fields_from_python(headers)) is fits


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (
            Field(ord("S"), b"most"),
            'Invalid x-match field value <<"most">>; expected all, any, all-with-x, or any-with-x',
        ),
        (
            Field(ord("S"), b"\x00\xff"),
            "Invalid x-match field value <<0,255>>; expected all, any, all-with-x, or any-with-x",
        ),
        (Field(ord("I"), 1), "Invalid x-match field type signedint (value 1); expected longstr"),
        (Field(ord("t"), True), "Invalid x-match field type bool (value true); expected longstr"),
        (
            Field(ord("V"), None),
            "Invalid x-match field type void (value undefined); expected longstr",
        ),
        (
            Field(ord("x"), b"all"),
            'Invalid x-match field type binary (value <<"all">>); expected longstr',
        ),
    ],
)
def test_headers_binding_with_bad_x_match_is_refused(field: Field, text: str) -> None:
    """A bad x-match gives 406 with RabbitMQ's text, in the check and the bind; nothing is bound."""
    router = Router(os.urandom)
    queue = Destination(b"q", True)
    router.add_queue(queue)
    exchange = router.exchanges[b"amq.match"]
    raw = encode_table({"x-match": field})
    for attempt in (
        lambda: exchange.check_binding(b"", raw),
        lambda: router.bind(exchange, queue, b"", raw),
    ):
        with pytest.raises(ChannelException) as caught:
            attempt()
        assert (caught.value.code, caught.value.text) == (406, "PRECONDITION_FAILED - " + text)
    assert router.bindings_of_source(exchange) == []
    router.check()
    router.exchanges[b"amq.direct"].check_binding(b"", raw)


def test_malformed_headers_are_an_error_only_where_they_are_looked_at() -> None:
    """A direct exchange never decodes headers; a headers exchange answers 541, as RabbitMQ does."""
    router = Router(os.urandom)
    assert router.route(router.exchanges[b"amq.direct"], [b"k"], b"\xff") == []
    with pytest.raises(ConnectionException) as caught:
        router.route(router.exchanges[b"amq.headers"], [b"k"], b"\xff")
    assert caught.value.code == 541
