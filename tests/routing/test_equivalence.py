"""A repeated declaration is compared with the first; a difference gives RabbitMQ's exact text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.strategies import field_tables, fields
from warrenmq.routing.equivalence import (
    assert_equivalent_arguments,
    assert_equivalent_exchange,
    assert_equivalent_flag,
    name_argument,
    resource_text,
)
from warrenmq.routing.exchange_types import make_exchange
from warrenmq.routing.field_values import erlang_value, values_equivalent, values_match
from warrenmq.wire.errors import ChannelException
from warrenmq.wire.field_table import Field, encode_table

QUEUE = "queue 'q' in vhost '/'"
AE = "alternate-exchange"


def field(tag: str, value: object) -> Field:
    return Field(ord(tag), value)


def refusal(received: dict[str, Field], current: dict[str, Field], keys: list[str]) -> str:
    with pytest.raises(ChannelException) as caught:
        assert_equivalent_arguments(keys, QUEUE, received, current)
    assert caught.value.code == 406
    return caught.value.text


def test_argument_on_one_side_only() -> None:
    """An argument on one side only is shown as `none`, and with value and type on the other."""
    ttl = {"x-message-ttl": field("I", 60000)}
    assert refusal({}, ttl, ["x-expires", "x-message-ttl"]) == (
        "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': "
        "received none but current is the value '60000' of type 'signedint'"
    )
    assert refusal({"x-queue-mode": field("S", b"lazy")}, {}, ["x-queue-mode"]) == (
        "PRECONDITION_FAILED - inequivalent arg 'x-queue-mode' for queue 'q' in vhost '/': "
        "received the value 'lazy' of type 'longstr' but current is none"
    )


def test_argument_with_another_value() -> None:
    """For different values the text has both values, without their types."""
    assert refusal({"k": field("l", 2)}, {"k": field("S", b"two")}, ["k"]) == (
        "PRECONDITION_FAILED - inequivalent arg 'k' for queue 'q' in vhost '/': received '2' but current is 'two'"
    )
    assert "received 'true' but current is '[{signedint,1}]'" in refusal(
        {"k": field("t", True)}, {"k": field("A", [field("I", 1)])}, ["k"]
    )


def test_a_void_beside_a_value_is_none() -> None:
    """RabbitMQ 3.10.8 says so for each of eleven arguments of queues."""
    void = {"x-max-length": field("V", None)}
    text = refusal(void, {"x-max-length": field("I", 5)}, ["x-max-length"])
    assert text.endswith(": received none but current is '5'")


@pytest.mark.parametrize("tag", list("bBsuIilL"))
def test_integers_are_equivalent_over_all_their_types(tag: str) -> None:
    """Integers of all types are equivalent by value, but not to a float, a bool or a string."""
    assert_equivalent_arguments(["k"], QUEUE, {"k": field(tag, 1)}, {"k": field("I", 1)})
    for other in (field("d", 1.0), field("t", True), field("S", b"1"), field("I", 2)):
        refusal({"k": field(tag, 1)}, {"k": other}, ["k"])


@given(field_tables, field_tables)
def test_only_the_given_keys_are_compared(one: dict[str, Field], other: dict[str, Field]) -> None:
    """Only the given keys are compared; a table is equivalent to itself."""
    assert_equivalent_arguments(sorted(one), QUEUE, one, {**other, **one})
    assert_equivalent_arguments([], QUEUE, one, other)


@given(fields, fields)
def test_comparisons_are_symmetric(one: Field, other: Field) -> None:
    """Equivalence and matching are symmetric; equivalent values match; any value prints."""
    assert values_equivalent(one, one) and values_match(one, one)
    assert values_equivalent(one, other) == values_equivalent(other, one)
    assert values_match(one, other) == values_match(other, one)
    assert values_match(one, other) or not values_equivalent(one, other)
    assert erlang_value(one) != ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (field("S", b'a"\\\n\x1b\xe9'), '<<"a\\"\\\\\\n\\eé">>'),
        (field("S", b""), "<<>>"),
        (field("S", b"a\x7f"), "<<97,127>>"),
        (field("d", 1.5), "1.5"),
        (field("D", (2, 314)), "{2,314}"),
        (field("V", None), "undefined"),
        (field("F", {"n": field("t", False)}), '[{<<"n">>,bool,false}]'),
        (field("A", [field("S", b"x"), field("l", -1)]), '[{longstr,<<"x">>},{long,-1}]'),
    ],
)
def test_erlang_terms(value: Field, text: str) -> None:
    """Values in error texts have the form in which RabbitMQ prints them."""
    assert erlang_value(value) == text


def declared_again(**changed: object) -> str:
    arguments = encode_table({AE: field("S", b"ae"), "other": field("I", 1)})
    exchange = make_exchange(b"x", b"direct", True, False, False, arguments)
    attributes: dict[str, object] = {
        "type": b"direct", "durable": True, "auto_delete": False, "internal": False, "arguments": arguments,
    }  # fmt: skip
    assert_equivalent_exchange(exchange, b"/", **attributes)  # type: ignore[arg-type]  # one table for all
    with pytest.raises(ChannelException) as caught:
        assert_equivalent_exchange(exchange, b"/", **{**attributes, **changed})  # type: ignore[arg-type]  # as above
    assert caught.value.code == 406
    prefix = "PRECONDITION_FAILED - inequivalent arg "
    assert caught.value.text.startswith(prefix)
    return caught.value.text.removeprefix(prefix)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (
            {"type": b"fanout"},
            "'type' for exchange 'x' in vhost '/': received 'fanout' but current is 'direct'",
        ),
        (
            {"durable": False},
            "'durable' for exchange 'x' in vhost '/': received 'false' but current is 'true'",
        ),
        (
            {"auto_delete": True, "internal": True},
            "'auto_delete' for exchange 'x' in vhost '/': received 'true' but current is 'false'",
        ),
        (
            {"internal": True},
            "'internal' for exchange 'x' in vhost '/': received 'true' but current is 'false'",
        ),
        (
            {"arguments": b""},
            "'alternate-exchange' for exchange 'x' in vhost '/': received none but current is the value 'ae' of type 'longstr'",
        ),
        (
            {"arguments": encode_table({AE: field("S", b"b")})},
            "'alternate-exchange' for exchange 'x' in vhost '/': received 'b' but current is 'ae'",
        ),
    ],
)
def test_exchange_declared_differently(changed: dict[str, object], text: str) -> None:
    """A different exchange declaration gives the first difference in RabbitMQ's order and words."""
    assert declared_again(**changed) == text


