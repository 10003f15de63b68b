"""What no RabbitMQ shows: items of x-death that stop its queue, malformed blocks, the memory."""

import pytest

from warrenmq.broker.dead_letters.death_headers import (
    EXPIRED,
    MAXLEN,
    DeathHeaders,
    cycling_queues,
    dead_letter_properties,
    with_delivery_count,
)
from warrenmq.wire.errors import MalformedBytes
from warrenmq.wire.field_table import Field, decode_table, encode_table
from warrenmq.wire.properties import NO_PROPERTIES, Properties, decode_properties


def died(raw: bytes, queue: bytes, reason: bytes = EXPIRED, seconds: int = 7) -> bytes:
    return dead_letter_properties(raw, b"x", b"key", queue, reason, seconds, True)


def with_deaths(*items: Field) -> bytes:
    return Properties(headers=encode_table({"x-death": Field(ord("A"), list(items))})).encode()


def deaths(raw: bytes) -> list[Field]:
    headers = decode_properties(raw).headers
    assert headers is not None
    items = decode_table(headers)["x-death"].value
    assert isinstance(items, list)
    return items


def test_items_that_are_no_tables_stay_and_end_the_search_for_a_cycle() -> None:
    odd = Field(ord("S"), b"no table")
    entry = Field(ord("F"), {"queue": Field(ord("S"), b"q"), "reason": Field(ord("S"), EXPIRED)})
    raw = died(with_deaths(entry, odd), b"other")
    assert deaths(raw)[1] == odd
    assert cycling_queues(raw, EXPIRED, [b"q", b"other"]) == [b"other"]


@pytest.mark.parametrize(
    ("count", "next_count"),
    [
        (Field(ord("S"), b"many"), 1),
        (Field(ord("d"), 1.5), 1),
        (Field(ord("l"), 2**63 - 1), -(2**63)),
    ],
)
def test_a_count_that_is_no_number_starts_again(count: Field, next_count: int) -> None:
    fields = {
        "queue": Field(ord("S"), b"q"), "reason": Field(ord("S"), EXPIRED), "count": count
    }  # fmt: skip
    (death,) = deaths(died(with_deaths(Field(ord("F"), fields)), b"q"))
    assert isinstance(death.value, dict)
    assert death.value["count"] == Field(ord("l"), next_count)


def test_remembered_dead_letters_are_those_of_the_same_death() -> None:
    """Each argument alone makes another dead letter, also when the memory turns over."""
    remembering = DeathHeaders()
    first = (NO_PROPERTIES, b"x", b"key", b"q", EXPIRED, 7, True)
    copies = Properties(headers=encode_table({"CC": Field(ord("A"), [])})).encode()
    variations = [
        first,
        (copies, *first[1:]),
        (copies, *first[1:6], False),
        (first[0], b"y", *first[2:]),
        (*first[:2], b"other", *first[3:]),
        (*first[:3], b"r", *first[4:]),
        (*first[:4], MAXLEN, *first[5:]),
        (*first[:5], 8, True),
    ]
    for arguments in variations + variations[::-1]:
        assert remembering.of(*arguments) == dead_letter_properties(*arguments)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x20\x00",
        b"\x20\x00\x00\x00\x00\x02\x01a",
        b"\x20\x00\x00\x00\x00\x04\x01aSS",
        b"\x18\x00\x01",
        b"\x01\x00\x05abc",
    ],
)
def test_malformed_blocks_are_refused(raw: bytes) -> None:
    with pytest.raises(MalformedBytes):
        died(raw, b"q")
    with pytest.raises(MalformedBytes):
        with_delivery_count(raw, 1)
