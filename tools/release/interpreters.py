"""Finds the Pythons for which wheels are built, and says of each other one why it is left out."""

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

# The commands that are tried when nobody names others.
DEFAULT = ("python3.11", "python3.12", "python3.13", "python3.14")
OLDEST = (3, 11)
_PROBE = """
import json, os, platform, sys, sysconfig
header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
print(json.dumps({
    "path": sys.executable,
    "implementation": platform.python_implementation(),
    "version": list(sys.version_info[:3]),
    "has_headers": os.path.exists(header),
    "has_gil": not sysconfig.get_config_var("Py_GIL_DISABLED"),
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A CPython that can compile extension modules."""

    path: Path
    version: tuple[int, int, int]

    @property
    def tag(self) -> str:
        """The tag of wheels for it, such as cp312."""
        return f"cp{self.version[0]}{self.version[1]}"

    @property
    def name(self) -> str:
        """Its name for people."""
        return "CPython " + ".".join(map(str, self.version))


def probe(command: str) -> Interpreter | str:
    """The interpreter that `command` starts, or why no wheel can be built for it."""
    path = shutil.which(command)
    if path is None:
        return "not on this machine"
    try:
        done = subprocess.run(
            [path, "-I", "-c", _PROBE], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it does not run: {error}"
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        return f"it does not run: {lines[0] if lines else f'exit status {done.returncode}'}"
    found = json.loads(done.stdout)
    major, minor, micro = found["version"]
    if found["implementation"] != "CPython":
        return f"it is {found['implementation']}, and mypyc compiles for CPython only"
    if (major, minor) < OLDEST:
        return f"it is {major}.{minor}, and warren needs {OLDEST[0]}.{OLDEST[1]} or newer"
    if not found["has_gil"]:
        return "it is a build without the GIL, which warren is not tested on"
    if not found["has_headers"]:
        return f"it has no Python.h: install python{major}.{minor}-dev"
    return Interpreter(Path(found["path"]), (major, minor, micro))


def find(commands: list[str]) -> tuple[list[Interpreter], list[str]]:
    """One interpreter for each minor version that `commands` start, and a line for each that is
    skipped."""
    found: dict[str, Interpreter] = {}
    skipped = []
    for command in commands:
        probed = probe(command)
        if isinstance(probed, str):
            skipped.append(f"{command}: skipped, {probed}")
        elif probed.tag in found:
            skipped.append(f"{command}: skipped, {found[probed.tag].path} is {probed.tag} already")
        else:
            found[probed.tag] = probed
    return list(found.values()), skipped
