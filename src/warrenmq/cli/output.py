"""How commands answer: tables, JSON, and one line on standard error when they cannot."""

import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer

FAILED_EXIT = 2

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def print_rows(rows: Sequence[Sequence[str]], left: int) -> None:
    """A table whose `left` first columns are texts, the others numbers."""
    widths = [max([len(row[column]) for row in rows]) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  " + "  ".join(cells).rstrip())


def print_json(value: Any) -> None:
    """What --json asks for."""
    print(json.dumps(value, indent=2))


def fail(error: Exception | str, status: int = FAILED_EXIT) -> NoReturn:
    """End the command: one line on standard error, and `status`."""
    print(f"warren: {error}", file=sys.stderr)
    raise typer.Exit(status)
