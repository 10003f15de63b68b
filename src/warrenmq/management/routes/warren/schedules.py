"""Routes for schedules: jobs that run at set times, kept as parameters of their vhosts."""

import time
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from warrenmq.admin.protocol.control import Done
from warrenmq.admin.protocol.schedules import (
    GRACE_S,
    ClearSchedule,
    ListSchedules,
    Schedule,
    Schedules,
    SetSchedule,
    parse_schedule,
)
from warrenmq.management.access import Administrator, Monitor
from warrenmq.management.bodies import JsonBody
from warrenmq.management.errors import bad_request, missing
from warrenmq.management.jobs.scheduler import runner_of
from warrenmq.management.jobs.times import check_cron, time_after
from warrenmq.management.objects.listings import named
from warrenmq.management.routes.warren.jobs import RunsOf, checked_arguments
from warrenmq.management.rows import ListReply, ObjectReply, Row, listed, single
from warrenmq.management.sessions import Caller

router = APIRouter(prefix="/api/warren/schedules")


@router.get("")
def all_schedules(request: Request, caller: Monitor) -> ListReply:
    """The schedules of all vhosts, with their next time and their last run."""
    return listed(request, _rows(caller))


@router.get("/{vhost:segment}")
def schedules_of_vhost(request: Request, caller: Monitor, vhost: str) -> ListReply:
    """The schedules of a vhost."""
    return listed(request, _in(caller, vhost))


@router.get("/{vhost:segment}/{name:segment}")
def one_schedule(request: Request, caller: Monitor, vhost: str, name: str) -> ObjectReply:
    """One schedule."""
    return single(request, named(_in(caller, vhost), name))


@router.put("/{vhost:segment}/{name:segment}")
def set_schedule(
    caller: Administrator, runs: RunsOf, vhost: str, name: str, body: JsonBody
) -> Response:
    """Set a schedule: 201 for a new one, else 204. Its times count from now on."""
    body.require("job")
    if vhost not in [row["name"] for row in caller.rows("vhosts", ["name"])]:
        raise missing("vhost_not_found")
    is_new = all([row["name"] != name for row in _in(caller, vhost)])
    values: dict[str, Any] = {
        "job": body.text("job"),
        "user": body.text("user") or caller.user,
        "arguments": checked_arguments(runs, body, body.text("job"), vhost),
        "cron": body.text("cron"),
        "interval": body.number("interval"),
        "node": body.text("node"),
        "enabled": body.flag("enabled", default=True),
        "grace": body.number("grace", GRACE_S),
        "since": int(time.time()),
    }
    value = msgspec.json.encode(values).decode()
    try:
        schedule = parse_schedule(value)
        if schedule.cron:
            check_cron(schedule.cron)
    except ValueError as error:
        raise bad_request(str(error)) from None
    value = msgspec.json.encode(schedule).decode()
    caller.call(SetSchedule(vhost=vhost, name=name, value=value), Done)
    return Response(status_code=201 if is_new else 204)


@router.delete("/{vhost:segment}/{name:segment}")
def delete_schedule(caller: Administrator, vhost: str, name: str) -> Response:
    """Delete a schedule; a run that is under way goes on."""
    caller.call(ClearSchedule(vhost=vhost, name=name), Done)
    return Response(status_code=204)


def _in(caller: Caller, vhost: str) -> list[Row]:
    return [row for row in _rows(caller) if row["vhost"] == vhost]


def _rows(caller: Caller) -> list[Row]:
    found = caller.call(ListSchedules(), Schedules)
    now_s = int(time.time())
    rows = []
    for each in found.schedules:
        schedule = msgspec.json.decode(each.value, type=Schedule)
        rows.append(
            {
                "vhost": each.vhost,
                "name": each.name,
                **{field: getattr(schedule, field) for field in schedule.__struct_fields__},
                "runs_at": runner_of(schedule, found.running),
                "next": time_after(schedule, now_s) if schedule.enabled else 0,
                "last": msgspec.json.decode(each.run) if each.run else None,
            }
        )
    return rows
