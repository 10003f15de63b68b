"""Columns made of whole arrays of blocks are what the decoder of single blocks gives."""

from typing import Any

import msgspec
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.strategies import raw_tables
from warrenmq.tables.columns import MESSAGE_COLUMNS, json_value
from warrenmq.tables.property_columns import FROM_PROPERTIES, property_columns
from warrenmq.wire.errors import AmqpError
from warrenmq.wire.field_table import decode_table, encode_table, fields_from_python, to_python
from warrenmq.wire.properties import Properties, decode_properties

SCHEMA = pa.schema(
    [(name, kind) for name, kind in MESSAGE_COLUMNS.items() if name in FROM_PROPERTIES]
)
LAST_SECOND = 253402300799
texts = st.none() | st.binary(max_size=12) | st.text(max_size=6).map(lambda t: t.encode())
headers = st.none() | raw_tables
any_properties = st.builds(
    Properties,
    content_type=texts,
    content_encoding=texts,
    headers=headers,
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    correlation_id=texts,
    reply_to=texts,
    expiration=texts,
    message_id=texts,
    timestamp=st.none() | st.integers(0, (1 << 64) - 1) | st.integers(LAST_SECOND, LAST_SECOND + 1),
    type=texts,
    user_id=texts,
    app_id=texts,
    cluster_id=texts,
)


@st.composite
def any_blocks(draw: st.DrawFn) -> bytes:
    """Valid blocks, and some that are cut, longer or changed in one byte."""
    block = draw(any_properties).encode()
    match draw(st.integers(0, 5)):
        case 0:
            return block[: draw(st.integers(0, len(block)))]
        case 1:
            return block + draw(st.binary(max_size=2))
        case 2:
            place = draw(st.integers(0, len(block) - 1))
            return block[:place] + bytes((draw(st.integers(0, 255)),)) + block[place + 1 :]
    return block


@given(st.lists(any_blocks(), max_size=3), st.integers(0, 1))
def test_columns_of_any_blocks(blocks: list[bytes], skipped: int) -> None:
    """Columns equal what the codec decodes; bytes that are no property block give null."""
    found = property_columns(pa.array(blocks, pa.binary()).slice(skipped), SCHEMA)
    expected = [_expected(block) for block in blocks[skipped:]]
    for column in SCHEMA:
        assert found[column.name].type == column.type
        values = found[column.name]
        if column.name == "timestamp":
            values = values.cast(pa.int64())
        assert values.to_pylist() == [row[column.name] for row in expected], column.name


def _expected(block: bytes) -> dict[str, Any]:
    try:
        properties = decode_properties(block)
    except AmqpError:
        return dict.fromkeys(FROM_PROPERTIES)
    row: dict[str, Any] = {}
    for name in FROM_PROPERTIES - {"headers", "headers_raw", "priority", "timestamp"}:
        value = getattr(properties, name)
        row[name] = None if value is None else value.decode("utf-8", "replace")
    raw, seconds = properties.headers, properties.timestamp
    row["headers_raw"], row["priority"] = raw, properties.priority
    shows_time = seconds is not None and seconds <= LAST_SECOND
    row["timestamp"] = seconds * 1_000_000 if seconds is not None and shows_time else None
    row["headers"] = None if raw is None else _headers(raw)
    return row


def _headers(raw: bytes) -> list[tuple[str, str]]:
    return [
        (
            name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
            msgspec.json.encode(json_value(value)).decode(),
        )
        for name, value in to_python(decode_table(raw)).items()
    ]


def test_of_two_headers_with_one_name_the_first_counts() -> None:
    one, two = (encode_table(fields_from_python({"a": number, "b": "x"})) for number in (1, 2))
    block = Properties(headers=one + two).encode()
    found = property_columns(pa.array([block], pa.binary()), SCHEMA)
    assert found["headers"].to_pylist() == [[("a", "1"), ("b", '"x"')]]


def test_no_blocks() -> None:
    found = property_columns(pa.array([], pa.binary()), SCHEMA)
    assert all(len(column) == 0 for column in found.values())
