"""A walk over the objects of one kind, as a tick compares them."""

from __future__ import annotations

from librt.strings import BytesWriter
from mypy_extensions import i64


class Walk:
    """Goes from object to object; `next` before the first one.

    The walk passes each object that exists from its begin to its end exactly once. Objects that
    come or go meanwhile may be passed or not.
    """

    def __init__(self) -> None:
        # The current object's id, unique among those of its kind since the start of the node.
        self.id: i64 = 0

    def next(self) -> bool:
        """Go to the next object; False when there is none left."""
        raise RuntimeError("abstract")

    def vhost_name(self) -> bytes:
        """The name of the current object's vhost, empty for one that has none."""
        raise RuntimeError("abstract")

    def name(self) -> str:
        """The name of the current object."""
        raise RuntimeError("abstract")

    def birth(self) -> i64:
        """The birth of the current object, 0 for one that has none; see ChangedObject."""
        return 0

    def epoch(self) -> i64:
        """The number of the last decision who leads the current object, 0 if there was none."""
        return 0

    def write_figures(self, out: BytesWriter) -> None:
        """Write the current object's counters and levels, in the protocol's order, as i64."""
        raise RuntimeError("abstract")
