"""A small file that each run of a node writes anew, also on a disk without a free byte (W21).

The room of the next version is on the disk before it is needed: a second file with blocks of its
own. The next version is written into these blocks, and then both files change places. Nothing is
allocated, and no block is freed that another process could take meanwhile.

    NAME            the version that counts
    NAME.room       the room of the next version; its content counts for nothing
    NAME.previous   exists while the two change places: counts if there is no NAME

A file's first version finds no room yet and needs free space, as the second one does.
"""

import os
from pathlib import Path

from warrenmq.store.disk.files import sync_directory


def read_roomy(path: Path) -> bytes:
    """The content of the file, also after a write that was cut short.

    Raises FileNotFoundError, and any other OSError.
    """
    _finish_exchange(path)
    return path.read_bytes()


def write_roomy(path: Path, data: bytes, mode: int = 0o640) -> None:
    """Replace the content of the file, durably and in one step.

    `mode`: the permissions of its files when they are created. Raises OSError; the old version
    counts then, and a room that could not be filled is gone.
    """
    _finish_exchange(path)
    room = _room_of(path)
    is_new = not room.exists()
    try:
        _fill(room, data, mode)
    except OSError:
        if is_new:
            room.unlink(missing_ok=True)
        raise
    if path.exists():
        path.rename(_previous_of(path))
    room.rename(path)
    _finish_exchange(path)
    sync_directory(path.parent)


def remove_roomy(path: Path) -> None:
    """Remove the file, and keep its blocks as the room of the next version. Raises OSError."""
    _finish_exchange(path)
    if path.exists():
        path.rename(_room_of(path))


def _finish_exchange(path: Path) -> None:
    """Give the older of two versions its next name: without a newer one it counts."""
    previous = _previous_of(path)
    if previous.exists():
        previous.rename(_room_of(path) if path.exists() else path)


def _fill(room: Path, data: bytes, mode: int) -> None:
    # O_TRUNC would free the blocks that this file reserves.
    descriptor = os.open(room, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, mode)
    with open(descriptor, "wb", buffering=0) as file:
        written = 0
        while written < len(data):
            written += os.pwrite(descriptor, data[written:], written)
        file.truncate(len(data))
        os.fsync(descriptor)


def _room_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.room")


def _previous_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.previous")
