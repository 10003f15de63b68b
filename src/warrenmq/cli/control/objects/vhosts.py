"""Vhosts: their description, tags, limits and tracing."""

from typing import Final

from warrenmq.admin.protocol.control import (
    AddVhost,
    DeleteVhost,
    List,
    Rows,
    SetTracing,
    SetVhostLimits,
    SetVhostTags,
)
from warrenmq.cli.control.command import Command, Run
from warrenmq.cli.control.exits import SOFTWARE, CommandError
from warrenmq.cli.control.formats.output import Output, Table, Text
from warrenmq.cli.control.formats.values import Json, cell_text
from warrenmq.cli.control.link import Refused
from warrenmq.cli.control.objects.listings import check_columns, named_columns
from warrenmq.cli.control.objects.parameters import (
    clear_vhost_limits,
    strict_json_text,
    vhost_limits,
)
from warrenmq.cli.control.parsing import Option
from warrenmq.vocabulary.error_codes import NO_SUCH_VHOST

GROUP: Final = "Virtual hosts"
COLUMNS: Final = (
    "cluster_state", "default_queue_type", "description", "name", "tags", "tracing",
)  # fmt: skip


def _tags(words: list[str]) -> list[str]:
    return [tag for word in words for tag in word.split(",") if tag]


def _add(run: Run) -> Output:
    run.do(
        AddVhost(
            name=run[0],
            description=run.text("description"),
            tags=_tags([run.text("tags")]),
            default_queue_type=run.text("default-queue-type"),
        )
    )
    return None


def _delete(run: Run) -> Output:
    run.do(DeleteVhost(name=run[0]))
    return None


def _list(run: Run) -> Output:
    columns = named_columns(run.arguments, ("name",))
    return Table(columns, run.ask(List(what="vhosts", columns=list(columns)), Rows).rows)


def _set_tags(run: Run) -> Output:
    try:
        run.do(SetVhostTags(name=run[0], tags=_tags(run.arguments[1:])))
    except Refused as error:
        if error.refusal != NO_SUCH_VHOST:
            raise
        text = f'Error:\nVirtual host "{run[0]}" does not exist'
        raise CommandError(text, error.code) from None
    return None


def _set_limits(run: Run) -> Output:
    run.do(SetVhostLimits(vhost=run.vhost, definition=strict_json_text(run[0])))
    return None


def _list_limits(run: Run) -> Output:
    if not run.flag("global"):
        limits = vhost_limits(run, run.vhost)
        return Text(cell_text(Json(limits)), limits) if limits else Table(("limits",), [])
    names = [name for (name,) in run.ask(List(what="vhosts", columns=["name"]), Rows).rows]
    found = [(name, vhost_limits(run, name)) for name in names]
    return Table(("vhost", "limits"), [[name, Json(limits)] for name, limits in found if limits])


def _limits_banner(run: Run) -> str:
    if run.flag("global"):
        return "Listing limits for all vhosts ..."
    return f'Listing limits for vhost "{run.vhost}" ...'


def _trace(run: Run, is_on: bool) -> Output:
    run.do(SetTracing(vhost=run.vhost, is_on=is_on))
    text = f"Trace {'enabled' if is_on else 'disabled'} for vhost {run.vhost}"
    return Text(text, {"node": run.node, "result": "ok", "value": text})


def _restart(run: Run) -> Output:
    names = [row[0] for row in run.ask(List(what="vhosts", columns=["name"]), Rows).rows]
    if run.vhost not in names:
        reason = f"Failed to start vhost '{run.vhost}' on node '{run.node}': there is no such vhost"
        raise CommandError(f"Error:\n{reason}", SOFTWARE)
    # A node whose vhost does not start does not start at all.
    return Text(f"Vhost '{run.vhost}' is already running on node '{run.node}'")


COMMANDS: Final = (
    Command(
        "add_vhost", GROUP, "Creates a vhost", _add, "<vhost>", (1, 1),
        options=(
            Option("description", help="what it is for"),
            Option("tags", help="tags, with commas between them"),
            Option("default-queue-type", metavar="type", help="the type of queues without one"),
        ),
        banner=lambda run: f'Adding vhost "{run[0]}" ...',
    ),
    Command(
        "clear_vhost_limits", GROUP, "Removes the limits of a vhost", clear_vhost_limits,
        takes_vhost=True, banner=lambda run: f'Clearing vhost "{run.vhost}" limits ...',
    ),
    Command(
        "delete_vhost", GROUP, "Deletes a vhost and all that is in it", _delete, "<vhost>", (1, 1),
        banner=lambda run: f'Deleting vhost "{run[0]}" ...',
    ),
    Command(
        "list_vhost_limits", GROUP, "Shows the limits of a vhost, or of all", _list_limits,
        options=(Option("global", "flag", help="the limits of all vhosts"),),
        takes_vhost=True, is_table=True, banner=_limits_banner,
    ),
    Command(
        "list_vhosts", GROUP, "Lists vhosts", _list, "[<column> ...]", (0, None), columns=COLUMNS,
        is_table=True, takes_timeout=True, banner=lambda _run: "Listing vhosts ...",
        check=lambda run: check_columns(run, COLUMNS),
    ),
    Command(
        "restart_vhost", GROUP, "Starts a vhost again that failed", _restart,
        takes_vhost=True, takes_timeout=True,
        banner=lambda run: f"Trying to restart vhost '{run.vhost}' on node '{run.node}' ...",
    ),
    Command(
        "set_vhost_limits", GROUP, "Limits the connections or queues of a vhost", _set_limits,
        "<definition>", (1, 1), takes_vhost=True,
        banner=lambda run: f'Setting vhost limits to "{run[0]}" for vhost "{run.vhost}" ...',
    ),
    Command(
        "set_vhost_tags", GROUP, "Replaces a vhost's tags", _set_tags,
        "<vhost> <tag> [...]", (1, None),
        banner=lambda run: (
            f'Setting tags for virtual host "{run[0]}" to [{", ".join(run.arguments[1:])}] ...'
        ),
    ),
    Command(
        "trace_off", GROUP, "Ends the copies of all messages of a vhost",
        lambda run: _trace(run, False), takes_vhost=True,
        banner=lambda run: f'Stopping tracing for vhost "{run.vhost}" ...',
    ),
    Command(
        "trace_on", GROUP, "Copies all messages of a vhost to the exchange amq.rabbitmq.trace",
        lambda run: _trace(run, True), takes_vhost=True,
        banner=lambda run: f'Starting tracing for vhost "{run.vhost}" ...',
    ),
)  # fmt: skip
