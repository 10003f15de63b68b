"""`warren topology plan` and `apply`: declare what a YAML file says, or show what would change.

Exit status: 0; 1 when `plan` finds something that a declaration cannot make equal; 2 with one line
on standard error when the file is no topology, or the broker does not answer or refuses.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from warrenmq.cli.connection import Node, takes_node
from warrenmq.cli.output import AsJson, fail, print_json
from warrenmq.topology import (
    Change,
    DeclarationRefusedError,
    Finding,
    Topology,
    declare,
    plan,
)

DIFFERS_EXIT = 1

topology = typer.Typer(
    help="Topologies in YAML: exchanges, queues and bindings (docs/topology.md).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

File = Annotated[Path, typer.Argument(metavar="FILE", help="A topology in YAML.")]


@topology.command("plan")
@takes_node
def plan_command(
    file: File,
    node: Node,
    as_json: AsJson = False,
) -> None:
    """Show what the broker has of a topology, lacks, or has otherwise. Changes nothing."""
    wanted = _read(file)
    try:
        found = plan(wanted, node.uri)
    except (ValueError, ImportError, ConnectionError, DeclarationRefusedError) as error:
        fail(error)
    if as_json:
        print_json(
            {
                "vhost": node.address.vhost,
                "changes": [_change(change) for change in found.changes],
                "not_compared_because": found.not_compared_because,
            }
        )
    else:
        print(found)
    if found.of(Finding.DIFFERS):
        raise typer.Exit(DIFFERS_EXIT)


@topology.command("apply")
@takes_node
def apply_command(
    file: File,
    node: Node,
    as_json: AsJson = False,
) -> None:
    """Declare a topology. What the broker has already stays as it is."""
    wanted = _read(file)
    try:
        declared = declare(wanted, node.uri).declarations
    except (ValueError, ImportError, ConnectionError, DeclarationRefusedError) as error:
        fail(error)
    if as_json:
        print_json({"vhost": node.address.vhost, "declared": [str(each) for each in declared]})
    else:
        for each in declared:
            print(f"declared {each}")


def _read(file: Path) -> Topology:
    try:
        return Topology.from_yaml(file)
    except UnicodeDecodeError:
        fail(f"{file}: no UTF-8")
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    except (ValueError, ImportError) as error:
        fail(error)


def _change(change: Change) -> dict[str, Any]:
    return {
        "declaration": str(change.declaration),
        "finding": change.finding.value,
        "differences": [
            {"name": each.name, "old": each.old, "new": each.new} for each in change.differences
        ],
    }
