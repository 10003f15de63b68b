"""Message properties: round trip, presence bits, and the two scans of the hot path."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.strategies import properties
from warrenmq.wire.errors import ConnectionException
from warrenmq.wire.properties import (
    NO_PROPERTIES,
    Properties,
    decode_properties,
    delivery_mode,
)

NAMES = [
    "content_type",
    "content_encoding",
    "headers",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
]


def values_of(block: Properties) -> dict[str, object]:
    return {name: getattr(block, name) for name in NAMES}


@given(properties)
def test_properties_round_trip(block: Properties) -> None:
    """Encoded properties decode to all 14 values again, and the scans agree with the decoder."""
    raw = block.encode()
    decoded = decode_properties(raw)
    assert values_of(decoded) == values_of(block)
    assert decoded.encode() == raw
    assert delivery_mode(raw) == (block.delivery_mode or 0)


@given(properties, st.data())
def test_properties_cut_short_are_refused(block: Properties, data: st.DataObject) -> None:
    """No proper prefix decodes, and the scans raise no exception that the decoder does not."""
    raw = block.encode()
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(ConnectionException) as caught:
        decode_properties(raw[:cut])
    assert (caught.value.code, caught.value.text) == (541, "INTERNAL_ERROR")
    assert delivery_mode(raw[:cut]) in {-1, 0, block.delivery_mode}


def test_properties_with_bytes_left_over_are_refused() -> None:
    """Bytes after the last property are an error."""
    with pytest.raises(ConnectionException):
        decode_properties(NO_PROPERTIES + b"\x00")


@pytest.mark.parametrize("index", range(14))
def test_presence_bits_run_down_from_bit_15(index: int) -> None:
    """Bit 15 - n flags the n-th property."""
    name = NAMES[index]
    value: object = 1 if name in {"delivery_mode", "priority", "timestamp"} else b""
    block = Properties(**{name: value})  # type: ignore[arg-type]  # built by name
    assert int.from_bytes(block.encode()[:2], "big") == 1 << (15 - index)


def test_bits_1_and_0_are_ignored() -> None:
    """No continuation word follows, as in RabbitMQ; both bits are encoded as 0."""
    assert decode_properties(b"\x00\x03").encode() == NO_PROPERTIES
    assert decode_properties(b"\x10\x03\x02").encode() == b"\x10\x00\x02"


def test_malformed_headers_are_refused() -> None:
    """The decoder reads the headers table, while the scan for it does not."""
    raw = Properties(headers=b"\x01aU\x00").encode()
    with pytest.raises(ConnectionException) as caught:
        decode_properties(raw)
    assert caught.value.code == 541


@pytest.mark.parametrize(
    "raw", ["", "10", "1000", "9000", "900005", "30000000", "3000ffffffff", "b00000ffffffff01"]
)
def test_delivery_mode_of_a_malformed_block_is_minus_one(raw: str) -> None:
    """The hot path calls delivery_mode without a try."""
    assert delivery_mode(bytes.fromhex(raw)) == -1


@pytest.mark.parametrize(
    "block",
    [
        Properties(type=b"x" * 256),
        Properties(priority=256),
        Properties(timestamp=-1),
        Properties(timestamp=1 << 64),
    ],
)
def test_property_without_encoding_is_our_mistake(block: Properties) -> None:
    """Such a property raises ValueError, compiled and interpreted alike."""
    with pytest.raises(ValueError, match=r"at most 255|unsigned"):
        block.encode()
