"""Damages an input in the ways that hurt readers of bytes most; the random generator decides how.

Most damage keeps the length of the input, so that a reader gets past its beginning. A number that
may be the length of what follows is moved to its bounds: nothing, one more than there is, the ends
of its type.
"""

import random
from collections.abc import Callable
from typing import Final

INPUT_BYTES_MAX: Final = 65536
# Bytes that mean something to one reader or another.
TELLING: Final = (
    b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff", b"\xce",
    b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00",
    b"\x00\x00\x10\x00", b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7), b"\xff" * 8,
    *[tag.encode() for tag in "tbBsuIilLfdDSxAFTVU"],
    # of texts, JSON and forms
    b'"', b"{", b"[", b"]", b"}", b",", b":", b"\\", b"%", b"&", b"=", b";", b"\r\n", b"--",
    # nested deeper than any parser follows: JSON, msgpack
    b"[" * 1200, b'{"a":' * 1200, b"\x91" * 1200,
    b"null", b"-1", b"1e999", b"1" * 30, b"\\ud800", "\u00e9".encode(), b"\xed\xa0\x80", b"\xfe",
)  # fmt: skip
_SIZES: Final = (1, 2, 4, 4, 8)

Accident = Callable[[random.Random, bytes, bytes], bytes]


def mutate(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """`data` after one to four accidents; `other` is an input from which pieces may come.

    A few inputs are noise.
    """
    if rng.randrange(64) == 0:
        return rng.randbytes(rng.randint(0, 64))
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice(_ACCIDENTS)(rng, data, other)
    return data[:INPUT_BYTES_MAX]


def _truncate(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _flip_bit(rng: random.Random, data: bytes, other: bytes) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def _overwrite(rng: random.Random, data: bytes, other: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    piece = rng.choice(TELLING)
    return data[:at] + piece + data[at + len(piece) :]


def _insert(rng: random.Random, data: bytes, other: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(TELLING) + data[at:]


def _delete(rng: random.Random, data: bytes, other: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at + rng.randint(1, 8) :]


def _repeat(rng: random.Random, data: bytes, other: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    piece = data[at : at + rng.randint(1, 64)]
    return data[:at] + piece * rng.choice((1, 1, 2, 70)) + data[at:]


def _splice(rng: random.Random, data: bytes, other: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + other[rng.randrange(len(other) + 1) :]


def _move_length(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Move a number that may be a length to its bounds."""
    size = rng.choice(_SIZES)
    start = rng.randrange(len(data) + 1)
    for at in range(start, min(start + 64, len(data) - size + 1)):
        value = int.from_bytes(data[at : at + size], "big")
        rest = len(data) - at - size
        if 0 < value <= rest:
            top = (1 << 8 * size) - 1
            bounds = (0, 1, value - 1, value + 1, rest, rest + 1, top >> 1, (top >> 1) + 1, top)
            chosen = min(rng.choice(bounds), top)
            return data[:at] + chosen.to_bytes(size, "big") + data[at + size :]
    return data


_ACCIDENTS: Final[tuple[Accident, ...]] = (
    _truncate, _flip_bit, _flip_bit, _overwrite, _overwrite, _insert, _delete, _repeat, _splice,
    _move_length, _move_length, _move_length,
)  # fmt: skip
