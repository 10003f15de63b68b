"""Frames from neighbours whose view is newer: they wait for the view, within bounds."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from warrenmq.cluster.ring.frames import RingFrame

# Frames of this size together (bytes) wait; a view arrives within milliseconds.
EARLY_BYTES_MAX: Final = 8 << 20


@mypyc_attr(native_class=True, acyclic=True)
class EarlyFrame:
    """A frame of `node` that waits."""

    def __init__(self, node: bytes, frame: RingFrame, size: i64) -> None:
        self.node: bytes = node
        self.frame: RingFrame = frame
        self.size: i64 = size


@mypyc_attr(native_class=True)
class EarlyFrames:
    """The frames that wait, in the order of arrival."""

    def __init__(self) -> None:
        self._frames: list[EarlyFrame] = []
        self._bytes: i64 = 0
        # The newest view of which a frame was dropped, -1 if none was.
        self._dropped_version: i64 = -1

    def keep(self, node: bytes, frame: RingFrame, size: i64) -> None:
        """Keep a frame of `size` bytes; drop it, and all that follow, when there is no room."""
        if self._dropped_version >= 0 or self._bytes + size > EARLY_BYTES_MAX:
            if frame.version > self._dropped_version:
                self._dropped_version = frame.version
            return
        self._frames.append(EarlyFrame(node, frame, size))
        self._bytes += size

    def take(self, version: i64) -> list[EarlyFrame]:
        """Remove the frames of views up to `version`."""
        due = [early for early in self._frames if early.frame.version <= version]
        if len(due) > 0:
            self._frames = [early for early in self._frames if early.frame.version > version]
            for early in due:
                self._bytes -= early.size
        return due

    def take_dropped(self, version: i64) -> bool:
        """Whether frames were dropped whose views are all reached with `version`; says so once."""
        if self._dropped_version < 0 or self._dropped_version > version:
            return False
        self._dropped_version = -1
        return True

    def clear(self) -> None:
        """Drop all frames, and forget that any was dropped."""
        self._frames.clear()
        self._bytes = 0
        self._dropped_version = -1
