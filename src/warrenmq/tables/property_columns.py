"""The columns of a message that come from its properties, decoded as whole arrays.

All blocks of a batch are walked at once: numpy finds where each property begins and ends in each
block, then where each header does, and Arrow makes the columns of the bytes in between. So a
message costs no step in Python, however different the properties are. Only header values of rare
types, and text with characters that JSON escapes, are decoded one by one, each distinct one once.

A block that does not decode gives nulls, as `decode_properties` would refuse it.
"""

from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from warrenmq.tables.columns import TIMESTAMP, as_strings, json_value, slices
from warrenmq.wire import field_types, properties
from warrenmq.wire.errors import AmqpError
from warrenmq.wire.field_table import DATETIME_SECONDS_MAX, decode_table, field_to_python

_json: Final = msgspec.json.Encoder()

_TEXT: Final = "text"
_TABLE: Final = "table"
_OCTET: Final = "octet"
_TIME: Final = "time"
# The properties in the order of a block: name, bit in the flag word, kind of value.
_FIELDS: Final = (
    ("content_type", properties.CONTENT_TYPE, _TEXT),
    ("content_encoding", properties.CONTENT_ENCODING, _TEXT),
    ("headers_raw", properties.HEADERS, _TABLE),
    ("delivery_mode", properties.DELIVERY_MODE, _OCTET),
    ("priority", properties.PRIORITY, _OCTET),
    ("correlation_id", properties.CORRELATION_ID, _TEXT),
    ("reply_to", properties.REPLY_TO, _TEXT),
    ("expiration", properties.EXPIRATION, _TEXT),
    ("message_id", properties.MESSAGE_ID, _TEXT),
    ("timestamp", properties.TIMESTAMP, _TIME),
    ("type", properties.TYPE, _TEXT),
    ("user_id", properties.USER_ID, _TEXT),
    ("app_id", properties.APP_ID, _TEXT),
    ("cluster_id", properties.CLUSTER_ID, _TEXT),
)
FROM_PROPERTIES: Final = frozenset(
    (
        "priority",
        "message_id",
        "correlation_id",
        "reply_to",
        "type",
        "user_id",
        "app_id",
        "content_type",
        "content_encoding",
        "timestamp",
        "headers",
        "headers_raw",
    )
)
# Bytes of a header's value by its tag; _LONG where the value begins with its length, else -1.
_LONG: Final = -2
_SIZES: Final = np.array([field_types.fixed_size(tag) for tag in range(256)])
_SIZES[
    [
        field_types.TAG_LONGSTR,
        field_types.TAG_BINARY,
        field_types.TAG_TABLE,
        field_types.TAG_ARRAY,
    ]
] = _LONG
# Types of numbers in numpy, by tag.
_NUMBERS: Final = {
    field_types.TAG_BYTE: ">i1",
    field_types.TAG_UNSIGNED_BYTE: ">u1",
    field_types.TAG_SHORT: ">i2",
    field_types.TAG_UNSIGNED_SHORT: ">u2",
    field_types.TAG_SIGNED_INT: ">i4",
    field_types.TAG_UNSIGNED_INT: ">u4",
    field_types.TAG_LONG: ">i8",
    field_types.TAG_LONG_TOO: ">i8",
}
# Text that stands in JSON as it is.
_PLAIN: Final = r'^[^"\\\x00-\x1f]*$'
# Zeros behind the last block: a number that is cut off is read, and then found to be too long.
_PADDING: Final = 16


def property_columns(blocks: Any, schema: Any) -> dict[str, Any]:
    """The columns of `schema` that come from the properties, by name.

    `blocks` is a binary array of property blocks without nulls. A block that does not decode gives
    nulls.
    """
    wanted = [column for column in schema if column.name in FROM_PROPERTIES]
    if not wanted:
        return {}
    distinct = blocks.dictionary_encode()
    found = _Properties(distinct.dictionary)
    made = {}
    for column in wanted:
        if not found.has(column.name):
            made[column.name] = pa.nulls(len(blocks), column.type)
            continue
        values = found.column(column.name)
        is_whole = len(distinct.dictionary) == len(blocks)
        made[column.name] = values if is_whole else values.take(distinct.indices)
    return made


@dataclass
class _Places:
    """Where a property or a header is: in the rows `rows`, at the bytes [starts, ends)."""

    rows: Any
    starts: Any
    ends: Any

    def where(self, kept: Any) -> "_Places":
        return _Places(self.rows[kept], self.starts[kept], self.ends[kept])


