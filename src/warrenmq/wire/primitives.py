"""Reads and writes single values: integers, short and long strings, with all checks.

Readers check every length, writers every range. A reader takes `data`, the position `at` and the
`end` of the bytes it may read, and raises MalformedBytes rather than read past `end`; it slices
nothing before it knows that the length fits. A writer raises ValueError for a value without an
encoding, which is a mistake of the calling code, never of the peer.

Integers are `i64`. Unsigned 64-bit integers wrap: a delivery tag of 2**63 or more reads as a
negative number, which the broker never uses as a tag; `unsigned64` gives the true value for texts.
"""

from typing import Final

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i16, i32, i64, u8

from warrenmq.wire.errors import MalformedBytes

SHORTSTR_BYTES_MAX: Final = 255
U32_MAX: Final = 0xFFFFFFFF
MALFORMED_UTF8: Final = "Malformed UTF-8 in shortstr"


def need(at: i64, end: i64, size: i64) -> None:
    """Raise MalformedBytes unless `size` bytes lie between `at` and `end`."""
    if size > end - at:
        raise MalformedBytes("")


def read_octet(data: bytes, at: i64, end: i64) -> i64:
    """The unsigned octet at `at`."""
    if at >= end:
        raise MalformedBytes("")
    return i64(data[at])


def read_short(data: bytes, at: i64, end: i64) -> i64:
    """The unsigned 16-bit integer at `at`."""
    need(at, end, 2)
    return i64(read_i16_be(data, at)) & 0xFFFF


def read_long(data: bytes, at: i64, end: i64) -> i64:
    """The unsigned 32-bit integer at `at`."""
    need(at, end, 4)
    return i64(read_i32_be(data, at)) & U32_MAX


def read_longlong(data: bytes, at: i64, end: i64) -> i64:
    """The 64-bit integer at `at`, as a signed number."""
    need(at, end, 8)
    return read_i64_be(data, at)


def unsigned64(value: i64) -> int:
    """The unsigned number that `read_longlong` returned as `value`."""
    number = int(value)
    return number if number >= 0 else number + (1 << 64)


def signed64(number: int) -> i64:
    """The inverse of `unsigned64`; ValueError outside 0 .. 2**64 - 1."""
    if number < 0 or number >> 64 != 0:
        raise ValueError(f"{number} is not an unsigned 64-bit number")
    return number if number >> 63 == 0 else number - (1 << 64)


def shortstr_end(data: bytes, at: i64, end: i64) -> i64:
    """The position behind the shortstr at `at`; its bytes start at `at + 1`."""
    if at >= end:
        raise MalformedBytes("")
    stop: i64 = at + 1 + i64(data[at])
    if stop > end:
        raise MalformedBytes("")
    return stop


def read_shortstr(data: bytes, at: i64, end: i64) -> tuple[bytes, i64]:
    """The shortstr at `at`, and the position behind it; its bytes may be no UTF-8."""
    stop = shortstr_end(data, at, end)
    return data[at + 1 : stop], stop


def read_utf8_shortstr(data: bytes, at: i64, end: i64) -> tuple[bytes, i64]:
    """Read a shortstr as `read_shortstr` does, but refuse bytes that are not UTF-8.

    RabbitMQ requires this of every method without content.
    """
    text, stop = read_shortstr(data, at, end)
    if not text.isascii():
        try:
            text.decode("utf-8")
        except UnicodeDecodeError:
            raise MalformedBytes(MALFORMED_UTF8) from None
    return text, stop


def longstr_end(data: bytes, at: i64, end: i64) -> i64:
    """The position behind the value at `at`, a u32 length and a body that starts at `at + 4`."""
    size: i64 = read_long(data, at, end)
    if size > end - at - 4:
        raise MalformedBytes("")
    return at + 4 + size


def read_longstr(data: bytes, at: i64, end: i64) -> tuple[bytes, i64]:
    """The longstr at `at`, and the position behind it."""
    stop = longstr_end(data, at, end)
    return data[at + 4 : stop], stop


def write_octet(out: BytesWriter, value: i64) -> None:
    """Append an unsigned octet."""
    if value < 0 or value > 0xFF:
        raise ValueError(f"{value} is not an unsigned 8-bit number")
    out.append(value)


def write_short(out: BytesWriter, value: i64) -> None:
    """Append an unsigned 16-bit integer."""
    if value < 0 or value > 0xFFFF:
        raise ValueError(f"{value} is not an unsigned 16-bit number")
    # The writer takes signed numbers. In interpreted code it refuses a number that does not fit
    # instead of wrapping it.
    write_i16_be(out, i16((value ^ 0x8000) - 0x8000))


def write_long(out: BytesWriter, value: i64) -> None:
    """Append an unsigned 32-bit integer."""
    if value < 0 or value > U32_MAX:
        raise ValueError(f"{value} is not an unsigned 32-bit number")
    write_i32_be(out, i32((value ^ 0x80000000) - 0x80000000))


def patch_long(out: BytesWriter, at: i64, value: i64) -> None:
    """Overwrite the unsigned 32-bit integer at `at`, to fill in a length that is known later."""
    if value < 0 or value > U32_MAX:
        raise ValueError(f"{value} is not an unsigned 32-bit number")
    out[at] = u8(value >> 24)
    out[at + 1] = u8((value >> 16) & 0xFF)
    out[at + 2] = u8((value >> 8) & 0xFF)
    out[at + 3] = u8(value & 0xFF)


def write_longlong(out: BytesWriter, value: i64) -> None:
    """Append a 64-bit integer, given as a signed number like the one `read_longlong` returns."""
    write_i64_be(out, value)


def write_shortstr(out: BytesWriter, value: bytes) -> None:
    """Append a shortstr of at most 255 bytes."""
    if len(value) > SHORTSTR_BYTES_MAX:
        raise ValueError(f"a shortstr holds at most 255 bytes, not {len(value)}")
    out.append(len(value))
    out.write(value)


def write_longstr(out: BytesWriter, value: bytes) -> None:
    """Append a longstr, or the body of a field table or array, with its u32 length."""
    write_long(out, len(value))
    out.write(value)
