"""The types of values in field tables: tags, names, sizes, and the check of a table's structure.

The tags are those of RabbitMQ, which differ from the standard: `s` is a signed 16-bit number, `L` a
signed 64-bit number, and there is no `U`. Tables come from untrusted peers: every length is checked
against the bytes that are there, and tables and arrays nest at most DEPTH_MAX deep, because
recursion without a limit kills a compiled process.
"""

from typing import Final

from mypy_extensions import i64

from warrenmq.wire.errors import MalformedBytes
from warrenmq.wire.primitives import longstr_end, need, read_octet

TAG_BOOL: Final = 0x74  # t
TAG_BYTE: Final = 0x62  # b
TAG_UNSIGNED_BYTE: Final = 0x42  # B
TAG_SHORT: Final = 0x73  # s
TAG_UNSIGNED_SHORT: Final = 0x75  # u
TAG_SIGNED_INT: Final = 0x49  # I
TAG_UNSIGNED_INT: Final = 0x69  # i
TAG_LONG: Final = 0x6C  # l
TAG_LONG_TOO: Final = 0x4C  # L
TAG_FLOAT: Final = 0x66  # f
TAG_DOUBLE: Final = 0x64  # d
TAG_DECIMAL: Final = 0x44  # D
TAG_LONGSTR: Final = 0x53  # S
TAG_BINARY: Final = 0x78  # x
TAG_ARRAY: Final = 0x41  # A
TAG_TABLE: Final = 0x46  # F
TAG_TIMESTAMP: Final = 0x54  # T
TAG_VOID: Final = 0x56  # V

DEPTH_MAX: Final = 64
TOO_DEEP: Final = "field table nested deeper than 64 levels"

# RabbitMQ's names of the types, as in its error texts.
_TYPE_NAMES: Final[dict[int, str]] = {
    TAG_BOOL: "bool",
    TAG_BYTE: "byte",
    TAG_UNSIGNED_BYTE: "unsignedbyte",
    TAG_SHORT: "short",
    TAG_UNSIGNED_SHORT: "unsignedshort",
    TAG_SIGNED_INT: "signedint",
    TAG_UNSIGNED_INT: "unsignedint",
    TAG_LONG: "long",
    TAG_LONG_TOO: "long",
    TAG_FLOAT: "float",
    TAG_DOUBLE: "double",
    TAG_DECIMAL: "decimal",
    TAG_LONGSTR: "longstr",
    TAG_BINARY: "binary",
    TAG_ARRAY: "array",
    TAG_TABLE: "table",
    TAG_TIMESTAMP: "timestamp",
    TAG_VOID: "void",
}


def type_name(tag: i64) -> str:
    """RabbitMQ's name of the type with `tag` (one of the TAG_ constants)."""
    return _TYPE_NAMES[tag]


def check_table(data: bytes, start: i64, end: i64) -> None:
    """Check the structure of the table body `data[start:end]`; MalformedBytes if not decodable."""
    _check_table(data, start, end, 1)


def _check_table(data: bytes, at: i64, end: i64, depth: i64) -> None:
    if depth > DEPTH_MAX:
        raise MalformedBytes(TOO_DEEP)
    while at < end:
        at = _check_value(data, at + 1 + read_octet(data, at, end), end, depth)


def _check_array(data: bytes, at: i64, end: i64, depth: i64) -> None:
    if depth > DEPTH_MAX:
        raise MalformedBytes(TOO_DEEP)
    while at < end:
        at = _check_value(data, at, end, depth)


def _check_value(data: bytes, at: i64, end: i64, depth: i64) -> i64:
    """Check the value with its tag at `at`; returns the position behind it."""
    tag = read_octet(data, at, end)
    at += 1
    if tag in (TAG_LONGSTR, TAG_BINARY):
        return longstr_end(data, at, end)
    size = fixed_size(tag)
    if size >= 0:
        need(at, end, size)
        return at + size
    if tag == TAG_TABLE:
        stop = longstr_end(data, at, end)
        _check_table(data, at + 4, stop, depth + 1)
        return stop
    if tag == TAG_ARRAY:
        stop = longstr_end(data, at, end)
        _check_array(data, at + 4, stop, depth + 1)
        return stop
    raise MalformedBytes(unknown_tag(tag))


def unknown_tag(tag: i64) -> str:
    """The reason in MalformedBytes for a value of an unknown type."""
    return f"unknown type tag {tag} in a field table"


def fixed_size(tag: i64) -> i64:
    """Size (bytes) of a value of a fixed-size type; -1 for other types."""
    if tag in (TAG_BOOL, TAG_BYTE, TAG_UNSIGNED_BYTE):
        return 1
    if tag in (TAG_SIGNED_INT, TAG_UNSIGNED_INT, TAG_FLOAT):
        return 4
    if tag in (TAG_LONG, TAG_LONG_TOO, TAG_DOUBLE, TAG_TIMESTAMP):
        return 8
    if tag in (TAG_SHORT, TAG_UNSIGNED_SHORT):
        return 2
    if tag == TAG_DECIMAL:
        return 5
    if tag == TAG_VOID:
        return 0
    return -1
