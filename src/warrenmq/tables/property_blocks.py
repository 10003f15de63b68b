"""Makes addresses, property blocks and header tables of columns: whole arrays at a time.

Each is a join of its fields, a field a join of its length and its bytes, and a null in a column
gives no bytes. So a row costs no step in Python, however different rows are.
"""

from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from warrenmq.wire import properties
from warrenmq.wire.field_table import encode_table, fields_from_python

# Most bytes of a short string: a name or a text property.
_SHORT_BYTES_MAX: Final = 255
_OCTET_MAX: Final = 255
_NOTHING: Final = pa.scalar(b"", pa.binary())
# JSON of a string whose bytes stand between its quotes as they are.
_PLAIN_STRING: Final = r'^"[^"\\\x00-\x1f]*"$'
_LONG_STRING_TAG: Final = b"S"

# The properties that have a column, in the order of a block, with their bits in the flag word.
# None: the delivery mode, which `persistent` decides.
_FIELDS: Final = (
    ("content_type", properties.CONTENT_TYPE),
    ("content_encoding", properties.CONTENT_ENCODING),
    ("headers_raw", properties.HEADERS),
    (None, properties.DELIVERY_MODE),
    ("priority", properties.PRIORITY),
    ("correlation_id", properties.CORRELATION_ID),
    ("reply_to", properties.REPLY_TO),
    ("expiration", properties.EXPIRATION),
    ("message_id", properties.MESSAGE_ID),
    ("timestamp", properties.TIMESTAMP),
    ("type", properties.TYPE),
    ("user_id", properties.USER_ID),
    ("app_id", properties.APP_ID),
)


def addresses(exchange: Any, routing_key: Any) -> Any:
    """The addresses of messages, a binary array of two short strings each.

    Both arguments are binary arrays without nulls. ValueError for a name over 255 bytes.
    """
    fields = [*_short("exchange", exchange), *_short("routing_key", routing_key)]
    return pc.binary_join_element_wise(*fields, _NOTHING)


def property_blocks(batch: Any, persistent: Any) -> Any:
    """Property blocks made of the columns of `batch`, a RecordBatch, as a binary array.

    `persistent` is an array of booleans in numpy. A block has delivery-mode 2 or none, and no
    cluster-id. ValueError for a value that AMQP cannot encode.
    """
    flags = np.zeros(batch.num_rows, np.uint16)
    fields = []
    for name, flag in _FIELDS:
        if name is None:
            mode = bytes((properties.DELIVERY_MODE_PERSISTENT,))
            flags[persistent] |= flag
            fields.append(pc.if_else(pa.array(persistent), pa.scalar(mode), _NOTHING))
            continue
        array = batch.column(name) if name in batch.schema.names else None
        if array is None or array.null_count == len(array):
            continue
        flags |= np.where(array.is_valid().to_numpy(zero_copy_only=False), flag, 0).astype("u2")
        fields += _field(name, array)
    return pc.binary_join_element_wise(
        big_endian(flags, ">u2"), *fields, _NOTHING, null_handling="replace", null_replacement=""
    )


def header_tables(headers: Any) -> Any:
    """Maps of header names to JSON text, as field tables: a binary array; a null stays null.

    Text that is no JSON becomes a string. Of two headers with one name the last one counts.
    ValueError for a value that AMQP cannot encode.
    """
    offsets = headers.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    names = headers.keys.slice(first, last - first).cast(pa.binary())
    values = _header_values(headers.items.slice(first, last - first).cast(pa.string()))
    fields = pc.binary_join_element_wise(*_short("headers", names), values, _NOTHING)
    offsets = offsets - first
    rows = np.repeat(np.arange(len(headers)), np.diff(offsets))
    kept = _last_of_each(rows, names)
    if len(kept) < len(fields):
        fields = fields.take(pa.array(kept))
        offsets = np.searchsorted(rows[kept], np.arange(len(headers) + 1))
    nulls = headers.is_null() if headers.null_count else None
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), fields, mask=nulls)
    return pc.binary_join(lists, _NOTHING)


