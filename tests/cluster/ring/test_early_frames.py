"""Frames that are too early wait for their view; what finds no room is known to be missing."""

from warrenmq.cluster.ring.early_frames import EARLY_BYTES_MAX, EarlyFrames
from warrenmq.cluster.ring.frames import ACTIVITY, RingFrame


def keep(early: EarlyFrames, version: int, size: int = 10) -> RingFrame:
    frame = RingFrame(ACTIVITY, version, [], [])
    early.keep(b"n", frame, size)
    return frame


def test_frames_wait_for_their_view_in_order() -> None:
    early = EarlyFrames()
    frames = [keep(early, version) for version in (3, 5, 3, 4)]
    assert early.take(2) == []
    assert [each.frame for each in early.take(4)] == [frames[0], frames[2], frames[3]]
    assert [(each.node, each.frame) for each in early.take(9)] == [(b"n", frames[1])]
    assert early.take(9) == [] and not early.take_dropped(9)


def test_what_follows_a_dropped_frame_is_dropped() -> None:
    """A frame says what is new since the one before it, so it is of no use without that one."""
    early = EarlyFrames()
    first = keep(early, 3, EARLY_BYTES_MAX)
    keep(early, 5, 1)
    assert [each.frame for each in early.take(3)] == [first]
    assert not early.take_dropped(4)
    keep(early, 6, 1)
    keep(early, 5, 1)
    assert not early.take_dropped(5)
    assert early.take(6) == []
    assert early.take_dropped(6) and not early.take_dropped(6)
    kept = keep(early, 8, EARLY_BYTES_MAX)
    assert [each.frame for each in early.take(8)] == [kept]


def test_cleared_frames_are_neither_kept_nor_missing() -> None:
    early = EarlyFrames()
    keep(early, 3, EARLY_BYTES_MAX)
    keep(early, 3)
    early.clear()
    assert early.take(9) == [] and not early.take_dropped(9)
    keep(early, 3, EARLY_BYTES_MAX)
    assert len(early.take(3)) == 1
