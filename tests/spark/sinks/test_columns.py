"""Tests how rows become messages: accepted columns, the effect of options, and refused values."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import (
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from warrenmq.offline.part_writer import address_of
from warrenmq.spark.columns import COLUMNS
from warrenmq.spark.options import OptionError
from warrenmq.spark.retry import SourceError
from warrenmq.spark.sinks.columns import MessageMaker, check_sink_columns
from warrenmq.wire.field_table import decode_table, to_python
from warrenmq.wire.properties import Properties, decode_properties

BODY = pa.array([b"b"], pa.binary())


def schema(**columns: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def made(
    maker: MessageMaker | None = None, id_prefix: str | None = None, **columns: Any
) -> Properties:
    """The properties of the only message of a batch."""
    batch = pa.RecordBatch.from_pydict({"body": BODY} | columns)
    found = (maker or MessageMaker("", None)).messages(batch, id_prefix, 7)
    return decode_properties(found.properties[0])


def test_everything_that_is_read_can_be_written() -> None:
    check_sink_columns(
        StructType([StructField(name, kind) for name, kind in COLUMNS.items()]), False
    )


@pytest.mark.parametrize(
    "columns, text",
    [
        ({"bodi": BinaryType()}, "unknown column 'bodi'"),
        ({"routing_key": StringType()}, "column 'body' is missing"),
        ({"body": LongType()}, "column 'body' is binary, not bigint"),
        ({"body": BinaryType(), "headers": MapType(StringType(), LongType())}, "'headers' is map<string,string>"),
        ({"body": BinaryType(), "type": BinaryType()}, "column 'type' is string, not binary"),
        ({"body": BinaryType(), "timestamp": TimestampNTZType()}, "'timestamp' is timestamp, not timestamp_ntz"),
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused(columns: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        check_sink_columns(schema(**columns), True)


def test_an_exchange_must_be_named() -> None:
    check_sink_columns(schema(body=StringType()), True)
    with pytest.raises(OptionError, match="where to"):
        check_sink_columns(schema(body=StringType()), False)


def test_a_column_is_there_once() -> None:
    """A column that is there twice, as after a join, is refused."""
    twice = StructType(
        [StructField(name, StringType()) for name in ("body", "seq", "type", "seq", "type")]
    )
    with pytest.raises(OptionError, match="column 'type' is there twice"):
        check_sink_columns(twice, True)


def test_maps_may_say_that_no_value_is_null() -> None:
    check_sink_columns(
        schema(
            body=StringType(), headers=MapType(StringType(), StringType(), valueContainsNull=False)
        ),
        True,
    )


def test_options_go_before_columns() -> None:
    columns = {"body": BODY, "exchange": pa.array(["x"]), "routing_key": pa.array(["k"])}
    batch = pa.RecordBatch.from_pydict(columns)
    assert MessageMaker(None, None).messages(batch).addresses == [address_of(b"x", b"k")]
    assert MessageMaker("y", "l").messages(batch).addresses == [address_of(b"y", b"l")]


def test_names_that_are_not_utf_8_go_before_the_others() -> None:
    """Columns with raw names take precedence where they are not null; options override both."""
    columns = {
        "body": ["a", "b"],
        "exchange": ["x", "x"],
        "routing_key": ["k", "k"],
        "exchange_raw": pa.array([b"\xff", None], pa.binary()),
        "routing_key_raw": pa.array([None, b"\xfe"], pa.binary()),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    found = MessageMaker(None, None).messages(batch).addresses
    assert found == [address_of(b"\xff", b"k"), address_of(b"x", b"\xfe")]
    assert MessageMaker("y", "l").messages(batch).addresses == [address_of(b"y", b"l")] * 2


def test_without_a_routing_key_it_is_empty() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"body": ["text", "more"], "routing_key": pa.array([None, "k"])}
    )
    found = MessageMaker("x", None).messages(batch)
    assert found.addresses == [address_of(b"x", b""), address_of(b"x", b"k")]
    assert found.bodies == [b"text", b"more"]


def test_messages_are_persistent_unless_a_column_says_otherwise() -> None:
    assert made().delivery_mode == 2
    assert made(persistent=pa.array([None], pa.bool_())).delivery_mode == 2
    assert made(persistent=pa.array([False])).delivery_mode is None


def test_properties_come_from_their_columns() -> None:
    found = made(
        priority=pa.array([3], pa.int8()),
        expiration=pa.array(["60000"]),
        message_id=pa.array(["m"]),
        timestamp=pa.array([datetime(2026, 1, 2, tzinfo=UTC)], pa.timestamp("us", tz="UTC")),
        seq=pa.array([5]),
    )
    assert (found.priority, found.expiration, found.message_id) == (3, b"60000", b"m")
    assert found.timestamp == datetime(2026, 1, 2, tzinfo=UTC).timestamp()


def test_headers_are_json_text_as_they_are_read() -> None:
    texts = [("a", '"5"'), ("b", "5"), ("c", "plain"), ("d", None), ("e", '{"x":[true,1.5]}')]
    headers = pa.array([texts], pa.map_(pa.string(), pa.string()))
    raw = made(headers=headers).headers
    assert raw is not None
    expected = {"a": "5", "b": 5, "c": "plain", "d": None, "e": {"x": [True, 1.5]}}
    assert to_python(decode_table(raw)) == expected


def test_exact_headers_go_before_those_as_text() -> None:
    headers = pa.array([[("a", "1")]] * 2, pa.map_(pa.string(), pa.string()))
    raw = pa.array([b"\x01nI\x00\x00\x00\x07", None], pa.binary())
    batch = pa.RecordBatch.from_pydict(
        {"body": [b"1", b"2"], "headers": headers, "headers_raw": raw}
    )
    found = [
        decode_properties(block).headers
        for block in MessageMaker("", "").messages(batch).properties
    ]
    assert found == [b"\x01nI\x00\x00\x00\x07", b"\x01aI\x00\x00\x00\x01"]


def test_a_raw_block_is_taken_as_it_is_and_says_how_long_it_lives() -> None:
    blocks = [Properties(delivery_mode=2).encode(), Properties(app_id=b"a").encode()]
    batch = pa.RecordBatch.from_pydict(
        {
            "body": [b"1", b"2"],
            "properties_raw": pa.array(blocks, pa.binary()),
            "persistent": [False, True],
        }
    )
    found = MessageMaker("", "").messages(batch)
    assert found.properties == blocks
    assert found.persistent == [True, False]


def test_derived_ids_fill_the_gaps() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"body": [b"1", b"2"], "message_id": pa.array(["own", None])}
    )
    found = MessageMaker("", "").messages(batch, "sink/3/0", 7)
    assert [decode_properties(block).message_id for block in found.properties] == [
        b"own",
        b"sink/3/0/8",
    ]
    assert made(id_prefix="sink/3/0").message_id == b"sink/3/0/7"
    raw = pa.array([Properties(app_id=b"a").encode()], pa.binary())
    assert made(id_prefix="s", properties_raw=raw).message_id == b"s/7"
    raw = pa.array([Properties(message_id=b"own").encode()], pa.binary())
    assert made(id_prefix="s", properties_raw=raw).message_id == b"own"


@pytest.mark.parametrize(
    "columns, text",
    [
        (
            {"routing_key": pa.array(["k" * 256])},
            "column 'routing_key' .* 256 bytes, and 255 are the most",
        ),
        (
            {"exchange": pa.array(["é" * 128])},
            "column 'exchange' .* 256 bytes, and 255 are the most",
        ),
        ({"routing_key_raw": pa.array([b"k" * 256])}, "column 'routing_key_raw' .* 256 bytes"),
        (
            {"message_id": pa.array(["m" * 300], pa.large_string())},
            "column 'message_id' .* 300 bytes",
        ),
        ({"priority": pa.array([256])}, "column 'priority' .* 256, and it is 0 to 255"),
        ({"priority": pa.array([-1], pa.int8())}, "column 'priority' .* -1, and it is 0 to 255"),
        (
            {"timestamp": pa.array([-1_000_000], pa.timestamp("us", tz="UTC"))},
            "column 'timestamp' .* before 1970",
        ),
        ({"exchange": pa.array([None], pa.string())}, "'exchange' is missing or has nulls"),
        ({"body": pa.array([None], pa.binary())}, "'body' is missing or has nulls"),
        ({"headers_raw": pa.array([b"\x05"], pa.binary())}, "column 'headers_raw'"),
        ({"properties_raw": pa.array([b"\xff\xff"], pa.binary())}, "column 'properties_raw'"),
        (
            {"headers": pa.array([[("n", str(1 << 70))]], pa.map_(pa.string(), pa.string()))},
            "a row cannot",
        ),
        (
            {
                "headers": pa.array(
                    [[("n", "[" * 9999 + "]" * 9999)]], pa.map_(pa.string(), pa.string())
                )
            },
            "column 'headers': JSON that is nested too deep",
        ),
    ],
)
def test_a_row_that_is_no_message_says_why(columns: dict[str, Any], text: str) -> None:
    maker = MessageMaker(None if "exchange" in columns else "", None)
    with pytest.raises(SourceError, match=text):
        made(maker, **columns)
