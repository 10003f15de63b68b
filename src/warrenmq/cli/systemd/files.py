"""The files of the service: where they are installed, and how they differ from this release's."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

# The path of the `warren` command in the unit of this package.
_PROGRAM: Final = "@PROGRAM@"
_EXEC_START: Final = re.compile(r"^ExecStart=(\S+)", re.MULTILINE)


class ServiceFile(NamedTuple):
    """A file of the service.

    `source`: its name in this package. `place`: its path below /etc, where administrators install
    it, and below /usr/lib, where packages of distributions have it.
    """

    kind: str
    source: str
    place: str

    def text(self, program: str) -> str:
        """The contents for a node that `program`, an absolute path, runs."""
        text = files(__package__).joinpath(self.source).read_text(encoding="utf-8")
        return text.replace(_PROGRAM, program)


UNIT: Final = ServiceFile("unit", "warren.service", "systemd/system/warren.service")
USER: Final = ServiceFile("user", "warren.sysusers", "sysusers.d/warren.conf")
DIRECTORIES: Final = ServiceFile("directories", "warren.tmpfiles", "tmpfiles.d/warren.conf")
FILES: Final = (UNIT, USER, DIRECTORIES)

MISSING: Final = "missing"
SAME: Final = "as in this release"
DIFFERENT: Final = "differs from this release"


class InstalledFile(NamedTuple):
    """A file of the service on a machine; `state` is MISSING, SAME or DIFFERENT."""

    kind: str
    path: Path
    state: str


def path_of(file: ServiceFile, root: Path | None) -> Path:
    """The path that an installation writes: below /etc, or for a package below `root`."""
    return Path("/etc") / file.place if root is None else root / "usr/lib" / file.place


def installed(root: Path | None) -> tuple[list[InstalledFile], str]:
    """The files on the machine, or in `root`, and the program that the unit runs ("": no unit).

    Those of an administrator count before those of a package, as for systemd. Raises OSError.
    """
    top = Path("/") if root is None else root
    unit = _find(UNIT, top)
    program = "" if unit is None else _program_of(unit.read_text(encoding="utf-8"))
    found = []
    for each in FILES:
        path = _find(each, top)
        if path is None:
            found.append(InstalledFile(each.kind, path_of(each, root), MISSING))
            continue
        is_same = path.read_text(encoding="utf-8") == each.text(program)
        found.append(InstalledFile(each.kind, path, SAME if is_same else DIFFERENT))
    return found, program


def drop_ins(root: Path | None) -> list[Path]:
    """The drop-ins that change the unit."""
    top = Path("/") if root is None else root
    return [
        path
        for place in ("etc", "run", "usr/lib")
        for path in sorted((top / place / f"{UNIT.place}.d").glob("*.conf"))
    ]


def _find(file: ServiceFile, top: Path) -> Path | None:
    candidates = (top / "etc" / file.place, top / "usr/lib" / file.place)
    return next((path for path in candidates if path.is_file()), None)


def _program_of(unit: str) -> str:
    found = _EXEC_START.search(unit)
    return "" if found is None else found[1]
