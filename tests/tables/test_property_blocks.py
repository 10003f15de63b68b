"""Blocks made of whole columns are those that the encoders of single messages give."""

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.offline.part_writer import address_of
from warrenmq.tables.property_blocks import addresses, header_tables, property_blocks
from warrenmq.wire.field_table import encode_table, fields_from_python
from warrenmq.wire.properties import Properties

TEXTS = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "type",
    "user_id",
    "app_id",
)
MAPS = pa.map_(pa.string(), pa.string())
short = st.text(st.characters(codec="utf-8"), max_size=40)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats() | short,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(short, inner, max_size=3),
    max_leaves=6,
)
json_texts = values.map(lambda value: msgspec.json.encode(value).decode())
header_texts = st.none() | json_texts | short | short.map(lambda text: f'"{text}"')
header_maps = st.dictionaries(short, header_texts, max_size=4)
rows = st.fixed_dictionaries(
    {name: st.none() | short for name in TEXTS}
    | {
        "headers_raw": st.none() | st.binary(max_size=20),
        "priority": st.none() | st.integers(0, 255),
        "timestamp": st.none() | st.integers(0, 1 << 40),
        "persistent": st.booleans(),
    }
)


@given(st.lists(rows, max_size=6), st.integers(0, 2))
def test_a_block_of_columns_is_the_encoding_of_its_properties(
    found: list[dict[str, Any]], skipped: int
) -> None:
    """Any values, nulls among them, give the same blocks, also in a slice of a batch."""
    kinds = {name: pa.string() for name in TEXTS} | {
        "headers_raw": pa.binary(),
        "priority": pa.int32(),
        "timestamp": pa.timestamp("s", "UTC"),
    }
    columns = {name: pa.array([row[name] for row in found], kind) for name, kind in kinds.items()}
    batch = pa.RecordBatch.from_pydict(columns).slice(skipped)
    kept = found[skipped:]
    persistent = pa.array([row["persistent"] for row in kept], pa.bool_())
    made = property_blocks(batch, persistent.to_numpy(zero_copy_only=False))
    assert made.to_pylist() == [_encoded(row) for row in kept]


def _encoded(row: dict[str, Any]) -> bytes:
    properties = Properties(
        headers=row["headers_raw"],
        delivery_mode=2 if row["persistent"] else None,
        priority=row["priority"],
        timestamp=row["timestamp"],
    )
    for name in TEXTS:
        setattr(properties, name, None if row[name] is None else row[name].encode())
    return properties.encode()


@given(st.lists(st.none() | header_maps, max_size=6), st.integers(0, 2))
def test_a_table_of_a_map_is_the_encoding_of_its_values(
    found: list[dict[str, str | None] | None], skipped: int
) -> None:
    """JSON becomes its value and other text a string, also in a slice; a null stays null."""
    headers = pa.array(found, MAPS).slice(skipped)
    expected = [None if row is None else _table(row) for row in found[skipped:]]
    assert header_tables(headers).to_pylist() == expected


def _table(row: dict[str, str | None]) -> bytes:
    values: dict[str, object] = {}
    for name, text in row.items():
        try:
            values[name] = None if text is None else msgspec.json.decode(text)
        except msgspec.DecodeError:
            values[name] = text
    return encode_table(fields_from_python(values))


def test_the_last_header_of_a_name_counts() -> None:
    headers = pa.array([[("a", "1"), ("b", '"x"'), ("a", "2")], [("a", "3")], None], MAPS)
    expected = [_table({"b": '"x"', "a": "2"}), _table({"a": "3"}), None]
    assert header_tables(headers).to_pylist() == expected


def test_addresses_are_two_short_strings() -> None:
    found = addresses(pa.array([b"", b"\xff"], pa.binary()), pa.array([b"k" * 255, b""]))
    assert found.to_pylist() == [address_of(b"", b"k" * 255), address_of(b"\xff", b"")]


@pytest.mark.parametrize(
    ("name", "array", "text"),
    [
        ("app_id", pa.array([None, "a" * 256]), "column 'app_id': 256 bytes are more than 255"),
        ("priority", pa.array([None, 256]), "column 'priority': 256 is not 0 to 255"),
    ],
)
def test_what_amqp_cannot_encode_is_named(name: str, array: Any, text: str) -> None:
    batch = pa.RecordBatch.from_arrays([array], names=[name])
    with pytest.raises(ValueError, match=text):
        property_blocks(batch, pa.array([True, True]).to_numpy(zero_copy_only=False))
