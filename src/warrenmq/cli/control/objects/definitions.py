"""Export and import of definitions."""

import json
import sys
from pathlib import Path
from typing import Final

from warrenmq.admin.client.definitions import import_definitions
from warrenmq.admin.definitions.lenient_json import JsonError, strict_json
from warrenmq.admin.protocol import control
from warrenmq.cli.control.command import Command, Run
from warrenmq.cli.control.exits import DATA, CommandError, bad_argument
from warrenmq.cli.control.formats.output import Output, Text
from warrenmq.cli.control.parsing import Option
from warrenmq.cli.progress import progress_bar

GROUP: Final = "Definitions"
_IMPORTED: Final = "Definitions are imported."
_FORMAT: Final = Option("format", help="json, the only format", metavar="format")
_OF_VHOST: Final = Option("only-vhost", help="the definitions of this vhost alone", metavar="vhost")


def _check_format(run: Run) -> None:
    if run.text("format", "json").lower() != "json":
        raise bad_argument("Format should be json")


def _check_export(run: Run) -> None:
    directory = Path(run[0]).parent
    if run[0] != "-" and not directory.is_dir():
        raise bad_argument(f"Directory {directory} does not exist")
    _check_format(run)


def _check_import(run: Run) -> None:
    if run.arguments and run[0] != "-" and not Path(run[0]).exists():
        raise bad_argument(f"File {run[0]} does not exist")
    _check_format(run)


def _is_stream(run: Run) -> bool:
    return not run.arguments or run[0] == "-"


def _export(run: Run) -> Output:
    exported = run.ask(
        control.ExportDefinitions(vhost=run.text("only-vhost") or None), control.Exported
    ).json
    if _is_stream(run):
        return Text(exported.decode(), json.loads(exported))
    try:
        Path(run[0]).write_bytes(exported)
    except OSError as error:
        raise CommandError(f"Error:\n{run[0]}: {error.strerror}", DATA) from None
    return None


def _import(run: Run) -> Output:
    try:
        given = sys.stdin.buffer.read() if _is_stream(run) else Path(run[0]).read_bytes()
    except OSError as error:
        raise CommandError(f"Error:\n{run[0]}: {error.strerror}", DATA) from None
    try:
        strict = strict_json(given)
    except JsonError as error:
        text = f"Failed to deserialise input (format: JSON) (error: {error})"
        raise CommandError(f"Error:\n{text}", DATA) from None
    is_dry_run = run.flag("dry-run")
    request = control.ImportDefinitions(
        json=strict, vhost=run.text("only-vhost") or None, is_dry_run=is_dry_run
    )
    with progress_bar("importing", 0, unit="objects") as bar:

        def show(status: control.ImportStatus) -> None:
            bar.show(f"importing: {status.step}", status.done, status.total)

        imported = import_definitions(run.ask, request, show)
    data = {"changes": imported.changes, "left_out": imported.left_out}
    lines = imported.changes if is_dry_run else [_IMPORTED]
    lines = [*lines, *[f"left out: {line}" for line in imported.left_out]]
    return Text("\n".join(lines), data, hidden_by="" if is_dry_run else "quiet")


def _export_banner(run: Run) -> str:
    return "" if _is_stream(run) else f'Exporting definitions in JSON to a file at "{run[0]}" ...'


def _import_banner(run: Run) -> str:
    source = "standard input" if _is_stream(run) else f'a file at "{run[0]}"'
    return f"Importing definitions in JSON from {source} ..."


COMMANDS: Final = (
    Command(
        "export_definitions", GROUP, "Writes users, vhosts, queues and so on to a file as JSON",
        _export, '<file_path | "-">', (1, 1), options=(_FORMAT, _OF_VHOST),
        takes_timeout=True, banner=_export_banner, check=_check_export,
    ),
    Command(
        "import_definitions", GROUP,
        "Adds definitions from a file; --dry-run only tells what would change",
        _import, '[<file_path | "-">]', (0, 1),
        options=(_FORMAT, _OF_VHOST), takes_timeout=True, banner=_import_banner, check=_check_import,
        has_dry_run=True,
    ),
)  # fmt: skip
