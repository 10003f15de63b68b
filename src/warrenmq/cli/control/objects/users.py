"""Users: their passwords, tags and limits."""

import json
import sys
from typing import Final

from warrenmq.admin.protocol import control
from warrenmq.admin.protocol.requests import Request
from warrenmq.cli.control.command import Command, Run
from warrenmq.cli.control.exits import DATA, SOFTWARE, CommandError, bad_argument
from warrenmq.cli.control.formats.output import Output, Table, Text
from warrenmq.cli.control.formats.values import Json, cell_text
from warrenmq.cli.control.link import Refused
from warrenmq.cli.control.objects.parameters import as_json_value, strict_json_text
from warrenmq.cli.control.parsing import Option
from warrenmq.vocabulary.error_codes import ACCESS_REFUSED, NO_SUCH_USER

GROUP: Final = "Users"
_ADDED: Final = (
    "Done. Don't forget to grant the user permissions to some virtual hosts! "
    "See '{program} help set_permissions' to learn more."
)
_LIMITS: Final = ("max-connections", "max-channels")
_CREDENTIALS: Final = "<username> <password>"


def _password(run: Run, missing_code: int = SOFTWARE) -> str:
    """The password of the second argument, or the first line of standard input.

    Raises CommandError with `missing_code` when there is neither.
    """
    if len(run.arguments) > 1:
        return run[1]
    if sys.stdin.isatty():
        from getpass import getpass

        return getpass("Password: ")
    if not run.is_quiet:
        print("Password: ")
    line = sys.stdin.readline().rstrip("\n")
    if not line:
        raise CommandError("Error:\nPassword is not provided via argument or stdin", missing_code)
    return line


def _do(run: Run, request: Request) -> None:
    """Carry out a change for which RabbitMQ has one exit code, whatever is wrong."""
    try:
        run.do(request)
    except Refused as error:
        raise CommandError(error.text) from None


def expect_user(run: Run, name: str) -> None:
    """Raise CommandError when there is no user `name`."""
    users = run.ask(control.List(what="users", columns=["user"]), control.Rows).rows
    if [name] not in users:
        raise CommandError(f'Error:\nUser "{name}" does not exist')


def _check_new_user(run: Run) -> None:
    if not run[0]:
        raise bad_argument("user cannot be an empty string")


def _add(run: Run) -> Output:
    run.do(control.AddUser(name=run[0], password=_password(run, DATA)))
    text = _ADDED.format(program=run.program.name)
    return Text(text, {"message": text, "node": run.node, "status": "ok"}, hidden_by="quiet")


def _authenticate(run: Run) -> Output:
    name = run[0]
    try:
        run.do(control.CheckPassword(name=name, password=_password(run)))
    except Refused as error:
        if error.refusal not in (ACCESS_REFUSED, NO_SUCH_USER):
            raise
        text = f"Error: failed to authenticate user \"{name}\"\nuser '{name}' - invalid credentials"
        raise CommandError(f"Error:\n{text}", DATA) from None
    return Text("Success")


def _change_password(run: Run) -> Output:
    run.do(control.ChangePassword(name=run[0], password=_password(run)))
    return None


def _clear_password(run: Run) -> Output:
    _do(run, control.ChangePassword(name=run[0], password=None))
    return None


def _delete(run: Run) -> Output:
    run.do(control.DeleteUser(name=run[0]))
    return None


def _set_tags(run: Run) -> Output:
    tags = [tag for word in run.arguments[1:] for tag in word.split(",") if tag]
    run.do(control.SetUserTags(name=run[0], tags=tags))
    return None


def _list(run: Run) -> Output:
    rows = run.ask(control.List(what="users", columns=["user", "tags"]), control.Rows).rows
    return Table(("user", "tags"), rows)


