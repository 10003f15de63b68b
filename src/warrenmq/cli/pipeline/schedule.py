"""`warren pipeline schedule`: jobs that a node runs at set times.

The definitions of the node have the schedules; the process of its HTTP API runs the jobs, in its
directory of jobs. Exit status: 0; 1 when there is no schedule of that name; 2 with one line on
standard error when the node does not answer or refuses.
"""

import time
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
import typer

from warrenmq.admin.client.client import AdminRefusedError
from warrenmq.admin.client.control_file import ControlFileError
from warrenmq.admin.client.local_node import find_local_node
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
from warrenmq.cli.connection import NamedBy, Node, node_client, takes_node
from warrenmq.cli.output import AsJson, fail, print_json, print_rows
from warrenmq.cli.pipeline.app import pipeline
from warrenmq.vocabulary.error_codes import NOT_FOUND

NO_SCHEDULE_EXIT: Final = 1
_CLIENT: Final = "warren pipeline schedule"

schedule = typer.Typer(
    help="Jobs that a node runs at set times; its definitions have the schedules.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
pipeline.add_typer(schedule, name="schedule")

ScheduleName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.")]


# What follows the name is the job's, its options too.
@schedule.command("add", context_settings={"allow_interspersed_args": False})
@takes_node
def add_command(
    name: ScheduleName,
    job: Annotated[
        list[str],
        typer.Argument(
            metavar="JOB...",
            help="The job with its options. Paths lie in the node's directory of jobs, and {run} "
            "in what is written stands for the name of the run.",
        ),
    ],
    node: Node,
    cron: Annotated[
        str,
        typer.Option(metavar="EXPR", help="When: minute, hour, day, month, day of the week, UTC."),
    ] = "",
    interval_s: Annotated[
        int, typer.Option("--every", metavar="SECONDS", help="When: each so many seconds.")
    ] = 0,
    run_by: Annotated[
        str,
        typer.Option(metavar="NODE", help="The node that runs it. (default: the first that runs)"),
    ] = "",
    run_as: Annotated[
        str,
        typer.Option(
            "--as", metavar="USER", help="The user of the job. (default: who sets the schedule)"
        ),
    ] = "",
    grace_s: Annotated[
        int, typer.Option("--grace", metavar="SECONDS", help="How late a run may begin.")
    ] = GRACE_S,
    disabled: Annotated[bool, typer.Option("--disabled", help="Run nothing yet.")] = False,
) -> None:
    """Set a schedule, for example: add --cron "0 3 * * *" nightly backup "backups/{run}"."""
    # Imported here, because it takes longer than the other commands.
    from warrenmq.cli.pipeline.words import arguments_of
    from warrenmq.management.jobs.kinds import BadArguments

    is_local = node.named_by is NamedBy.DEFAULT and not node.names_user and node.local is not None
    if not run_as and is_local:
        fail("name the user of the job with --as")
    try:
        value = msgspec.json.encode(
            Schedule(
                job=job[0],
                user=run_as or node.address.user,
                arguments=arguments_of(job),
                cron=cron,
                interval=interval_s,
                node=run_by,
                enabled=not disabled,
                grace=grace_s,
                since=int(time.time()),
            )
        ).decode()
        if parse_schedule(value).cron:
            _check_cron(cron)
    except (BadArguments, ValueError) as error:
        fail(str(error).removeprefix("Validation failed").strip())
    with node_client(node, _CLIENT) as client:
        client.request(SetSchedule(vhost=node.address.vhost, name=name, value=value), Done)


@schedule.command("list")
@takes_node
def list_command(node: Node, as_json: AsJson = False) -> None:
    """List the schedules of all vhosts, with what became of their last runs."""
    with node_client(node, _CLIENT) as client:
        found = client.request(ListSchedules(), Schedules)
    shown: list[dict[str, Any]] = [
        {
            "vhost": each.vhost,
            "name": each.name,
            **msgspec.json.decode(each.value),
            "last": msgspec.json.decode(each.run) if each.run else None,
        }
        for each in found.schedules
    ]
    if as_json:
        print_json({"schedules": shown})
        return
    rows = [["vhost", "name", "job", "when", "user", "node", "last", "state"]]
    for each in shown:
        last = each["last"]
        rows.append(
            [
                each["vhost"],
                each["name"],
                each["job"],
                each.get("cron") or f"every {each['interval']} s",
                each["user"],
                each.get("node") or "any",
                _time_text(last["due"]) if last else "-",
                last["state"] if last else ("new" if each.get("enabled", True) else "disabled"),
            ]
        )
    print_rows(rows, len(rows[0]))


@schedule.command("remove")
@takes_node
def remove_command(name: ScheduleName, node: Node) -> None:
    """Delete a schedule; a run that is under way goes on."""
    with node_client(node, _CLIENT) as client:
        try:
            client.request(ClearSchedule(vhost=node.address.vhost, name=name), Done)
        except AdminRefusedError as error:
            if error.code != NOT_FOUND:
                raise
            fail(error, NO_SCHEDULE_EXIT)


@schedule.command("runs")
def runs_command(as_json: AsJson = False) -> None:
    """List the last runs of the node of this machine, those over HTTP included."""
    from warrenmq.management.jobs.records import RUNS_NAME, all_runs

    try:
        directory = find_local_node().path.parent / RUNS_NAME
        found = all_runs(directory) if directory.exists() else []
    except (ControlFileError, OSError) as error:
        fail(error)
    if as_json:
        print_json({"runs": msgspec.to_builtins(found)})
        return
    rows = [["run", "vhost", "job", "schedule", "state", "seconds", "reason"]]
    for run in found:
        seconds = f"{(run.ended - run.started) / 1000:.1f}" if run.ended else "-"
        rows.append(
            [run.name, run.vhost, run.job, run.schedule or "-", run.state, seconds, run.reason]
        )
    print_rows(rows, len(rows[0]))


def _check_cron(expression: str) -> None:
    try:
        from warrenmq.management.jobs.times import check_cron
    except ModuleNotFoundError as error:
        fail(f"schedules need pip install 'warrenmq[management]' ({error})")
    check_cron(expression)


def _time_text(unix_s: int) -> str:
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M:%S}"
