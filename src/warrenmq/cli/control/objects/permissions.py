"""Permissions of users in vhosts and at topic exchanges."""

from typing import Final, Literal

from warrenmq.admin.protocol.control import (
    ClearPermissions,
    ClearTopicPermissions,
    List,
    Rows,
    SetPermissions,
    SetTopicPermissions,
)
from warrenmq.admin.protocol.requests import Request
from warrenmq.cli.control.command import Command, Run
from warrenmq.cli.control.exits import CommandError
from warrenmq.cli.control.formats.output import Output, Table
from warrenmq.cli.control.link import Refused
from warrenmq.cli.control.objects.users import expect_user
from warrenmq.vocabulary.error_codes import NO_SUCH_USER, NO_SUCH_VHOST

GROUP: Final = "Access control"
_RIGHTS: Final = ("configure", "write", "read")
_TOPIC_RIGHTS: Final = ("exchange", "write", "read")
_Listed = Literal["permissions", "topic_permissions", "user_permissions", "user_topic_permissions"]


def _do(run: Run, user: str, request: Request) -> Output:
    """Carry out a change of permissions. Raises CommandError with RabbitMQ's texts."""
    try:
        run.do(request)
    except Refused as error:
        if error.refusal == NO_SUCH_VHOST:
            raise CommandError(f"Error:\nVirtual host {run.vhost} does not exist") from None
        if error.refusal == NO_SUCH_USER:
            raise CommandError(f"Error:\nUser {user} does not exist", error.code) from None
        raise
    return None


def _set(run: Run) -> Output:
    user, configure, write, read = run.arguments
    return _do(
        run,
        user,
        SetPermissions(vhost=run.vhost, user=user, configure=configure, write=write, read=read),
    )


def _clear(run: Run) -> Output:
    return _do(run, run[0], ClearPermissions(vhost=run.vhost, user=run[0]))


def _set_topic(run: Run) -> Output:
    user, exchange, write, read = run.arguments
    return _do(
        run,
        user,
        SetTopicPermissions(vhost=run.vhost, user=user, exchange=exchange, write=write, read=read),
    )


def _clear_topic(run: Run) -> Output:
    exchange = run[1] if len(run.arguments) > 1 else None
    return _do(run, run[0], ClearTopicPermissions(vhost=run.vhost, user=run[0], exchange=exchange))


def _clear_topic_banner(run: Run) -> str:
    at = f' on "{run[1]}"' if len(run.arguments) > 1 else ""
    return f'Clearing topic permissions{at} for user "{run[0]}" in vhost "{run.vhost}" ...'


def _in_vhost(run: Run, what: _Listed, columns: tuple[str, ...]) -> Output:
    rows = run.ask(List(what=what, columns=list(columns), vhost=run.vhost), Rows).rows
    return Table(columns, rows)


def _of_user(run: Run, what: _Listed, columns: tuple[str, ...]) -> Table:
    expect_user(run, run[0])
    rows = run.ask(List(what=what, columns=list(columns), user=run[0]), Rows).rows
    # RabbitMQ's table of a user's topic permissions has no header.
    return Table(columns, rows, has_header=what == "user_permissions")


COMMANDS: Final = (
    Command(
        "clear_permissions", GROUP, "Takes a user's access to a vhost away", _clear,
        "<username>", (1, 1), takes_vhost=True,
        banner=lambda run: f'Clearing permissions for user "{run[0]}" in vhost "{run.vhost}" ...',
    ),
    Command(
        "clear_topic_permissions", GROUP, "Clears a user's permissions at one topic exchange or all",
        _clear_topic, "<username> [<exchange>]", (1, 2), takes_vhost=True,
        banner=_clear_topic_banner,
    ),
    Command(
        "list_permissions", GROUP, "Lists permissions in a vhost",
        lambda run: _in_vhost(run, "permissions", ("user", *_RIGHTS)),
        takes_vhost=True, is_table=True, takes_timeout=True,
        banner=lambda run: f'Listing permissions for vhost "{run.vhost}" ...',
    ),
    Command(
        "list_topic_permissions", GROUP, "Lists permissions at topic exchanges of a vhost",
        lambda run: _in_vhost(run, "topic_permissions", ("user", *_TOPIC_RIGHTS)),
        takes_vhost=True, is_table=True, takes_timeout=True,
        banner=lambda run: f'Listing topic permissions for vhost "{run.vhost}" ...',
    ),
    Command(
        "list_user_permissions", GROUP, "Lists a user's permissions in all vhosts",
        lambda run: _of_user(run, "user_permissions", ("vhost", *_RIGHTS)),
        "<username>", (1, 1), is_table=True, takes_timeout=True,
        banner=lambda run: f'Listing permissions for user "{run[0]}" ...',
    ),
    Command(
        "list_user_topic_permissions", GROUP, "Lists a user's permissions at topic exchanges",
        lambda run: _of_user(run, "user_topic_permissions", ("vhost", *_TOPIC_RIGHTS)),
        "<username>", (1, 1), is_table=True, takes_timeout=True,
        banner=lambda run: f'Listing topic permissions for user "{run[0]}" ...',
    ),
    Command(
        "set_permissions", GROUP, "Sets a user's permissions in a vhost: three regular expressions",
        _set, "<username> <conf> <write> <read>", (4, 4), takes_vhost=True,
        banner=lambda run: f'Setting permissions for user "{run[0]}" in vhost "{run.vhost}" ...',
    ),
    Command(
        "set_topic_permissions", GROUP, "Sets a user's permissions at a topic exchange",
        _set_topic, "<username> <exchange> <write> <read>", (4, 4), takes_vhost=True,
        banner=lambda run: (
            f'Setting topic permissions on "{run[1]}" for user "{run[0]}" in vhost "{run.vhost}" ...'
        ),
    ),
)  # fmt: skip
