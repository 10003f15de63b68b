"""The counts of logins."""

from typing import Any, Final

from warrenmq.admin.protocol.control import List, Rows
from warrenmq.admin.protocol.watching import ResetLoginAttempts, SetSourceTracking
from warrenmq.cli.control.command import Command, Run
from warrenmq.cli.control.formats.output import Output, Table, Text
from warrenmq.cli.control.objects.listings import GROUP
from warrenmq.cli.control.parsing import Option

_OPERATIONS: Final = "Operations"
_COUNTS: Final = ("protocol", "auth_attempts", "auth_attempts_failed", "auth_attempts_succeeded")
_SOURCE: Final = ("remote_address", "username")


def _attempts(run: Run) -> Output:
    if run.flag("by-source"):
        columns: tuple[str, ...] = _SOURCE + _COUNTS
        rows = run.ask(List(what="auth_attempts_by_source", columns=list(columns)), Rows).rows
    else:
        columns = _COUNTS
        rows = run.ask(List(what="auth_attempts", columns=list(columns)), Rows).rows
    attempts = [dict(sorted(zip(columns, row, strict=True))) for row in rows]
    data: dict[str, Any] = {"attempts": attempts, "node": run.node, "result": "ok"}
    if not rows:
        return Text(f"Node {run.node} reported no authentication attempt stats", data)
    return Table(columns, rows, data=data)


def _reset(run: Run) -> Output:
    run.do(ResetLoginAttempts())
    return None


def _track(is_on: bool, run: Run) -> Output:
    run.do(SetSourceTracking(is_on=is_on))
    return None


COMMANDS: Final = (
    Command(
        "disable_auth_attempt_source_tracking", _OPERATIONS,
        "Ends the counts of logins by address and user", lambda run: _track(False, run),
        banner=lambda _run: "Disabling authentication attempt source tracking ...",
    ),
    Command(
        "enable_auth_attempt_source_tracking", _OPERATIONS,
        "Counts logins by address and user, too", lambda run: _track(True, run),
        banner=lambda _run: "Enabling authentication attempt source tracking ...",
    ),
    Command(
        "list_node_auth_attempt_stats", GROUP, "Shows how many logins were tried and refused",
        _attempts, is_table=True,
        options=(Option("by-source", "flag", help="by address and user"),),
        banner=lambda run: f'Listing authentication\n attempts for node "{run.node}" ...',
    ),
    Command(
        "reset_node_auth_attempt_metrics", _OPERATIONS, "Counts logins anew", _reset,
        banner=lambda run: f"Reset auth attempt metrics on node {run.node} ...",
    ),
)  # fmt: skip
