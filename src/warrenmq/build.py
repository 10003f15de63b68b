"""The modules that mypyc compiles, and a check whether this installation has them compiled.

This module is the one list of compiled packages: `setup.py` compiles them, `warren --version`
reports on them, and the tests insist on the build they were asked to test. Two kinds of modules in
these packages stay interpreted: a package's `__init__` (nothing runs there), and the paths in
`INTERPRETED`, shells that wait for disks and gain nothing from C. `COMPILED_MODULES` names single
modules of other packages.

This module imports nothing of warren, because `setup.py` executes it on its own.
"""

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

COMPILED_PACKAGES: Final = ("broker", "perf", "queues", "routing", "store", "vocabulary", "wire")
INTERPRETED: Final = (
    "store/disk/",
    "store/file_system.py",
    "broker/definitions/kinds.py",
    "broker/definitions/metadata_schema.py",
    "broker/definitions/metadata_sqlite.py",
    "broker/definitions/metadata_statements.py",
)
# Compiled modules in packages whose other modules stay interpreted.
COMPILED_MODULES: Final = (
    "admin/changes/node_walk.py",
    "admin/changes/tick.py",
    "admin/changes/walk.py",
    "admin/changes/walks.py",
    "cluster/links/frames.py",
    "cluster/links/link.py",
    "cluster/remote/link_consumer.py",
    "cluster/remote/link_events.py",
    "cluster/remote/queue_calls.py",
    "cluster/remote/remote_clients.py",
    "cluster/remote/used_queues.py",
    "tables/rabbitmq/external_term.py",
    "tables/scan.py",
)


def compiled_module_paths(root: Path) -> list[str]:
    """Sorted paths of the modules below `root`, the package directory, that a build compiles."""
    found = [str(root / name) for name in COMPILED_MODULES]
    for package in COMPILED_PACKAGES:
        for path in (root / package).rglob("*.py"):
            relative = path.relative_to(root).as_posix()
            if not path.name.startswith("__") and not relative.startswith(INTERPRETED):
                found.append(str(path))
    return sorted(found)


def interpreted_hot_modules() -> list[str]:
    """Paths of this installation's `compiled_module_paths` that Python would load from source.

    Imports nothing: Python prefers an extension module to the source beside it, so its existence
    decides.
    """
    root = Path(__file__).parent
    return [path for path in compiled_module_paths(root) if not _has_extension_module(Path(path))]


def _has_extension_module(path: Path) -> bool:
    return any(path.with_name(path.stem + suffix).exists() for suffix in EXTENSION_SUFFIXES)


def build_name() -> str:
    """The build as `warren --version` shows it: compiled, interpreted, or a text with counts."""
    interpreted, total = (
        len(interpreted_hot_modules()),
        len(compiled_module_paths(Path(__file__).parent)),
    )
    if interpreted == 0:
        return "compiled"
    if interpreted == total:
        return "interpreted"
    return f"compiled but for {interpreted} of {total} modules"
