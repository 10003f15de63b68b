"""Appends gather before they are written, unless somebody waits for them."""

from warrenmq.store.jobs.job import AppendFile, PutAside
from warrenmq.store.jobs.write_lane import HOLD_MS, WriteLane

HOLD_BYTES = 100


class Append(AppendFile):
    """An append of `size` bytes, of which none joins another one by default."""

    def __init__(self, size: int, path: str = "file", offset: int = 0) -> None:
        super().__init__(path, offset, [bytes(size)], False)


class Aside(PutAside):
    """A job of another kind."""

    def __init__(self) -> None:
        super().__init__("file")


def lane_with(*sizes: int) -> WriteLane:
    """A lane that has held appends of these sizes since time 0."""
    lane = WriteLane(1 << 20, HOLD_BYTES)
    for size in sizes:
        lane.push(Append(size))
    assert lane.start(0) == []
    assert lane.is_holding()
    return lane


def finish(lane: WriteLane, count: int, now_ms: int) -> None:
    """Run the next group, of `count` appends."""
    group = lane.start(now_ms)
    assert len(group) == count
    assert not lane.is_holding()
    for job in group:
        assert isinstance(job, AppendFile)
        lane.on_append(job, now_ms)


def test_appends_gather_until_they_are_many() -> None:
    lane = lane_with(40, 59)
    lane.push(Append(1))
    finish(lane, 3, 1)
    lane.push(Append(40))
    assert lane.start(2) == []


def test_appends_gather_for_a_while_only() -> None:
    lane = lane_with(1)
    lane.push(Append(1))
    assert lane.start(HOLD_MS - 1) == []
    finish(lane, 2, HOLD_MS)
    lane.push(Append(1))
    assert lane.start(HOLD_MS) == []
    assert lane.start(2 * HOLD_MS - 1) == []
    finish(lane, 1, 2 * HOLD_MS)


def test_what_a_load_waits_for_is_written_at_once() -> None:
    lane = lane_with(1)
    lane.hurry()
    finish(lane, 1, 1)
    # The next appends gather again.
    lane.push(Append(1))
    assert lane.start(2) == []


def test_a_load_may_wait_for_what_is_not_in_the_lane_yet() -> None:
    lane = WriteLane(1 << 20, HOLD_BYTES)
    lane.hurry()
    assert lane.start(0) == []
    lane.push(Append(1))
    finish(lane, 1, 1)


def test_appends_do_not_delay_a_job_of_another_kind() -> None:
    lane = lane_with(1)
    other = Aside()
    lane.push(other)
    finish(lane, 1, 1)
    assert lane.start(1) == [other]
    lane.on_other()
    assert lane.start(1) == []


def test_appends_that_follow_each_other_in_a_file_are_one() -> None:
    lane = lane_with(10)
    lane.push(Append(20, offset=10))
    lane.push(Append(5, offset=30))
    # Neither joins: the first is for another file, the second does not begin where it ends.
    lane.push(Append(1, path="other", offset=35))
    lane.push(Append(1, path="other", offset=37))
    lane.hurry()
    group = lane.start(1)
    assert [job.parts for job in group if isinstance(job, AppendFile)] == [
        [bytes(10), bytes(20), bytes(5)],
        [bytes(1)],
        [bytes(1)],
    ]
    assert lane.waiting_bytes == 37
    for job in group:
        assert isinstance(job, AppendFile)
        lane.on_append(job, 1)
    assert lane.waiting_bytes == 0


def test_an_append_under_way_is_not_joined() -> None:
    lane = WriteLane(1 << 20, 0)
    lane.push(Append(10))
    (first,) = lane.start(0)
    lane.push(Append(10, offset=10))
    assert isinstance(first, AppendFile) and first.size_bytes == 10
    lane.on_append(first, 0)
    finish(lane, 1, 0)


def test_nothing_gathers_without_a_limit() -> None:
    lane = WriteLane(1 << 20, 0)
    lane.push(Append(1))
    finish(lane, 1, 0)
