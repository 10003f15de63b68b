"""Which modules are compiled, and whether the ones in use are.

The one list of compiled packages: `setup.py` compiles them, `warren --version` reports on them, the tests insist on the
build they were asked to test. A module of these packages stays interpreted when it is a package's `__init__` (nothing
runs there) or lies in `INTERPRETED`: the shells that wait for disks gain nothing from C. `COMPILED_MODULES` are single
ones of other packages.

This module imports nothing of warren: `setup.py` executes it on its own.
"""

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

COMPILED_PACKAGES: Final = ("broker", "perf", "queues", "routing", "store", "wire")
INTERPRETED: Final = (
    "store/disk/",
    "store/file_system.py",
    "broker/definitions/metadata_sqlite.py",
)
# Of packages whose other modules are interpreted.
COMPILED_MODULES: Final = ("tables/rabbitmq/external_term.py", "tables/scan.py")


def compiled_module_paths(root: Path) -> list[str]:
    """Every module below `root` (the package directory of warren) that a compiled build compiles, sorted."""
    found = [str(root / name) for name in COMPILED_MODULES]
    for package in COMPILED_PACKAGES:
        for path in (root / package).rglob("*.py"):
            relative = path.relative_to(root).as_posix()
            if not path.name.startswith("__") and not relative.startswith(INTERPRETED):
                found.append(str(path))
    return sorted(found)


def interpreted_hot_modules() -> list[str]:
    """Those of `compiled_module_paths` of this installation that Python would load from source.

    An extension module beside its source wins the import, so looking for one tells, and nothing need be imported.
    """
    root = Path(__file__).parent
    return [path for path in compiled_module_paths(root) if not _has_extension_module(Path(path))]


def _has_extension_module(path: Path) -> bool:
    return any(path.with_name(path.stem + suffix).exists() for suffix in EXTENSION_SUFFIXES)


def build_name() -> str:
    """`compiled` or `interpreted`, as `warren --version` shows it; a mixture is called by its number."""
    interpreted, total = (
        len(interpreted_hot_modules()),
        len(compiled_module_paths(Path(__file__).parent)),
    )
    if interpreted == 0:
        return "compiled"
    if interpreted == total:
        return "interpreted"
    return f"compiled but for {interpreted} of {total} modules"
