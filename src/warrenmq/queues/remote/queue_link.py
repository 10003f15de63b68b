"""A connection to another node, as far as queues use it."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

# Kinds of frames. Operations go to the node of the queues, events come from it (`link_records.py`).
OPERATIONS: Final = 32
EVENTS: Final = 33

# Gathered bytes above which a frame is sent before the turn ends.
FRAME_BYTES: Final = 65536


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueLink:
    """Carries frames to one other node; they arrive whole and in order, or the link goes down."""

    def send(self, kind: i64, payload: bytes) -> None:
        """Send a frame of `kind`, OPERATIONS or EVENTS."""
        raise RuntimeError("abstract")

    def has_room(self) -> bool:
        """Whether few enough bytes wait to be sent that more deliveries may be added.

        Ask for a turn (`NodeServices.wake`) when there is room again.
        """
        raise RuntimeError("abstract")


@mypyc_attr(allow_interpreted_subclasses=True)
class TurnEnd:
    """One end of a link, which sends at the end of a turn what it has gathered."""

    def end_turn(self, now_ms: i64) -> None:
        """Send what has gathered in this turn; called before clients get their output."""
        raise RuntimeError("abstract")