class _Properties:
    """The properties of some blocks."""

    def __init__(self, blocks: Any) -> None:
        offsets = np.frombuffer(blocks.buffers()[1], np.int32)
        offsets = offsets[blocks.offset : blocks.offset + len(blocks) + 1].astype(np.int64)
        data = blocks.buffers()[2]
        bytes_ = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
        self._data = np.concatenate(
            [bytes_[offsets[0] : offsets[-1]], np.zeros(_PADDING, np.uint8)]
        )
        offsets -= offsets[0]
        self._count = len(blocks)
        # Whether each block decodes.
        self._is_good = np.ones(self._count, bool)
        self._places = self._walk(offsets[:-1], offsets[1:])
        self._headers = _Headers(self._data, self._places["headers_raw"], self._is_good)

    def has(self, name: str) -> bool:
        """Whether any block may have a value of the column `name`."""
        return len(self._places["headers_raw" if name == "headers" else name].rows) > 0

    def column(self, name: str) -> Any:
        """The values of the column `name`, one for each block."""
        if name == "headers":
            return self._headers.maps()
        found = self._places[name]
        found = found.where(self._is_good[found.rows])
        if name == "priority":
            return self._spread(pa.array(self._data[found.starts].astype(np.int32)), found.rows)
        if name == "timestamp":
            seconds = _numbers(self._data, found.starts, ">u8")
            found = found.where(seconds <= DATETIME_SECONDS_MAX)
            # Spark cannot show a time past the year 9999.
            seconds = seconds[seconds <= DATETIME_SECONDS_MAX].astype(np.int64)
            return self._spread(pa.array(seconds * 1_000_000).view(TIMESTAMP), found.rows)
        values = slices(self._data, found.starts, found.ends)
        return self._spread(values if name == "headers_raw" else as_strings(values), found.rows)

    def _walk(self, starts: Any, ends: Any) -> dict[str, _Places]:
        """The places of each property. Marks blocks that do not decode."""
        self._is_good &= starts + 2 <= ends
        flags = _numbers(self._data, starts, ">u2")
        at = starts + 2
        places = {}
        for name, flag, kind in _FIELDS:
            rows = np.flatnonzero(self._is_good & (flags & flag != 0))
            first = at[rows]
            if kind == _TEXT:
                first, last = first + 1, first + 1 + self._data[first]
            elif kind == _TABLE:
                first, last = first + 4, first + 4 + _numbers(self._data, first, ">u4")
            else:
                last = first + (1 if kind == _OCTET else 8)
            fits = last <= ends[rows]
            self._is_good[rows[~fits]] = False
            places[name] = _Places(rows[fits], first[fits], last[fits])
            at[rows[fits]] = last[fits]
        self._is_good &= at == ends
        return places

    def _spread(self, values: Any, rows: Any) -> Any:
        """`values` at their rows, and null elsewhere."""
        if len(rows) == self._count:
            return values
        return _at_rows(values, rows, self._count)


