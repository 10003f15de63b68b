"""`warren config`: check a configuration, and show what is in force and where it comes from.

Exit status: 0 for a configuration that a server accepts, 2 for one with faults.
"""

import argparse
import json
import sys
from pathlib import Path

from warrenmq.cli.server import CONFIGURATION_EXIT, add_configuration_options, flags_of
from warrenmq.server.config.effective import Row, effective
from warrenmq.server.config.load import Flags, Loaded, read_sources
from warrenmq.server.listening.tls import check_config


def main(arguments: list[str]) -> int:
    """Run `warren config` with `arguments`; returns the exit status."""
    options = _parser().parse_args(arguments)
    if options.command == "check":
        return _check(options.file)
    return _show(read_sources(flags_of(options)), options.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="warren config",
        description="Check a configuration, or show what is in force.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    check = commands.add_parser("check", help="report all faults of a configuration")
    check.add_argument(
        "file",
        type=Path,
        nargs="?",
        metavar="FILE",
        help="file or directory (default: those of the environment); the environment is checked too",
    )
    show = commands.add_parser(
        "show", help="show every key with its value and its source", allow_abbrev=False
    )
    show.add_argument(
        "--effective",
        action="store_true",
        required=True,
        help="the values that a server with these options would use",
    )
    show.add_argument("--json", action="store_true", help="one JSON array of objects")
    add_configuration_options(show)
    return parser


def _check(file: Path | None) -> int:
    loaded = read_sources(Flags(file))
    if _report(loaded):
        return CONFIGURATION_EXIT
    fault = check_config(loaded.config)
    if fault:
        print(f"warren: {fault}", file=sys.stderr)
        return CONFIGURATION_EXIT
    for warning in loaded.warnings:
        print(f"warning: {warning}")
    print("the configuration is valid")
    return 0


def _show(loaded: Loaded, as_json: bool) -> int:
    if _report(loaded):
        return CONFIGURATION_EXIT
    rows = effective(loaded)
    if as_json:
        print(json.dumps([vars(row) for row in rows], indent=2, ensure_ascii=False))
    else:
        _print_table(rows)
    return 0


def _report(loaded: Loaded) -> bool:
    """Print all faults; returns whether there are any."""
    for error in loaded.errors:
        print(f"warren: {error}", file=sys.stderr)
    return bool(loaded.errors)


def _print_table(rows: list[Row]) -> None:
    lines = [("KEY", "VALUE", "SOURCE", "CHANGE TAKES EFFECT")]
    lines += [(row.key, row.value, row.source, row.effect) for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(3)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=False)]
        print("  ".join([*cells, line[3]]).rstrip())
