"""Policies and operator policies."""

import json
from typing import Final

from warrenmq.admin.protocol.control import ClearPolicy, List, PolicyKind, Rows, SetPolicy
from warrenmq.cli.control.command import Command, Run
from warrenmq.cli.control.exits import CommandError
from warrenmq.cli.control.formats.output import Output, Table
from warrenmq.cli.control.objects.parameters import as_json_value, do_clear, strict_json_text
from warrenmq.cli.control.parsing import Option

GROUP: Final = "Policies"
COLUMNS: Final = ("vhost", "name", "pattern", "apply-to", "definition", "priority")
_OPTIONS: Final = (
    Option("priority", "integer", help="the policy with the highest one applies (default: 0)"),
    Option("apply-to", help="queues, exchanges or all (default: all)"),
)


def _set(run: Run, kind: PolicyKind) -> Output:
    name, pattern, given = run.arguments
    definition = strict_json_text(given)
    if not isinstance(json.loads(definition), dict):
        raise CommandError("Error:\na policy's definition must be a JSON object")
    run.do(
        SetPolicy(
            vhost=run.vhost,
            name=name,
            pattern=pattern,
            definition=definition,
            priority=run.number("priority"),
            apply_to=run.text("apply-to", "all"),
            kind=kind,
        )
    )
    return None


def _clear(run: Run, kind: PolicyKind) -> Output:
    return do_clear(run, ClearPolicy(vhost=run.vhost, name=run[0], kind=kind))


def _list(run: Run, kind: PolicyKind) -> Output:
    request = List(
        what="policies" if kind == "policy" else "operator_policies",
        columns=list(COLUMNS),
        vhost=run.vhost,
    )
    rows = [[*row[:4], as_json_value(row[4]), row[5]] for row in run.ask(request, Rows).rows]
    # RabbitMQ's order: by priority, the lowest first.
    return Table(COLUMNS, sorted(rows, key=lambda row: row[5]))


def _commands(kind: PolicyKind, shown: str, plural: str, about: str) -> tuple[Command, ...]:
    return (
        Command(
            f"clear_{kind}", GROUP, f"Deletes {about}", lambda run: _clear(run, kind),
            "<name>", (1, 1), takes_vhost=True,
            banner=lambda run: (
                f'Clearing {kind.replace("_", " ")} "{run[0]}" on vhost "{run.vhost}" ...'
            ),
        ),
        Command(
            f"list_{kind.removesuffix('y')}ies", GROUP, f"Lists {plural} of a vhost",
            lambda run: _list(run, kind), takes_vhost=True, is_table=True, takes_timeout=True,
            banner=lambda run: f'Listing {plural} for vhost "{run.vhost}" ...',
        ),
        Command(
            f"set_{kind}", GROUP, f"Sets {about}", lambda run: _set(run, kind),
            "<name> <pattern> <definition>", (3, 3), options=_OPTIONS, takes_vhost=True,
            banner=lambda run: (
                f'Setting {shown} "{run[0]}" for pattern "{run[1]}" to "{run[2]}" '
                f'with priority "{run.number("priority")}" for vhost "{run.vhost}" ...'
            ),
        ),
    )  # fmt: skip


COMMANDS: Final = (
    *_commands("policy", "policy", "policies", "a policy for queues or exchanges"),
    *_commands(
        "operator_policy",
        "operator policy override",
        "operator policy overrides",
        "a policy that bounds what policies may set",
    ),
)
