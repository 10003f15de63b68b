"""Tests that blocks of any messages become record batches with exactly the types Spark expects."""

from datetime import UTC, datetime
from decimal import Decimal
from random import Random

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tests.support.brokers.memory_node import MemoryDisk, MemoryNode
from tests.support.spark.blocks import read_block
from warrenmq.queues.entry import Entry
from warrenmq.queues.readers.record_block import encode_block
from warrenmq.spark.columns import COLUMNS, check_schema, default_schema
from warrenmq.spark.options import OptionError
from warrenmq.store.model.message import Message, QueueLedger
from warrenmq.tables.blocks import BlockBatches
from warrenmq.tables.blocks import read_block as scan_block
from warrenmq.wire.field_table import Field, encode_table, fields_from_python
from warrenmq.wire.properties import Properties

QUEUE = MemoryNode(MemoryDisk()).declare(b"q")
STORE_ID = bytes(range(16))
NOW_MS = 1_700_000_000_123


def entry(
    seq: int = 1,
    body: bytes = b"",
    properties: bytes = b"\x00\x00",
    exchange: bytes = b"",
    routing_key: bytes = b"",
    expiry_ms: int = 0,
    redelivered: bool = False,
    persistent: bool = False,
) -> Entry:
    address = bytes([len(exchange)]) + exchange + bytes([len(routing_key)]) + routing_key
    made = Entry(
        Message(address, properties, body, persistent, NOW_MS),
        QueueLedger(1),
        seq,
        expiry_ms,
        QUEUE,
    )
    made.redelivered = redelivered
    return made


def build(entries: list[Entry], columns: StructType | None = None) -> pa.RecordBatch:
    schema = default_schema(True, True) if columns is None else columns
    builder = BlockBatches(to_arrow_schema(schema, timezone="UTC"), "/", "q")
    return builder.build(memoryview(encode_block(entries, builder.needs_bodies, STORE_ID)))


entries_of_any_kind = st.lists(
    st.builds(
        entry,
        seq=st.integers(0, 2**62),
        body=st.binary(max_size=50),
        properties=st.one_of(
            st.binary(max_size=20),
            st.builds(
                lambda message_id, priority: Properties(
                    message_id=message_id, priority=priority
                ).encode(),
                st.binary(max_size=10),
                st.integers(0, 255),
            ),
        ),
        exchange=st.binary(max_size=255),
        routing_key=st.binary(max_size=255),
        expiry_ms=st.integers(0, 2**50),
        redelivered=st.booleans(),
        persistent=st.booleans(),
    ),
    max_size=20,
)


@settings(deadline=None)
@given(entries=entries_of_any_kind, with_bodies=st.booleans())
def test_block_round_trip(entries: list[Entry], with_bodies: bool) -> None:
    """Two readers decode a block; one of them is written from the format's description alone."""
    block = encode_block(entries, with_bodies, STORE_ID)
    messages = read_block(block)
    piece = scan_block(block)
    assert len(piece.records) == len(piece.positions) == len(entries) == len(messages)
    for index, (made, message) in enumerate(zip(entries, messages, strict=True)):
        content = made.message
        assert (message.seq, message.enqueued_ms, message.expires_ms) == (
            made.seq,
            NOW_MS,
            made.expiry_ms,
        )
        assert (message.redelivered, message.persistent) == (made.redelivered, content.persistent)
        assert (message.exchange, message.routing_key) == (
            content.exchange(),
            content.routing_key(),
        )
        assert (message.properties, message.size) == (content.properties, len(content.body))
        assert message.body == (content.body if with_bodies else None)
        assert piece.positions["seq"][index] == made.seq
        assert piece.records["body_bytes"][index] == len(content.body)


@settings(deadline=None)
@given(entries=entries_of_any_kind)
def test_any_messages_make_a_batch_of_exactly_the_schema(entries: list[Entry]) -> None:
    """Any messages fit the schema, even with names that are not UTF-8 or undecodable properties."""
    batch = build(entries)
    assert batch.schema == to_arrow_schema(default_schema(True, True), timezone="UTC")
    batch.validate(full=True)
    assert batch.column("body").to_pylist() == [made.message.body for made in entries]
    assert batch.column("seq").to_pylist() == [made.seq for made in entries]
    expected = [made.message.routing_key().decode("utf-8", "replace") for made in entries]
    assert batch.column("routing_key").to_pylist() == expected


@settings(deadline=None)
@given(data=st.binary(max_size=100), entries=entries_of_any_kind.filter(bool), flipped=st.randoms())
def test_what_is_not_a_block_is_refused(data: bytes, entries: list[Entry], flipped: Random) -> None:
    """Bytes that are cut short, of another version, with a flipped bit, or random are refused."""
    block = encode_block(entries, True, STORE_ID)
    place = flipped.randrange(len(block))
    changed = block[:place] + bytes([block[place] ^ 1 << flipped.randrange(8)]) + block[place + 1 :]
    for damaged in (data, block[:-1], b"WARRENWL" + block[8:], block + b"x", changed):
        with pytest.raises(ValueError, match="block"):
            scan_block(memoryview(damaged))


