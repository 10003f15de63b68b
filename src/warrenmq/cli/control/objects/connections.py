"""Connections: close them, and take new ones or refuse them."""

import re
import time
from typing import Final, Literal

from warrenmq.admin.protocol.control import CloseConnections, Counted, List, Rows, SetListening
from warrenmq.cli.control.command import Command, Run
from warrenmq.cli.control.exits import CommandError
from warrenmq.cli.control.formats.output import Output, Text
from warrenmq.cli.control.link import Refused
from warrenmq.cli.control.parsing import Option
from warrenmq.vocabulary.error_codes import NOT_FOUND

GROUP: Final = "Operations"
_PID: Final = re.compile(r"<[^<>]+\.\d+\.\d+\.\d+>")


def _close(run: Run) -> Output:
    pid, reason = run.arguments
    if _PID.fullmatch(pid) is None:
        raise CommandError(
            f"Error:\n{pid} is no pid of a connection, as `list_connections pid` shows it"
        )
    try:
        run.ask(CloseConnections(reason=reason, pid=pid), Counted)
    except Refused as error:
        # A connection that is closed already needs no more closing.
        if error.refusal != NOT_FOUND:
            raise
    return None


def _close_all(run: Run) -> Output:
    vhost = None if run.flag("global") else run.vhost
    limit = run.number("limit")
    delay_ms = run.number("per-connection-delay")
    if delay_ms <= 0:
        request = CloseConnections(
            reason=run[0], vhost=vhost, limit=limit, is_everywhere=not run.flag("global")
        )
        return _closed(run, run.ask(request, Counted).count)
    which: Literal["all", "local"] = "local" if run.flag("global") else "all"
    request_rows = List(what="connections", columns=["pid", "vhost"], which=which)
    rows = run.ask(request_rows, Rows).rows
    pids = [pid for pid, name in rows if vhost in (None, name)]
    pids = pids[:limit] if limit else pids
    for pid in pids:
        _close_one(run, pid)
        time.sleep(delay_ms / 1000)
    return _closed(run, len(pids))


def _closed(run: Run, count: int) -> Output:
    text = f"Closed {count} connections"
    return Text(text, {"node": run.node, "result": "ok", "value": text})


def _close_one(run: Run, pid: str) -> None:
    try:
        run.ask(CloseConnections(reason=run[0], pid=pid), Counted)
    except Refused as error:
        if error.refusal != NOT_FOUND:
            raise


def _close_all_banner(run: Run) -> str:
    if run.flag("global"):
        where = f"all connections to node {run.node} (across all vhosts)"
    else:
        count = run.number("limit") or "all"
        where = f"{count} connections in vhost {run.vhost}"
    return f"Closing {where}, reason: {run[0]}..."


def _close_of_user(run: Run) -> Output:
    run.ask(CloseConnections(reason=run[1], user=run[0], is_everywhere=True), Counted)
    return None


def _listen(run: Run, is_on: bool) -> Output:
    run.do(SetListening(is_on=is_on))
    return None


COMMANDS: Final = (
    Command(
        "close_all_connections", GROUP, "Closes all connections to a vhost, or to the node",
        _close_all, "<explanation>", (1, 1),
        options=(
            Option("limit", "integer", help="close at most so many"),
            Option("global", "flag", help="the connections to all vhosts"),
            Option("per-connection-delay", "integer", help="a pause after each", metavar="delay"),
        ),
        takes_vhost=True, banner=_close_all_banner,
    ),
    Command(
        "close_all_user_connections", GROUP, "Closes all connections of a user", _close_of_user,
        "<username> <explanation>", (2, 2),
        banner=lambda run: f"Closing connections of user {run[0]}, reason: {run[1]}...",
    ),
    Command(
        "close_connection", GROUP, "Closes the connection with a pid, as `list_connections pid` shows it",
        _close, "<connection pid> <explanation>", (2, 2),
        banner=lambda run: f"Closing connection {run[0]}, reason: {run[1]}...",
    ),
    Command(
        "resume_listeners", GROUP, "Takes new connections again", lambda run: _listen(run, True),
        banner=lambda run: (
            f"Will resume client connection listeners on node {run.node}. "
            "The node will now accept client connections"
        ),
    ),
    Command(
        "suspend_listeners", GROUP, "Takes no new connections; open ones go on",
        lambda run: _listen(run, False),
        banner=lambda run: (
            f"Will suspend client connection listeners on node {run.node}. "
            "The node will no longer accept client connections!"
        ),
    ),
)  # fmt: skip
