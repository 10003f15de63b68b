"""Describes damage in a data directory, and searches files for the place where records continue."""

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, Final

_WINDOW_BYTES: Final = 1 << 20
# First bytes of each stored message: the version of the format, and the tag of a tuple of up to 255
# items.
TERM_START: Final = b"\x83h"


@dataclass(frozen=True)
class Damage:
    """One damaged place; `path` is "" when no file is damaged.

    `offset` is in bytes; `messages` counts the messages that are known to be lost.
    """

    vhost: str
    queue: str
    path: str
    offset: int
    messages: int
    reason: str


OnDamage = Callable[[Damage], None]


def read_exactly(file: BinaryIO, count: int) -> bytes:
    """The next `count` bytes of a file that was long enough at open; OSError when it was cut since.

    Only a running node cuts its files.
    """
    found = file.read(count)
    if len(found) < count:
        raise OSError(
            errno.ESTALE, "it became shorter meanwhile, its node is not stopped", file.name
        )
    return found


def find(file: BinaryIO, pattern: bytes, start: int, end: int) -> int:
    """Offset of the first `pattern` in [start, end), or -1; reads one window at a time."""
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
    """Whether all bytes in [start, end) are zero."""
    file.seek(start)
    while start < end:
        window = file.read(min(_WINDOW_BYTES, end - start))
        if not window:
            break
        if window.count(0) != len(window):
            return False
        start += len(window)
    return True
