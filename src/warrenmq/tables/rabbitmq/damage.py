"""What could not be read, and how a file is searched for where it goes on."""

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, Final

_WINDOW_BYTES: Final = 1 << 20
# How every stored message begins: the version of the format, and a tuple of up to 255.
TERM_START: Final = b"\x83h"


@dataclass(frozen=True)
class Damage:
    """`path` is "" when no file is to blame; `offset` in bytes; `messages` are known to be lost by it."""

    vhost: str
    queue: str
    path: str
    offset: int
    messages: int
    reason: str


OnDamage = Callable[[Damage], None]


def read_exactly(file: BinaryIO, count: int) -> bytes:
    """The next `count` bytes of a file that was longer when it was opened. OSError when a running node has cut it."""
    found = file.read(count)
    if len(found) < count:
        raise OSError(
            errno.ESTALE, "it became shorter meanwhile, its node is not stopped", file.name
        )
    return found


def find(file: BinaryIO, pattern: bytes, start: int, end: int) -> int:
    """Offset of the first `pattern` that lies in [start, end), or -1. Reads a window at a time."""
    while start < end:
        file.seek(start)
        window = file.read(min(_WINDOW_BYTES + len(pattern) - 1, end - start))
        found = window.find(pattern)
        if found >= 0:
            return start + found
        if not window:
            break
        start += _WINDOW_BYTES
    return -1


def is_zero(file: BinaryIO, start: int, end: int) -> bool:
    """Are there only zero bytes in [start, end)?"""
    file.seek(start)
    while start < end:
        window = file.read(min(_WINDOW_BYTES, end - start))
        if not window:
            break
        if window.count(0) != len(window):
            return False
        start += len(window)
    return True
