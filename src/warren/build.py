"""Which modules are compiled, and whether the ones in use are.

The one list of compiled packages: `setup.py` compiles them, `warren --version` reports on them, the tests insist on the
build they were asked to test. A module of these packages stays interpreted when it is a package's `__init__` (nothing
runs there) or lies in `INTERPRETED`: the shells that wait for disks gain nothing from C.

This module imports nothing of warren: `setup.py` executes it on its own.
"""

import importlib.util
from pathlib import Path
from typing import Final

COMPILED_PACKAGES: Final = ("broker", "perf", "queues", "routing", "store", "wire")
INTERPRETED: Final = ("store/disk/", "broker/metadata_sqlite.py")


def compiled_module_paths(root: Path) -> list[str]:
    """Every module below `root` (the package directory of warren) that a compiled build compiles, sorted."""
    found = []
    for package in COMPILED_PACKAGES:
        for path in (root / package).rglob("*.py"):
            relative = path.relative_to(root).as_posix()
            if not path.name.startswith("__") and not relative.startswith(INTERPRETED):
                found.append(str(path))
    return sorted(found)


def compiled_module_names() -> list[str]:
    """The dotted names of the same modules, looked up in the package that this module belongs to."""
    root = Path(__file__).parent
    return [
        "warren." + ".".join(Path(path).relative_to(root).with_suffix("").parts)
        for path in compiled_module_paths(root)
    ]


def interpreted_module_names() -> list[str]:
    """Those of `compiled_module_names` that this process would load as Python source."""
    names = []
    for name in compiled_module_names():
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None or spec.origin.endswith(".py"):
            names.append(name)
    return names


def build_name() -> str:
    """`compiled` or `interpreted`, as `warren --version` shows it; a mixture is called by its number."""
    interpreted, total = len(interpreted_module_names()), len(compiled_module_names())
    if interpreted == 0:
        return "compiled"
    if interpreted == total:
        return "interpreted"
    return f"compiled but for {interpreted} of {total} modules"
