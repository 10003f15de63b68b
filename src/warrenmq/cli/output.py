"""Output of commands: tables, JSON, and one line on standard error for a failure."""

import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer

FAILED_EXIT = 2

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def print_rows(rows: Sequence[Sequence[str]], left: int) -> None:
    """Print a table whose first `left` columns are texts and the others numbers."""
    widths = [max([len(row[column]) for row in rows]) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  " + "  ".join(cells).rstrip())


def print_json(value: Any) -> None:
    """Print `value` as indented JSON."""
    print(json.dumps(value, indent=2))


def fail(error: Exception | str, status: int = FAILED_EXIT) -> NoReturn:
    """End the command with one line on standard error and exit status `status`."""
    print(f"warren: {error}", file=sys.stderr)
    raise typer.Exit(status)
