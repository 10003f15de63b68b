"""`warren store`: checks, reports on and salvages a data directory without its node.

Exit status: 0 for success; 2 with one line on standard error after a failure; 1 when `check` finds
problems or `salvage` lost something.
"""

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from warrenmq.cli.output import fail, print_json, print_rows
from warrenmq.cli.progress import progress_bar
from warrenmq.offline.check import check_directory
from warrenmq.offline.data_directory import ToolError
from warrenmq.offline.problems import CheckResult
from warrenmq.offline.queue_copies import member_line, member_of
from warrenmq.offline.report import VhostReport, report_directory
from warrenmq.offline.salvage import SalvageResult, salvage
from warrenmq.offline.sizes import size_text, tree_bytes, writes_text

PROBLEMS_EXIT = 1

store = typer.Typer(
    help="Work on a data directory without its node: one of a stopped node, or a backup.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="A data directory, or a backup.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Result = TypeVar("Result")


@store.command()
def check(directory: Directory, as_json: AsJson = False) -> None:
    """Read everything and verify every checksum and count. Changes nothing."""
    result = _run("checking", directory, lambda on_bytes: check_directory(directory, on_bytes))
    if as_json:
        print_json(result.as_json())
    else:
        _print_check(result)
    if not result.is_clean:
        raise typer.Exit(PROBLEMS_EXIT)


@store.command("salvage")
def salvage_command(
    directory: Directory,
    target: Annotated[
        Path,
        typer.Option(
            "--to", metavar="NEW_DIR", help="The new data directory; must not exist, or be empty."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Save what is left of a damaged data directory in a new one. Only reads the damaged one."""
    result = _run("salvaging", directory, lambda on_bytes: salvage(directory, target, on_bytes))
    if as_json:
        print_json(result.as_json())
    else:
        _print_salvage(result, target)
    if result.losses:
        raise typer.Exit(PROBLEMS_EXIT)


@store.command()
def report(directory: Directory, as_json: AsJson = False) -> None:
    """Report messages per queue, bytes by location, garbage per file, sizes and ages."""
    reports = _run("reading", directory, lambda on_bytes: report_directory(directory, on_bytes))
    member = member_of(directory)
    if as_json:
        print_json({"member": member, "vhosts": [vhost.as_json() for vhost in reports]})
        return
    if member:
        print(member_line(member) + "\n")
    for vhost in reports:
        _print_report(vhost)


def _run(
    description: str, directory: Path, work: Callable[[Callable[[int], None]], Result]
) -> Result:
    try:
        with progress_bar(description, tree_bytes(directory)) as bar:
            return work(bar.advance)
    except (ToolError, OSError) as error:
        fail(error)


def _print_check(result: CheckResult) -> None:
    for problem in result.problems:
        where = f"vhost '{problem.vhost}': " if problem.vhost else ""
        count = f" ({problem.count})" if problem.count != 1 else ""
        print(f"{problem.kind}: {where}{problem.text}{count}")
    for note in result.notes:
        print(f"note: {note}")
    print(
        f"{result.queues} queues, {result.messages} messages, {result.contents} large contents; "
        f"{size_text(result.bytes_read)} read"
    )
    if result.is_clean:
        print("no problems")
    else:
        print(
            "problems: "
            + ", ".join(f"{count} {kind}" for kind, count in sorted(result.problem_counts.items()))
        )


def _print_salvage(result: SalvageResult, target: Path) -> None:
    for line in result.losses:
        print(f"lost: {line}")
    for line in result.notes:
        print(f"note: {line}")
    uncounted = (
        f", and an unknown number in {result.uncounted} other places" if result.uncounted else ""
    )
    # The levels of a priority queue have rows of their own.
    queues = len({(queue.vhost, queue.name) for queue in result.queues})
    print(
        f"{result.messages} messages of {queues} queues are in {target}; "
        f"{result.lost} are known to be lost{uncounted}"
    )


def _print_report(vhost: VhostReport) -> None:
    print(f"vhost '{vhost.name}' (id {vhost.id}){': ' + vhost.error if vhost.error else ''}")
    rows: list[tuple[str, ...]] = [("queue", "messages", "in journal", "large", "size", "oldest")]
    for queue in vhost.queues:
        oldest = datetime.datetime.fromtimestamp(queue.oldest_ms / 1000, datetime.UTC)
        rows.append(
            (
                queue.name,
                str(queue.messages),
                str(queue.journal_messages),
                str(queue.large_messages),
                size_text(queue.bytes),
                oldest.strftime("%Y-%m-%d %H:%M:%S UTC") if queue.messages else "",
            )
        )
    _print_table(rows)
    rows = [("where", "size", "live", "garbage", "files")]
    for kind, files in vhost.files().items():
        rows.append(
            (
                kind,
                size_text(sum(file.size for file in files)),
                size_text(sum(file.live for file in files)),
                size_text(sum(file.garbage for file in files)),
                str(len(files)),
            )
        )
    _print_table(rows)
    copies = [queue.copy.line(queue.name) for queue in vhost.queues if queue.copy is not None]
    if copies:
        print("\n".join(copies) + "\n")
    if vhost.published_bytes > 0:
        text = writes_text(vhost.written_bytes, vhost.published_bytes, vhost.amplification)
        print(text, "until the last checkpoint\n")
    rows = [("garbage", "of", "file")]
    files = sorted(
        [file for kind in vhost.files().values() for file in kind if file.garbage >= 4096],
        key=lambda file: -file.garbage,
    )
    for file in files[:20]:
        rows.append((size_text(file.garbage), size_text(file.size), file.path))
    if len(rows) > 1:
        _print_table(rows)
    rows = [("body up to", "messages")]
    for row in vhost.as_json()["body_sizes"]:
        if row["messages"]:
            bound = row["bytes_upto"]
            rows.append(("larger" if bound is None else size_text(bound), str(row["messages"])))
    _print_table(rows)


def _print_table(rows: list[tuple[str, ...]]) -> None:
    print_rows(rows, len(rows[0]))
    print()
