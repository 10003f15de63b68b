"""Requests and replies of the admin protocol about jobs that a node runs at set times.

A schedule is a parameter of its vhost, of the component PIPELINE_SCHEDULE, so that an export and
all nodes of a cluster have it. What became of its last run is a parameter of the component
PIPELINE_RUN, which no export has. `control.py` has the other operations, and says which tag each
of them needs.
"""

import re
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

PIPELINE_SCHEDULE: Final = "pipeline-schedule"
PIPELINE_RUN: Final = "pipeline-run"
# How late a run may begin (s), unless the schedule says otherwise.
GRACE_S: Final = 3600

Name = Annotated[str, Meta(max_length=255)]
JsonText = Annotated[str, Meta(max_length=60_000)]
Seconds = Annotated[int, Meta(ge=0, le=366 * 86_400)]

# Minute, hour, day of the month, month and day of the week.
_CRON: Final = re.compile(r"[0-9A-Za-z*/,#-]+( +[0-9A-Za-z*/,#-]+){4}")


class Schedule(Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True, kw_only=True):
    """When a job of `warren pipeline` runs, and with what; the value of the parameter as JSON.

    The times are those of `cron`, five fields as in crontab and in UTC, or each `interval` seconds
    since 1970; times before `since` (Unix time in s), when the schedule was set, do not count.
    """

    job: Annotated[str, Meta(min_length=1, max_length=100)]
    # The user in whose name the job reads and publishes.
    user: Annotated[str, Meta(min_length=1, max_length=255)]
    # By the name of the job's field.
    arguments: dict[Name, Any] = {}
    cron: Name = ""
    interval: Seconds = 0
    # The node that runs it; "": the first one that runs, by name.
    node: Name = ""
    enabled: bool = True
    # How late (s) a run may begin.
    grace: Seconds = GRACE_S
    since: int = 0


class ScheduleRun(Struct, omit_defaults=True, frozen=True, kw_only=True):
    """The last run of a schedule: the time (Unix time in s) that it was for, and its outcome."""

    due: int
    node: str
    # The run's name at that node.
    run: str
    # One of the states of a run.
    state: str


def parse_schedule(text: str) -> Schedule:
    """The schedule in `text`, the JSON value of the parameter. Raises ValueError."""
    try:
        schedule = msgspec.json.decode(text, type=Schedule)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"Validation failed\n\n{error}\n") from None
    if bool(schedule.cron) == bool(schedule.interval):
        raise ValueError("Validation failed\n\na schedule has either 'cron' or 'interval'\n")
    if schedule.cron and not _CRON.fullmatch(schedule.cron):
        raise ValueError(
            f"Validation failed\n\n'{schedule.cron}' is no cron expression of five fields\n"
        )
    return schedule


class _Request(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Base of the requests: unknown fields are errors."""


class SetSchedule(_Request, tag="set_schedule", frozen=True):
    """Set the schedule `name` of a vhost; `value` is a Schedule in JSON. Reply: Done."""

    vhost: Name
    name: Annotated[str, Meta(min_length=1, max_length=255)]
    value: JsonText


class ClearSchedule(_Request, tag="clear_schedule", frozen=True):
    """Delete a schedule; a run that is under way goes on. Reply: Done."""

    vhost: Name
    name: Name


class NoteRun(_Request, tag="note_run", frozen=True):
    """Keep what a node says of a run of a schedule; `run` is a ScheduleRun in JSON. Reply: Done."""

    vhost: Name
    name: Name
    run: JsonText


class ListSchedules(_Request, tag="list_schedules", frozen=True):
    """The schedules of all vhosts. Reply: Schedules."""


class IssueJobTicket(_Request, tag="issue_job_ticket", frozen=True):
    """Make a ticket for any user, for a job in its name. Reply: Ticket.

    For local administrators alone. It holds for seven days, and not for a user without a password.
    """

    user: Name


class ListedSchedule(Struct, frozen=True):
    """A schedule: `value` is a Schedule and `run` a ScheduleRun in JSON, "" before the first."""

    vhost: str
    name: str
    value: str
    run: str


class Schedules(Struct, tag="schedules", frozen=True):
    """All schedules, the name of this node, and those of the nodes that run, itself included."""

    schedules: list[ListedSchedule]
    node: str
    running: list[str]


ScheduleRequest = SetSchedule | ClearSchedule | NoteRun | ListSchedules | IssueJobTicket
