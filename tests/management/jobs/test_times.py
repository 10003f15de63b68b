"""When schedules are due, and who runs them."""

import calendar

import pytest

from warrenmq.admin.protocol.schedules import Schedule
from warrenmq.management.jobs.scheduler import runner_of
from warrenmq.management.jobs.times import check_cron, due_time, time_after, time_before

# 2026-11-29, a Sunday, at 12:00:00 UTC.
NOON = calendar.timegm((2026, 11, 29, 12, 0, 0))
HOUR = 3600
DAY = 24 * HOUR


def at(cron: str = "", interval: int = 0, since: int = 0, grace: int = HOUR) -> Schedule:
    return Schedule(
        job="report", user="u", cron=cron, interval=interval, since=since, grace=grace
    )  # fmt: skip


@pytest.mark.parametrize(
    ("schedule", "before", "after"),
    [
        (at(interval=HOUR), NOON, NOON + HOUR),
        (at("0 * * * *"), NOON, NOON + HOUR),
        (at("30 3 * * *"), NOON - 8 * HOUR - HOUR // 2, NOON + 15 * HOUR + HOUR // 2),
        (at("0 12 * * MON-FRI"), NOON - 2 * DAY, NOON + DAY),
        (at("0 0 30 2 *"), 0, 0),
    ],
)
def test_the_times_around_noon(schedule: Schedule, before: int, after: int) -> None:
    assert (time_before(schedule, NOON), time_after(schedule, NOON)) == (before, after)
    if schedule.cron != "0 0 30 2 *":
        assert time_before(schedule, before) == before and time_after(schedule, before) == after


def test_a_missed_time_is_made_up_for_once_and_not_when_it_is_old() -> None:
    hourly = at(interval=HOUR)
    assert due_time(hourly, NOON - HOUR, NOON + 60) == NOON
    assert due_time(hourly, NOON - 5 * HOUR, NOON + 60) == NOON
    assert due_time(hourly, NOON, NOON + 60) == 0
    assert due_time(at(interval=HOUR, grace=30), NOON - HOUR, NOON + 30) == NOON
    assert due_time(at(interval=HOUR, grace=30), NOON - HOUR, NOON + 31) == 0
    # Times before the schedule was set do not count.
    assert due_time(at(interval=HOUR, since=NOON + 1), 0, NOON + 60) == 0
    assert due_time(at(interval=HOUR, since=NOON + 1), 0, NOON + HOUR) == NOON + HOUR


def test_one_node_runs_a_schedule() -> None:
    anywhere = at(interval=HOUR)
    named = Schedule(job="report", user="u", interval=HOUR, node="b")
    assert [runner_of(each, ["c", "b"]) for each in (anywhere, named)] == ["b", "b"]
    assert [runner_of(each, ["c", "a"]) for each in (anywhere, named)] == ["a", ""]
    assert runner_of(anywhere, []) == ""


@pytest.mark.parametrize("cron", ["", "* * * *", "61 * * * *", "* * * * x", "0 0 31 2 *"])
def test_a_wrong_cron_expression_is_refused(cron: str) -> None:
    with pytest.raises(ValueError, match="is no cron expression"):
        check_cron(cron)
