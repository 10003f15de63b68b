"""Decodes Erlang's external term format, as far as stored messages use it.

Atoms become `Atom`, binaries bytes, lists list, tuples tuple, maps dict, and strings (lists of
small numbers) list of int. Every length and count is compared with the bytes that exist before it
is used.
"""

import struct
from typing import Final

from mypy_extensions import mypyc_attr

_VERSION: Final = 131
_DEPTH_MAX: Final = 64
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_I32: Final = struct.Struct(">i")
_F64: Final = struct.Struct(">d")

_SMALL_INTEGER: Final = 97
_INTEGER: Final = 98
_FLOAT: Final = 70
_ATOM: Final = 100
_SMALL_ATOM: Final = 115
_ATOM_UTF8: Final = 118
_SMALL_ATOM_UTF8: Final = 119
_SMALL_TUPLE: Final = 104
_LARGE_TUPLE: Final = 105
_NIL: Final = 106
_STRING: Final = 107
_LIST: Final = 108
_BINARY: Final = 109
_SMALL_BIG: Final = 110
_LARGE_BIG: Final = 111
_MAP: Final = 116


class TermError(ValueError):
    """The bytes are no term, or a term that no stored message has."""


@mypyc_attr(native_class=False)
class Atom(str):
    """An Erlang atom; it equals a str with the same text."""

    __slots__ = ()


def decode_term(data: bytes) -> object:
    """The term that `data` is, from the version byte to the end; TermError when it is none."""
    if not data or data[0] != _VERSION:
        raise TermError("no external term")
    try:
        term, at = _decode(data, 1, 0)
    except (IndexError, struct.error, UnicodeDecodeError, TypeError) as error:
        # A map with a key that cannot be hashed raises TypeError.
        raise TermError(f"a term is cut short or malformed: {error}") from None
    if at != len(data):
        raise TermError(f"{len(data) - at} bytes behind a term")
    return term


def _decode(data: bytes, at: int, depth: int) -> tuple[object, int]:
    """The term whose tag is at `at`, and the position behind it."""
    tag = data[at]
    at += 1
    if tag == _BINARY:
        at, end = _span(data, at + 4, _U32.unpack_from(data, at)[0])
        return data[at:end], end
    if tag == _ATOM:
        at, end = _span(data, at + 2, _U16.unpack_from(data, at)[0])
        return Atom(data[at:end], "latin-1"), end
    if tag == _SMALL_INTEGER:
        return data[at], at + 1
    if depth == _DEPTH_MAX:
        raise TermError(f"a term is nested deeper than {_DEPTH_MAX}")
    if tag == _SMALL_TUPLE:
        return _decode_tuple(data, at + 1, data[at], depth)
    if tag == _LIST:
        return _decode_list(data, at + 4, _U32.unpack_from(data, at)[0], depth)
    if tag == _NIL:
        return [], at
    if tag == _LARGE_TUPLE:
        return _decode_tuple(data, at + 4, _U32.unpack_from(data, at)[0], depth)
    if tag == _MAP:
        return _decode_map(data, at + 4, _U32.unpack_from(data, at)[0], depth)
    return _decode_leaf(tag, data, at)


def _decode_leaf(tag: int, data: bytes, at: int) -> tuple[object, int]:
    if tag == _INTEGER:
        return _I32.unpack_from(data, at)[0], at + 4
    if tag == _FLOAT:
        return _F64.unpack_from(data, at)[0], at + 8
    if tag == _STRING:
        at, end = _span(data, at + 2, _U16.unpack_from(data, at)[0])
        return list(data[at:end]), end
    if tag in (_SMALL_ATOM, _SMALL_ATOM_UTF8):
        at, end = _span(data, at + 1, data[at])
        return Atom(data[at:end], "latin-1" if tag == _SMALL_ATOM else "utf-8"), end
    if tag == _ATOM_UTF8:
        at, end = _span(data, at + 2, _U16.unpack_from(data, at)[0])
        return Atom(data[at:end], "utf-8"), end
    if tag in (_SMALL_BIG, _LARGE_BIG):
        width = 1 if tag == _SMALL_BIG else 4
        size = int.from_bytes(data[at : at + width], "big")
        is_negative = data[at + width] != 0
        at, end = _span(data, at + width + 1, size)
        value = int.from_bytes(data[at:end], "little")
        return -value if is_negative else value, end
    raise TermError(f"a term with tag {tag}")


def _span(data: bytes, start: int, size: int) -> tuple[int, int]:
    """Start and end of `size` bytes; TermError when `data` is shorter."""
    if size > len(data) - start:
        raise TermError("a length in a term points behind its end")
    return start, start + size


def _decode_items(data: bytes, at: int, count: int, depth: int) -> tuple[list[object], int]:
    # Each item takes at least one byte.
    if count > len(data) - at:
        raise TermError("a count in a term is larger than the term")
    items = []
    for _ in range(count):
        item, at = _decode(data, at, depth + 1)
        items.append(item)
    return items, at


def _decode_tuple(data: bytes, at: int, count: int, depth: int) -> tuple[object, int]:
    items, at = _decode_items(data, at, count, depth)
    return tuple(items), at


def _decode_list(data: bytes, at: int, count: int, depth: int) -> tuple[object, int]:
    items, at = _decode_items(data, at, count, depth)
    if data[at] != _NIL:
        raise TermError("a list with a tail")
    return items, at + 1


def _decode_map(data: bytes, at: int, count: int, depth: int) -> tuple[object, int]:
    items, at = _decode_items(data, at, 2 * count, depth)
    return dict(zip(items[::2], items[1::2], strict=True)), at
