"""`warren service`: install the node as a service of systemd, and show what is installed.

Exit status: 0; 1 when `status` finds that something is missing, differs or does not run; 2 with one
line on standard error when nothing can be installed or told.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

from warrenmq import __version__
from warrenmq.cli.output import AsJson, fail, print_json
from warrenmq.cli.systemd.files import (
    DIRECTORIES,
    FILES,
    SAME,
    USER,
    InstalledFile,
    drop_ins,
    installed,
    path_of,
)

NOT_IN_ORDER_EXIT = 1
# Where distributions have the program of a package.
_PACKAGED_PROGRAM: Final = "/usr/bin/warren"
# Directories that the unit hides from the node (ProtectHome).
_HIDDEN: Final = ("/home", "/root", "/run/user")
# Exists where systemd is the service manager (sd_booted(3)).
_BOOTED: Final = Path("/run/systemd/system")
# Properties of the unit that `status` shows, by systemd's names.
_PROPERTIES: Final = (
    "LoadState",
    "ActiveState",
    "SubState",
    "UnitFileState",
    "MainPID",
    "StatusText",
    "NRestarts",
    "NeedDaemonReload",
)

service = typer.Typer(
    help="The node as a service of systemd (docs/operations/service.md).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Root = Annotated[
    Path | None,
    typer.Option(
        "--root",
        metavar="DIR",
        help="A directory in place of /, as a package or an image is built from. Runs nothing.",
    ),
]


@service.command("install")
def install_command(
    root: Root = None,
    program: Annotated[
        Path | None,
        typer.Option(
            "--program",
            metavar="PATH",
            help="The warren command that the unit runs (default: this one; /usr/bin/warren with --root).",
        ),
    ] = None,
    only_print: Annotated[
        bool, typer.Option("--print", help="Print the files instead of writing them.")
    ] = False,
) -> None:
    """Install unit, system user and directories. Starts nothing."""
    command = _program(program, root)
    if only_print:
        for each in FILES:
            print(f"# {path_of(each, root)}\n{each.text(command)}")
        return
    if root is None:
        _check_machine()
    try:
        for each in FILES:
            path = path_of(each, root)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(each.text(command), encoding="utf-8")
            path.chmod(0o644)
            print(f"installed {path}")
    except OSError as error:
        _fail_with(error)
    if root is None:
        _run("systemd-sysusers", str(path_of(USER, root)))
        _run("systemd-tmpfiles", "--create", str(path_of(DIRECTORIES, root)))
        _run("systemctl", "daemon-reload")
        if _unit_properties()["ActiveState"] == "active":
            print("the node runs as it was started; to use these files: systemctl restart warren")
        else:
            print("to start the node, now and at each boot: systemctl enable --now warren")


@service.command("status")
def status_command(root: Root = None, as_json: AsJson = False) -> None:
    """Show what is installed, whether it is this release's, and whether the node runs."""
    try:
        files, program = installed(root)
        changes = drop_ins(root)
    except OSError as error:
        _fail_with(error)
    state = _unit_properties() if root is None and _BOOTED.is_dir() else None
    if as_json:
        print_json(
            {
                "release": __version__,
                "files": [
                    {"kind": each.kind, "path": str(each.path), "state": each.state}
                    for each in files
                ],
                "drop_ins": [str(path) for path in changes],
                "program": program or None,
                "service": state,
            }
        )
    else:
        _print_status(files, program, changes, state, root)
    is_running = state is not None and state["ActiveState"] == "active"
    if any(each.state != SAME for each in files) or not (is_running or root is not None):
        raise typer.Exit(NOT_IN_ORDER_EXIT)


def _print_status(
    files: list[InstalledFile],
    program: str,
    changes: list[Path],
    state: dict[str, str] | None,
    root: Path | None,
) -> None:
    rows = [(each.kind, f"{each.path}  {each.state}") for each in files]
    rows += [("drop-in", str(path)) for path in changes]
    rows.append(("program", program or "none, as there is no unit"))
    if state is not None:
        rows.append(("service", _in_words(state)))
    elif root is None:
        rows.append(("service", "not known: systemd does not run this machine"))
    width = max(len(name) for name, _text in rows)
    for name, text in rows:
        print(f"  {name.ljust(width)}  {text}")


def _in_words(state: dict[str, str]) -> str:
    """The properties of the unit in one line."""
    if state["LoadState"] != "loaded":
        return f"{state['ActiveState']} ({state['LoadState']})"
    parts = [f"{state['ActiveState']} ({state['SubState']})", state["UnitFileState"]]
    if state["MainPID"] != "0":
        parts.append(f"pid {state['MainPID']}")
    if state["NRestarts"] != "0":
        parts.append(f"restarts: {state['NRestarts']}")
    # systemd keeps the last text of a node that has ended.
    if state["MainPID"] != "0" and state["StatusText"]:
        parts.append(state["StatusText"])
    if state["NeedDaemonReload"] == "yes":
        parts.append("its files have changed: systemctl daemon-reload")
    return ", ".join(parts)


def _program(program: Path | None, root: Path | None) -> str:
    """The absolute path of the command that the unit runs. Fails if the node could not run it."""
    if program is None and root is not None:
        return _PACKAGED_PROGRAM
    path = Path(sys.executable).parent / "warren" if program is None else program
    path = path.absolute()
    if root is None and not os.access(path, os.X_OK):
        fail(f"{path} is no program: name the warren command with --program")
    if any([path.is_relative_to(place) for place in _HIDDEN]):
        fail(f"{path} is in a home directory, which the service cannot see: install warren in /opt")
    return str(path)


def _check_machine() -> None:
    if not _BOOTED.is_dir():
        fail(
            "systemd does not run this machine; --root DIR writes the files for another one, "
            "--print shows them"
        )
    if os.geteuid() != 0:
        fail("only root may install a service; --print shows what would be installed")


def _unit_properties() -> dict[str, str]:
    """The properties of the unit as systemd knows it."""
    lines = _run("systemctl", "show", "warren.service", f"--property={','.join(_PROPERTIES)}")
    found = dict(line.split("=", 1) for line in lines.splitlines() if "=" in line)
    return {name: found.get(name, "") for name in _PROPERTIES}


def _run(*command: str) -> str:
    """The output of `command`, which must succeed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        fail(f"{command[0]}: {error.strerror}")
    if done.returncode:
        reason = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
        fail(f"{' '.join(command)}: {reason[-1]}")
    return done.stdout


def _fail_with(error: OSError) -> NoReturn:
    fail(f"{error.filename}: {error.strerror}")