def _set_limits(run: Run) -> Output:
    limits = json.loads(strict_json_text(run[1]))
    if not isinstance(limits, dict):
        raise CommandError("Error:\nlimits must be a JSON object")
    unknown = {name: value for name, value in limits.items() if name not in _LIMITS}
    if unknown:
        from warrenmq.vocabulary.erlang_text import settings_text

        raise CommandError(f"Error:\nUnrecognised terms {settings_text(unknown)} in user-limits")
    for name, value in limits.items():
        if isinstance(value, bool) or not isinstance(value, int):
            from warrenmq.vocabulary.erlang_text import term_text

            text = f"{name} should be a number, actually was {term_text(value)}"
            raise CommandError(f"Error:\n{text}")
    _do(
        run,
        control.SetUserLimits(
            name=run[0],
            max_connections=limits.get("max-connections"),
            max_channels=limits.get("max-channels"),
        ),
    )
    return None


def _clear_limits(run: Run) -> Output:
    name = run[1]
    cleared = [limit for limit in _LIMITS if name in (limit, "all")]
    removed = {limit.replace("-", "_"): -1 for limit in cleared}
    _do(run, control.SetUserLimits(name=run[0], **removed))
    return None


def _list_limits(run: Run) -> Output:
    columns = ["user", "limits"]
    if run.flag("global"):
        rows = run.ask(control.List(what="user_limits", columns=columns), control.Rows).rows
        shown = [[user, as_json_value(limits)] for user, limits in rows if limits]
        return Table(("user", "limits"), shown)
    user = run.text("user", "guest")
    expect_user(run, user)
    rows = run.ask(control.List(what="user_limits", columns=columns, user=user), control.Rows).rows
    limits = as_json_value(rows[0][1]).value if rows else {}
    return Text(cell_text(Json(limits)), limits)


def _limits_banner(run: Run) -> str:
    if run.flag("global"):
        return "Listing limits for all users ..."
    return f'Listing limits for user "{run.text("user", "guest")}" ...'


def _clear_limits_banner(run: Run) -> str:
    which = "all limits" if run[1] == "all" else f'"{run[1]}" limit'
    return f'Clearing {which} for user "{run[0]}" ...'


COMMANDS: Final = (
    Command(
        "add_user", GROUP, "Creates a user, who has no permissions and no tags yet", _add,
        _CREDENTIALS, (1, 2), check=_check_new_user,
        banner=lambda run: f'Adding user "{run[0]}" ...',
    ),
    Command(
        "authenticate_user", GROUP, "Checks a user's password", _authenticate, _CREDENTIALS, (1, 2),
        banner=lambda run: f'Authenticating user "{run[0]}" ...',
    ),
    Command(
        "change_password", GROUP, "Changes a user's password", _change_password, _CREDENTIALS, (1, 2),
        banner=lambda run: f'Changing password for user "{run[0]}" ...',
    ),
    Command(
        "clear_password", GROUP, "Takes a user's password away: no login with one any more",
        _clear_password, "<username>", (1, 1),
        banner=lambda run: f'Clearing password for user "{run[0]}" ...',
    ),
    Command(
        "clear_user_limits", GROUP, "Removes a limit of a user, or all", _clear_limits,
        "<username> <limit_type> | all", (2, 2), banner=_clear_limits_banner,
    ),
    Command(
        "delete_user", GROUP, "Deletes a user and its permissions", _delete, "<username>", (1, 1),
        banner=lambda run: f'Deleting user "{run[0]}" ...',
    ),
    Command(
        "list_user_limits", GROUP, "Shows the limits of a user, or of all", _list_limits,
        options=(
            Option("user", metavar="username", help="the user (default: guest)"),
            Option("global", "flag", help="the limits of all users"),
        ),
        is_table=True, banner=_limits_banner,
    ),
    Command(
        "list_users", GROUP, "Lists users and their tags", _list,
        is_table=True, takes_timeout=True, banner=lambda _run: "Listing users ...",
    ),
    Command(
        "set_user_limits", GROUP, "Limits a user's connections or channels", _set_limits,
        "<username> <definition>", (2, 2),
        banner=lambda run: f'Setting user limits to "{run[1]}" for user "{run[0]}" ...',
    ),
    Command(
        "set_user_tags", GROUP, "Replaces a user's tags", _set_tags,
        "<username> <tag> [...]", (1, None),
        banner=lambda run: (
            f'Setting tags for user "{run[0]}" to [{", ".join(run.arguments[1:])}] ...'
        ),
    ),
)  # fmt: skip
