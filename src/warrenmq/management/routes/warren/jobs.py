"""Jobs of `warren pipeline` at the asked node: start, look at, stop."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from warrenmq.admin.client.client import AdminRefusedError, NodeUnreachableError
from warrenmq.management.access import Administrator, Monitor
from warrenmq.management.bodies import Body, JsonBody
from warrenmq.management.errors import HttpRefusal, bad_request, not_found
from warrenmq.management.jobs.kinds import KINDS, BadArguments
from warrenmq.management.jobs.places import BadPlace
from warrenmq.management.jobs.records import RUNNING, Run
from warrenmq.management.jobs.runs import Busy, Runs
from warrenmq.management.rows import ListReply, ObjectReply, Row, listed, single
from warrenmq.management.sessions import refusal, unreachable

router = APIRouter(prefix="/api/warren")

# A report has styles of its own and needs nothing else. It gets an origin of its own, too, so that
# no script in it could use this site.
_REPORT_HEADERS: Final = {
    "content-security-policy": (
        "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    ),
}


def _runs(request: Request) -> Runs:
    found: Runs | None = request.app.state.runs
    if found is None:
        raise bad_request("jobs run beside the node: ask the HTTP API that the node runs itself")
    return found


RunsOf = Annotated[Runs, Depends(_runs)]


@router.get("/job-kinds")
def job_kinds(request: Request, caller: Monitor) -> ListReply:
    """The jobs that may be started, with their fields."""
    rows = [{**msgspec.to_builtins(kind), "fields": _fields(kind.fields)} for kind in KINDS]
    return ListReply(rows)


def _fields(fields: Any) -> list[Row]:
    return [msgspec.to_builtins(field) for field in fields]


@router.get("/jobs")
def all_jobs(request: Request, caller: Monitor, runs: RunsOf) -> ListReply:
    """The runs of the asked node: those that are under way, and the last hundred others."""
    return listed(request, [_row(runs, run) for run in runs.all()])


@router.post("/jobs")
def start_job(caller: Administrator, runs: RunsOf, body: JsonBody) -> Response:
    """Start a job in the name of the caller; the reply has the name of the run."""
    body.require("job")
    vhost, arguments = body.text("vhost", "/"), body.table("arguments")
    try:
        run = runs.start(body.text("job"), vhost, caller.user, arguments)
    except BadArguments as error:
        raise bad_request(str(error)) from None
    except Busy as error:
        raise HttpRefusal(503, "service_unavailable", str(error)) from None
    except AdminRefusedError as error:
        raise refusal(error) from None
    except (NodeUnreachableError, OSError) as error:
        raise unreachable(error) from None
    reply = ObjectReply({"name": run.name})
    reply.status_code = 201
    return reply


@router.get("/jobs/{name:segment}")
def one_job(request: Request, caller: Monitor, runs: RunsOf, name: str) -> ObjectReply:
    """One run, with the last lines of its log."""
    run = _run(runs, name)
    return single(request, {**_row(runs, run), "log": runs.log(run.name)})


@router.post("/jobs/{name:segment}/stop")
def stop_job(caller: Administrator, runs: RunsOf, name: str) -> Response:
    """Let a run end; it is told to, and killed if it has not ended after 45 seconds."""
    run = _run(runs, name)
    if run.state != RUNNING:
        raise bad_request(f"the run has ended: {run.state}")
    runs.stop(run)
    return Response(status_code=204)


@router.get("/jobs/{name:segment}/report")
def report_of_job(caller: Monitor, runs: RunsOf, name: str) -> Response:
    """The page that a run has written."""
    try:
        path = runs.report(_run(runs, name))
    except BadPlace:
        path = None
    if path is None:
        raise not_found()
    return Response(path.read_bytes(), media_type="text/html", headers=_REPORT_HEADERS)


def _run(runs: Runs, name: str) -> Run:
    run = runs.find(name)
    if run is None:
        raise not_found()
    return run


def _row(runs: Runs, run: Run) -> Row:
    row: Row = {field: getattr(run, field) for field in run.__struct_fields__}
    try:
        row["has_report"] = runs.report(run) is not None
    except BadPlace:
        row["has_report"] = False
    return row


def checked_arguments(runs: Runs, body: Body, job: str, vhost: str) -> Mapping[str, Any]:
    """The arguments in a body, which the job must take. Raises HttpRefusal."""
    arguments = body.table("arguments")
    try:
        runs.check(job, vhost, arguments)
    except BadArguments as error:
        raise bad_request(str(error)) from None
    return arguments