def test_every_column_of_a_message_with_everything() -> None:
    """A message with all properties gives a value in every column."""
    headers = fields_from_python(
        {
            "text": "é",
            "number": -5,
            "long": 2**40,
            "float": 1.5,
            "flag": True,
            "nothing": None,
            "money": Decimal("1.25"),
            "when": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            "list": [1, "a", {"deep": b"\xff"}],
        }
    )
    raw = encode_table(headers)
    properties = Properties(
        content_type=b"text/plain",
        content_encoding=b"gzip",
        headers=raw,
        delivery_mode=2,
        priority=7,
        correlation_id=b"c",
        reply_to=b"r",
        expiration=b"60000",
        message_id=b"m",
        timestamp=1_700_000_000,
        type=b"t",
        user_id=b"u",
        app_id=b"a",
    )
    made = entry(5, b"body", properties.encode(), b"x", b"k", NOW_MS + 60_000, True, True)
    (row,) = build([made]).to_pylist()
    assert list(row) == list(COLUMNS)
    assert row == {
        "vhost": "/",
        "queue": "q",
        "seq": 5,
        "exchange": "x",
        "routing_key": "k",
        "enqueued_at": datetime.fromtimestamp(NOW_MS / 1000, UTC),
        "expires_at": datetime.fromtimestamp(NOW_MS / 1000 + 60, UTC),
        "redelivered": True,
        "persistent": True,
        "priority": 7,
        "size": 4,
        "message_id": "m",
        "correlation_id": "c",
        "reply_to": "r",
        "type": "t",
        "user_id": "u",
        "app_id": "a",
        "content_type": "text/plain",
        "content_encoding": "gzip",
        "timestamp": datetime.fromtimestamp(1_700_000_000, UTC),
        "headers": [
            ("text", '"é"'),
            ("number", "-5"),
            ("long", "1099511627776"),
            ("float", "1.5"),
            ("flag", "true"),
            ("nothing", "null"),
            ("money", '"1.25"'),
            ("when", '"2026-01-02T03:04:05+00:00"'),
            ("list", '[1,"a",{"deep":"\ufffd"}]'),
        ],
        "headers_raw": raw,
        "body": b"body",
    }


def test_a_message_without_properties_has_nulls() -> None:
    """A property that is absent or does not decode gives null, not an empty value."""
    plain, broken = build([entry(1), entry(2, properties=b"\xff\xff")]).to_pylist()
    for row in (plain, broken):
        for name in ("priority", "message_id", "timestamp", "headers", "headers_raw", "expires_at"):
            assert row[name] is None


def test_numbers_that_have_no_json_or_no_timestamp() -> None:
    """Infinities become words, seconds past the year 9999 null; headers_raw has the exact table."""
    raw = encode_table({"inf": Field(ord("d"), float("inf")), "nan": Field(ord("d"), float("nan"))})
    properties = Properties(headers=raw, timestamp=2**63).encode()
    (row,) = build([entry(properties=properties)]).to_pylist()
    assert row["headers"] == [("inf", '"inf"'), ("nan", '"nan"')]
    assert row["timestamp"] is None
    assert row["headers_raw"] == raw


def test_projection_gives_the_columns_asked_for_in_that_order() -> None:
    """A projection gives the named columns in their order, and fetches no bodies without `body`."""
    schema = StructType([default_schema(True, True)[name] for name in ("size", "seq")])
    batch = build([entry(3, b"abc")], schema)
    assert batch.to_pydict() == {"size": [3], "seq": [3]}
    assert not BlockBatches(to_arrow_schema(schema, timezone="UTC"), "/", "q").needs_bodies


def test_default_schema_leaves_out_what_the_options_say() -> None:
    """The default schema leaves out body and headers as the options say."""
    assert "body" not in default_schema(False, True).names
    assert not {"headers", "headers_raw"} & set(default_schema(True, False).names)


def test_schema_with_unknown_or_mistyped_columns_is_refused() -> None:
    """A wrong schema is refused before reading; without columns Spark would count no rows."""
    with pytest.raises(OptionError, match="no columns"):
        check_schema(StructType(), True, True, "fail")
    with pytest.raises(OptionError, match="unknown column 'offset'"):
        check_schema(StructType().add("offset", "long"), True, True, "fail")
    with pytest.raises(OptionError, match="column 'seq' is bigint, not string"):
        check_schema(StructType().add("seq", "string"), True, True, "fail")
    check_schema(StructType().add("seq", "long", False), True, True, "fail")
    with pytest.raises(OptionError, match="'message_id' may be null"):
        check_schema(StructType().add("message_id", "string", False), True, True, "fail")
    with pytest.raises(OptionError, match="column 'body', and option 'includeBody' leaves it out"):
        check_schema(default_schema(True, True), False, True, "fail")
    with pytest.raises(OptionError, match="column 'headers', and option 'includeHeaders'"):
        check_schema(default_schema(True, True), True, False, "fail")
    check_schema(default_schema(False, False), False, False, "fail")


def test_what_is_never_null_is_never_null() -> None:
    """Columns that are never null may be NOT NULL in a schema."""
    batch = build([entry(3, b"abc"), entry(4, b"", redelivered=True)])
    schema = default_schema(True, True)
    for name in schema.names:
        never = StructType().add(name, schema[name].dataType, False)
        if batch.column(name).null_count == 0:
            check_schema(never, True, True, "fail")
        else:
            with pytest.raises(OptionError, match="may be null"):
                check_schema(never, True, True, "fail")
