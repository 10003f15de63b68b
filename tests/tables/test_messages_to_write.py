"""Tests messages made of Arrow batches: columns of the data source, and exact property blocks."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.offline.part_writer import address_of
from warrenmq.tables.columns import MESSAGE_COLUMNS
from warrenmq.tables.messages_to_write import columns_of
from warrenmq.wire.properties import CLUSTER_ID, EXPIRATION, Properties, decode_properties

NOW = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
SHORT = st.none() | st.binary(max_size=12)
OCTET = st.none() | st.integers(0, 255)
# Encoded header tables that decode.
HEADERS = st.none() | st.sampled_from([b"", b"\x01aV", b"\x01nI\x00\x00\x00\x07\x01tt\x01"])

any_properties = st.builds(
    Properties,
    SHORT,
    SHORT,
    HEADERS,
    OCTET,
    OCTET,
    SHORT,
    SHORT,
    SHORT,
    SHORT,
    st.none() | st.integers(0, (1 << 64) - 1),
    SHORT,
    SHORT,
    SHORT,
    SHORT,
)


def batch(**columns: Any) -> Any:
    given_columns = {
        "exchange": pa.array(["x"], pa.string()),
        "routing_key": pa.array(["k"], pa.string()),
        "body": pa.array([b"body"], pa.binary()),
        **columns,
    }
    kept = {name: column for name, column in given_columns.items() if column is not None}
    return pa.RecordBatch.from_pydict(kept)


@given(any_properties)
def test_a_canonical_block_is_what_its_properties_encode_to(properties: Properties) -> None:
    """A canonical block equals the encoding of its properties.

    Columns with all 14 properties would therefore be enough to keep it exactly.
    """
    raw = properties.encode()
    assert decode_properties(raw).encode() == raw


@given(any_properties, st.integers(1, 3))
def test_other_blocks_differ_in_the_unused_flags_only(properties: Properties, unused: int) -> None:
    """A block with unused bits in its flag word differs from the encoding of its properties.

    The bits have no meaning, and only a column with the raw block keeps them.
    """
    raw = properties.encode()
    other = raw[:1] + bytes((raw[1] | unused,)) + raw[2:]
    assert decode_properties(other).encode() == raw != other


@given(st.lists(any_properties, min_size=1, max_size=5), st.integers(0, 3))
def test_raw_blocks_are_taken_as_they_are(several: list[Properties], unused: int) -> None:
    blocks = [one.encode() for one in several]
    blocks = [raw[:1] + bytes((raw[1] | unused,)) + raw[2:] for raw in blocks]
    count = len(blocks)
    made = batch(
        exchange=pa.array(["x"] * count, pa.string()),
        routing_key=pa.array(["k"] * count, pa.string()),
        body=pa.array([b"b"] * count, pa.binary()),
        properties_raw=pa.array(blocks, pa.binary()),
    )
    assert columns_of(made).properties == blocks


def test_blocks_from_single_columns() -> None:
    made = batch(
        persistent=pa.array([True]),
        priority=pa.array([5], pa.int32()),
        message_id=pa.array(["id"]),
        content_type=pa.array(["text/plain"]),
        app_id=pa.array([None], pa.string()),
        timestamp=pa.array([datetime(2020, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
        headers_raw=pa.array([b"\x01aV"], pa.binary()),
    )
    expected = Properties(
        content_type=b"text/plain",
        headers=b"\x01aV",
        delivery_mode=2,
        priority=5,
        message_id=b"id",
        timestamp=1_577_836_800,
    )
    assert columns_of(made).properties == [expected.encode()]
    assert columns_of(batch(persistent=pa.array([False]))).properties == [b"\x00\x00"]


def test_single_columns_stand_in_where_there_is_no_raw_block() -> None:
    two = {
        "exchange": pa.array(["", "x"]),
        "routing_key": pa.array(["k", "l"]),
        "body": pa.array([b"1", b""]),
    }
    made = batch(
        **two,
        properties_raw=pa.array([None, b"\x10\x00\x01"], pa.binary()),
        type=pa.array(["t", "u"]),
    )
    assert columns_of(made).properties == [
        Properties(delivery_mode=2, type=b"t").encode(),
        b"\x10\x00\x01",
    ]


@pytest.mark.parametrize("properties", [Properties(expiration=b"1"), Properties(cluster_id=b"c")])
def test_the_columns_lack_some_properties(properties: Properties) -> None:
    """Some properties have no column; if they get one, blocks from single columns can be exact."""
    flags = int.from_bytes(properties.encode()[:2], "big")
    assert flags in (EXPIRATION, CLUSTER_ID)
    assert not {"expiration", "cluster_id", "delivery_mode"} & set(MESSAGE_COLUMNS)


def test_times_flags_and_seq_ids() -> None:
    made = columns_of(
        batch(
            exchange=pa.array([b"\xff", b""], pa.binary()),
            routing_key=pa.array([b"k", b"k"], pa.large_binary()),
            body=pa.array([b"", b"two"], pa.large_binary()),
            seq=pa.array([7, 9], pa.int64()),
            enqueued_at=pa.array([NOW, NOW + timedelta(days=1)], pa.timestamp("us", "UTC")),
            expires_at=pa.array([None, NOW], pa.timestamp("us", "UTC")),
            redelivered=pa.array([True, None]),
            persistent=pa.array([False, True]),
        )
    )
    now_ms = 1_767_323_045_678
    assert made.seqs == [7, 9]
    assert made.addresses == [address_of(b"\xff", b"k"), address_of(b"", b"k")]
    assert made.bodies == [b"", b"two"]
    assert made.enqueued_ms == [now_ms, now_ms + 86_400_000]
    assert made.expires_ms == [0, now_ms]
    assert made.redelivered == [True, False]
    assert made.persistent == [False, True]


def test_slices_of_a_batch_and_empty_ones() -> None:
    count = 10
    whole = batch(
        exchange=pa.array(["x"] * count),
        routing_key=pa.array([f"k{number}" for number in range(count)]),
        body=pa.array([b"b" * number for number in range(count)], pa.binary()),
    )
    part = columns_of(whole.slice(3, 4))
    assert part.bodies == [b"b" * number for number in range(3, 7)]
    assert part.addresses[0] == address_of(b"x", b"k3")
    assert columns_of(whole.slice(2, 0)).bodies == []


def test_what_is_needed_must_be_there() -> None:
    for made in (batch(body=None), batch(exchange=pa.array([None], pa.string()))):
        with pytest.raises(ValueError, match="missing or has nulls"):
            columns_of(made)
    for name in ("exchange", "routing_key"):
        with pytest.raises(ValueError, match=f"column '{name}': 256 bytes are more than 255"):
            columns_of(batch(**{name: pa.array(["ü" * 128])}))
