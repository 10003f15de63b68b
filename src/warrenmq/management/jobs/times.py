"""The times of a schedule, as Unix times in s: by a cron expression in UTC, or by an interval."""

from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

from warrenmq.admin.protocol.schedules import Schedule


def check_cron(expression: str) -> None:
    """Raise ValueError, with the reason, for a cron expression that cannot be."""
    try:
        CronSim(expression, datetime.now(UTC))
    except CronSimError as error:
        raise ValueError(f"'{expression}' is no cron expression: {error}") from None


def time_before(schedule: Schedule, now_s: int) -> int:
    """The last time of the schedule until `now_s`; 0 when there is none."""
    if schedule.interval:
        return now_s - now_s % schedule.interval
    return _first(schedule.cron, now_s + 1, is_before=True)


def time_after(schedule: Schedule, now_s: int) -> int:
    """The next time of the schedule after `now_s`; 0 when there is none."""
    if schedule.interval:
        return now_s - now_s % schedule.interval + schedule.interval
    return _first(schedule.cron, now_s, is_before=False)


def due_time(schedule: Schedule, last: int, now_s: int) -> int:
    """The time for which a run is to begin now, given that of the `last` run; 0 for none.

    Times that were missed are made up for by one run, unless the last of them is too long ago.
    """
    time = time_before(schedule, now_s)
    is_missing = time > max(last, schedule.since)
    return time if is_missing and now_s - time <= schedule.grace else 0


def _first(expression: str, from_s: int, is_before: bool) -> int:
    try:
        times = CronSim(expression, datetime.fromtimestamp(from_s, UTC), reverse=is_before)
        return int(next(times).timestamp())
    except (CronSimError, StopIteration):
        return 0
