"""Parameters of components and of the whole broker, and the cluster's name."""

import json
from typing import Any, Final

from warrenmq.admin.definitions.lenient_json import JsonError, strict_json
from warrenmq.admin.protocol.control import (
    ClearGlobalParameter,
    ClearParameter,
    List,
    Rows,
    SetGlobalParameter,
    SetParameter,
    SetVhostLimits,
)
from warrenmq.cli.control.command import Command, Run
from warrenmq.cli.control.exits import CommandError
from warrenmq.cli.control.formats.output import Output, Table
from warrenmq.cli.control.formats.values import Json, json_text
from warrenmq.cli.control.link import Refused
from warrenmq.vocabulary.error_codes import NO_SUCH_VHOST, NOT_FOUND

GROUP: Final = "Parameters"
NO_PARAMETER: Final = "Error:\nParameter does not exist"


def strict_json_text(text: str) -> str:
    """Strict JSON for a text that RabbitMQ takes for JSON. Raises CommandError."""
    try:
        return strict_json(text.encode()).decode()
    except JsonError:
        raise CommandError("Error:\nJSON decoding error. Reason: badarg") from None


def as_json_value(value: Any) -> Json:
    """A value of a listing, which is JSON or the text of JSON, for a table."""
    return Json(json.loads(value) if isinstance(value, str) else value)


def do_clear(run: Run, request: Any) -> Output:
    """Clear a parameter or a policy. Raises CommandError with RabbitMQ's text if there is none."""
    try:
        run.do(request)
    except Refused as error:
        if error.refusal in (NOT_FOUND, NO_SUCH_VHOST):
            raise CommandError(NO_PARAMETER) from None
        raise
    return None


def _set(run: Run) -> Output:
    value = strict_json_text(run[2])
    if _is_limits(run):
        run.do(SetVhostLimits(vhost=run.vhost, definition=value))
    else:
        run.do(SetParameter(vhost=run.vhost, component=run[0], name=run[1], value=value))
    return None


def _is_limits(run: Run) -> bool:
    """Whether the parameter is the limits of the vhost, which RabbitMQ keeps as a parameter."""
    return run.arguments[:2] == ["vhost-limits", "limits"]


def _clear(run: Run) -> Output:
    if _is_limits(run):
        return clear_vhost_limits(run)
    return do_clear(run, ClearParameter(vhost=run.vhost, component=run[0], name=run[1]))


def vhost_limits(run: Run, vhost: str) -> Any:
    """The limits of a vhost by their names; {} without any."""
    rows = run.ask(List(what="vhost_limits", columns=["limits"], vhost=vhost), Rows).rows
    return as_json_value(rows[0][0]).value if rows else {}


def clear_vhost_limits(run: Run) -> Output:
    """Remove the limits of the vhost. Raises CommandError if there are none."""
    if not vhost_limits(run, run.vhost):
        raise CommandError(NO_PARAMETER)
    run.do(SetVhostLimits(vhost=run.vhost, definition="{}"))
    return None


def _list(run: Run) -> Output:
    columns = ("component", "name", "value")
    rows = run.ask(List(what="parameters", columns=list(columns), vhost=run.vhost), Rows).rows
    return Table(columns, [[each, name, as_json_value(value)] for each, name, value in rows])


def _set_global(run: Run) -> Output:
    run.do(SetGlobalParameter(name=run[0], value=strict_json_text(run[1])))
    return None


def _clear_global(run: Run) -> Output:
    return do_clear(run, ClearGlobalParameter(name=run[0]))


def _list_global(run: Run) -> Output:
    rows = run.ask(List(what="global_parameters", columns=["name", "value"]), Rows).rows
    return Table(("name", "value"), [[name, as_json_value(value)] for name, value in rows])


def _set_cluster_name(run: Run) -> Output:
    run.do(SetGlobalParameter(name="cluster_name", value=json_text(run[0])))
    return None


COMMANDS: Final = (
    Command(
        "clear_global_parameter", GROUP, "Deletes a parameter of the whole broker", _clear_global,
        "<name>", (1, 1),
        banner=lambda run: f'Clearing global runtime parameter "{run[0]}" ...',
    ),
    Command(
        "clear_parameter", GROUP, "Deletes a parameter of a component", _clear,
        "<component_name> <name>", (2, 2), takes_vhost=True,
        banner=lambda run: (
            f'Clearing runtime parameter "{run[1]}" for component "{run[0]}" on vhost "{run.vhost}" ...'
        ),
    ),
    Command(
        "list_global_parameters", GROUP, "Lists parameters of the whole broker", _list_global,
        is_table=True, takes_timeout=True,
        banner=lambda _run: "Listing global runtime parameters ...",
    ),
    Command(
        "list_parameters", GROUP, "Lists parameters of components", _list,
        takes_vhost=True, is_table=True, takes_timeout=True,
        banner=lambda run: f'Listing runtime parameters for vhost "{run.vhost}" ...',
    ),
    Command(
        "set_global_parameter", GROUP, "Sets a parameter of the whole broker", _set_global,
        "<name> <value>", (2, 2),
        banner=lambda run: f'Setting global runtime parameter "{run[0]}" to "{run[1]}" ...',
    ),
    Command(
        "set_parameter", GROUP, "Sets a parameter of a component", _set,
        "<component_name> <name> <value>", (3, 3), takes_vhost=True,
        banner=lambda run: (
            f'Setting runtime parameter "{run[1]}" for component "{run[0]}" to "{run[2]}" '
            f'in vhost "{run.vhost}" ...'
        ),
    ),
    Command(
        "set_cluster_name", "Configuration and environment", "Names the cluster", _set_cluster_name,
        "<name>", (1, 1), banner=lambda run: f"Setting cluster name to {run[0]} ...",
    ),
)  # fmt: skip
