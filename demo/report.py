"""The report of the demo: the Spark table, then every claim with its numbers."""

from rich.console import Console
from rich.table import Table

from demo.checks import Checks
from demo.corpus import EMBED_BYTES
from demo.spark_records import Kind

KINDS_SHOWN = 10


def show_kinds(console: Console, queue: str, kinds: list[Kind]) -> None:
    """Print the messages of a queue by file extension, largest total first."""
    table = Table(
        title=f"Queue {queue}, read by Spark as a table", title_justify="left", title_style="bold"
    )
    table.add_column("extension")
    for heading in (
        "messages",
        "bytes",
        f"below {EMBED_BYTES} B",
        f"from {EMBED_BYTES} B",
        "largest",
    ):
        table.add_column(heading, justify="right")
    shown = kinds[:KINDS_SHOWN]
    rest = kinds[KINDS_SHOWN:]
    for kind in shown:
        _add(table, kind.routing_key, [kind])
    if rest:
        _add(table, f"{len(rest)} others", rest)
    table.add_section()
    _add(table, "all", kinds)
    console.print(table)


def show_checks(
    console: Console, checks: Checks, elapsed_s: float, spark_missing: str | None
) -> None:
    """Print every check with its outcome, the reason for missing Spark parts, and the result."""
    table = Table.grid(padding=(0, 1))
    for check in checks.made:
        mark = "[green]✓[/green]" if check.is_passed else "[red]✗[/red]"
        table.add_row(mark, check.text.replace("[", r"\["))
    console.print("What was proven", style="bold")
    console.print(table)
    if spark_missing is not None:
        console.print(
            f"Left out, the Spark parts: {spark_missing}",
            style="yellow",
            markup=False,
            soft_wrap=True,
        )
    if checks.all_passed:
        console.print(
            f"All {len(checks.made)} checks passed in {elapsed_s:.0f} s.", style="bold green"
        )
    else:
        console.print(
            f"{len(checks.failed)} of {len(checks.made)} checks FAILED.", style="bold red"
        )


def megabytes(count: int) -> str:
    """Format a number of bytes as megabytes with one decimal."""
    return f"{count / 1e6:,.1f} MB"


def _add(table: Table, name: str, kinds: list[Kind]) -> None:
    table.add_row(
        name,
        f"{sum(kind.count for kind in kinds):,}",
        f"{sum(kind.bytes for kind in kinds):,}",
        f"{sum(kind.small for kind in kinds):,}",
        f"{sum(kind.large for kind in kinds):,}",
        f"{max((kind.largest for kind in kinds), default=0):,}",
    )