def test_exchange_arguments_that_do_not_count() -> None:
    """Only the argument alternate-exchange counts for exchanges; both types of bytes are equal."""
    exchange = make_exchange(
        b"x", b"direct", True, False, False, encode_table({AE: field("S", b"ae")})
    )
    raw = encode_table({"n": field("I", 1), AE: field("x", b"ae")})
    assert_equivalent_exchange(exchange, b"/", b"direct", True, False, False, raw)


def test_flag_and_resource_texts() -> None:
    """Differences of queues have the same words as those of exchanges."""
    resource = resource_text("queue", b"q\xff", b"/")
    assert_equivalent_flag("durable", resource, True, True)
    with pytest.raises(
        ChannelException, match="inequivalent arg 'durable' for queue 'q\ufffd' in vhost '/'"
    ):
        assert_equivalent_flag("durable", resource, True, False)


def test_name_argument_of_another_type_is_refused() -> None:
    """A name argument that is no longstr gives 406; an absent one is accepted."""
    name_argument({}, AE, "exchange 'x' in vhost '/'")
    name_argument({AE: field("S", b"")}, AE, "exchange 'x' in vhost '/'")
    with pytest.raises(ChannelException) as caught:
        name_argument({AE: field("I", 1)}, AE, "exchange 'x' in vhost '/'")
    assert caught.value.text == (
        "PRECONDITION_FAILED - invalid type 'signedint' for arg 'alternate-exchange' in exchange 'x' in vhost '/'"
    )
    assert (
        make_exchange(
            b"x", b"direct", True, False, False, encode_table({AE: field("I", 1)})
        ).alternate
        is None
    )


@given(st.binary(max_size=40))
def test_any_bytes_print(value: bytes) -> None:
    """Any bytes print, and different bytes print differently."""
    assert erlang_value(field("S", value)) != erlang_value(field("S", value + b"x"))