class _Headers:
    """The headers of all blocks that have a table."""

    def __init__(self, data: Any, tables: _Places, is_good: Any) -> None:
        """Find all headers; marks blocks in `is_good` whose table does not decode."""
        self._data = data
        self._tables = tables
        self._is_good = is_good
        rows: list[Any] = []
        names: list[tuple[Any, Any]] = []
        values: list[tuple[Any, Any]] = []
        left = tables.where(is_good[tables.rows] & (tables.starts < tables.ends))
        while len(left.rows):
            name = left.starts + 1
            tag = name + data[left.starts]
            # A name that is cut off ends behind the table, and perhaps behind the data.
            size = _SIZES[data[np.minimum(tag, len(data) - 1)]]
            stop = tag + 1 + size
            is_long = np.flatnonzero((size == _LONG) & (tag + 5 <= left.ends))
            stop[is_long] = tag[is_long] + 5 + _numbers(data, tag[is_long] + 1, ">u4")
            fits = (tag < left.ends) & (stop <= left.ends) & (stop > tag)
            is_good[left.rows[~fits]] = False
            rows.append(left.rows[fits])
            names.append((name[fits], tag[fits]))
            values.append((tag[fits], stop[fits]))
            left = _Places(left.rows[fits], stop[fits], left.ends[fits])
            left = left.where(left.starts < left.ends)
        self._rows = _joined(rows)
        # The headers of a row are one behind the other, in their order.
        order = np.argsort(self._rows, kind="stable")
        self._rows = self._rows[order]
        self._names = _Places(self._rows, *_columns(names, order))
        self._values = _Places(self._rows, *_columns(values, order))
        self._rare = self._rare_values()

    def maps(self) -> Any:
        """Header names with their values as JSON text, for queries; null without headers.

        Of two headers with one name the first one counts, as in `decode_table`.
        """
        count = len(self._is_good)
        names = _sliced(self._data, self._names)
        kept = self._is_good[self._rows] & self._is_first(names)
        has_table = np.zeros(count, bool)
        has_table[self._tables.rows] = True
        counts = np.bincount(self._rows[kept], minlength=count)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return pa.MapArray.from_arrays(
            pa.array(offsets),
            as_strings(names).filter(pa.array(kept)),
            self._texts().filter(pa.array(kept)),
            mask=pa.array(~(has_table & self._is_good)),
        )

    def _is_first(self, names: Any) -> Any:
        distinct = names.dictionary_encode()
        keys = self._rows * len(distinct.dictionary) + distinct.indices.to_numpy()
        is_first = np.zeros(len(keys), bool)
        is_first[np.unique(keys, return_index=True)[1]] = True
        return is_first

    def _texts(self) -> Any:
        """The JSON of all values."""
        data, values = self._data, self._values
        tags = data[values.starts]
        parts: list[tuple[Any, Any]] = []
        strings = np.flatnonzero(tags == field_types.TAG_LONGSTR)
        strings, texts = self._plain(strings)
        quote = pa.scalar('"')
        parts.append((strings, pc.binary_join_element_wise(quote, texts, quote, "")))
        for tag, kind in _NUMBERS.items():
            places = np.flatnonzero(tags == tag)
            if len(places):
                numbers = _numbers(data, values.starts[places] + 1, kind).astype(np.int64)
                parts.append((places, pa.array(numbers).cast(pa.string())))
        rare = np.ones(len(tags), bool)
        for places, _ in parts:
            rare[places] = False
        others = np.flatnonzero(rare)
        parts.append((others, self._others(others)))
        order = np.argsort(_joined([places for places, _ in parts]), kind="stable")
        return pa.concat_arrays([texts for _, texts in parts]).take(pa.array(order))

    def _plain(self, places: Any) -> tuple[Any, Any]:
        """Those of the strings at `places` that JSON does not escape, with their texts."""
        values = self._values.where(places)
        texts = slices(self._data, values.starts + 5, values.ends)
        try:
            texts = texts.cast(pa.string())
        except pa.ArrowInvalid:
            is_text = np.array([_is_text(value) for value in texts.to_pylist()], bool)
            places = places[is_text]
            texts = texts.filter(pa.array(is_text)).cast(pa.string())
        is_plain = pc.match_substring_regex(texts, _PLAIN)
        return places[is_plain.to_numpy(zero_copy_only=False)], texts.filter(is_plain)

    def _others(self, places: Any) -> Any:
        """The JSON of the values at `places`, each distinct one made once."""
        values = _sliced(self._data, self._values.where(places)).dictionary_encode()
        texts = [
            # "" is that of a value which does not decode; its block is marked.
            self._rare[value] if value in self._rare else _as_json(value)
            for value in values.dictionary.to_pylist()
        ]
        return pa.array(texts, pa.string()).take(values.indices)

    def _rare_values(self) -> dict[bytes, str]:
        """Tables and arrays, whose insides are not walked, with their JSON.

        Marks blocks with one that does not decode.
        """
        tags = self._data[self._values.starts]
        nested = np.isin(tags, (field_types.TAG_TABLE, field_types.TAG_ARRAY))
        found = self._values.where(nested)
        texts: dict[bytes, str] = {}
        for row, value in zip(found.rows, _sliced(self._data, found).to_pylist(), strict=True):
            if value not in texts:
                try:
                    texts[value] = _as_json(value)
                except AmqpError:
                    texts[value] = ""
            if not texts[value]:
                self._is_good[row] = False
        return texts


def _as_json(value: bytes) -> str:
    """The JSON of a value of a field table, which begins with its tag."""
    # A name without bytes makes it a table with one field.
    field = decode_table(b"\x00" + value)[""]
    return _json.encode(json_value(field_to_python(field))).decode()


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _numbers(data: Any, starts: Any, kind: str) -> Any:
    """The big-endian numbers of numpy's type `kind` at `starts`."""
    width = np.dtype(kind).itemsize
    starts = np.minimum(starts, len(data) - width)
    found = data[starts[:, None] + np.arange(width)].reshape(-1).view(kind)
    return found.astype(np.uint64 if kind == ">u8" else np.int64)


def _sliced(data: Any, places: _Places) -> Any:
    return slices(data, places.starts, places.ends)


def _joined(parts: list[Any]) -> Any:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _columns(pairs: list[tuple[Any, Any]], order: Any) -> list[Any]:
    """The two columns of `pairs`, each in `order`."""
    return [_joined([pair[place] for pair in pairs])[order] for place in (0, 1)]


def _at_rows(values: Any, rows: Any, count: int) -> Any:
    places = np.zeros(count, np.int64)
    places[rows] = np.arange(len(rows))
    is_null = np.ones(count, bool)
    is_null[rows] = False
    return values.take(pa.array(places, mask=is_null))