def big_endian(values: Any, kind: str) -> Any:
    """`values`, a numpy array, as numbers of numpy's type `kind`, in a binary array."""
    data = np.ascontiguousarray(values.astype(kind))
    width = data.itemsize
    offsets = np.arange(0, width * len(data) + 1, width, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(data), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _field(name: str, array: Any) -> list[Any]:
    """The parts of a property; where `array` has a null, they are null or have no bytes."""
    if name == "headers_raw":
        raw = array.cast(pa.binary())
        return [_where_valid(raw, big_endian(_lengths(raw), ">u4")), raw]
    if name == "priority":
        numbers = array.cast(pa.int64())
        for bound in pc.min_max(numbers).as_py().values():
            if not 0 <= bound <= _OCTET_MAX:
                raise ValueError(f"column 'priority': {bound} is not 0 to {_OCTET_MAX}")
        return [_where_valid(array, big_endian(_filled(numbers), "u1"))]
    if name == "timestamp":
        seconds = array.cast(pa.timestamp("s", tz="UTC"), safe=False).cast(pa.int64())
        return [_where_valid(array, big_endian(_filled(seconds), ">i8"))]
    return _short(name, array.cast(pa.binary()))


def _short(name: str, array: Any) -> list[Any]:
    """The parts of short strings: the length of each value in `array`, and its bytes."""
    lengths = _lengths(array)
    most = int(lengths.max(initial=0))
    if most > _SHORT_BYTES_MAX:
        raise ValueError(f"column '{name}': {most} bytes are more than {_SHORT_BYTES_MAX}")
    return [_where_valid(array, big_endian(lengths, "u1")), array]


def _lengths(array: Any) -> Any:
    return _filled(pc.binary_length(array))


def _filled(numbers: Any) -> Any:
    return numbers.fill_null(0).to_numpy(zero_copy_only=False)


def _where_valid(array: Any, made: Any) -> Any:
    """`made`, with null where `array` is null."""
    if array.null_count == 0:
        return made
    return pc.if_else(array.is_valid(), made, pa.scalar(None, pa.binary()))


def _header_values(texts: Any) -> Any:
    """The fields of header values, each with its type, for JSON texts."""
    is_plain = pc.match_substring_regex(texts, _PLAIN_STRING).fill_null(False)
    strings = pc.ascii_trim(texts.filter(is_plain), '"').cast(pa.binary())
    lengths = big_endian(_lengths(strings), ">u4")
    tag = pa.scalar(_LONG_STRING_TAG, pa.binary())
    plain = pc.binary_join_element_wise(tag, lengths, strings, _NOTHING)
    if len(plain) == len(texts):
        return plain
    others = texts.filter(pc.invert(is_plain)).dictionary_encode(null_encoding="encode")
    values = [_header_value(text) for text in others.dictionary.to_pylist()]
    found = pa.array(values, pa.binary()).take(others.indices)
    places = np.empty(len(texts), np.int64)
    is_plain = is_plain.to_numpy(zero_copy_only=False)
    places[is_plain] = np.arange(len(plain))
    places[~is_plain] = len(plain) + np.arange(len(found))
    return pa.concat_arrays([plain, found]).take(pa.array(places))


def _header_value(text: str | None) -> bytes:
    """The field for one JSON text, as in a table behind the name."""
    try:
        value: object = None if text is None else msgspec.json.decode(text)
    except msgspec.DecodeError:
        value = text
    except RecursionError:
        raise ValueError("column 'headers': JSON that is nested too deep") from None
    # A table with one field that has no name is a byte and the field.
    return encode_table(fields_from_python({"": value}))[1:]


def _last_of_each(rows: Any, names: Any) -> Any:
    """The places of headers that no later one of the same row and name replaces."""
    distinct = names.dictionary_encode()
    keys = rows * len(distinct.dictionary) + distinct.indices.to_numpy()
    _, from_end = np.unique(keys[::-1], return_index=True)
    return np.sort(len(keys) - 1 - from_end)
