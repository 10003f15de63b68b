"""Which build is tested: `--build=compiled` and `--build=interpreted` insist on one, and the header names it.

Without the option whatever `warren` Python finds is tested; the header says which.
"""

import importlib.util
from pathlib import Path

import pytest

import warren
from warren.build import build_name, compiled_module_paths

PACKAGE = Path(warren.__file__).parent
SOURCES = Path(__file__).parent.parent / "src"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--build",
        choices=("compiled", "interpreted"),
        help="fail unless this build of warren is the one loaded",
    )


def pytest_configure(config: pytest.Config) -> None:
    wanted = config.getoption("--build")
    if wanted is None:
        return
    for path in compiled_module_paths(PACKAGE):
        name = ".".join(("warren", *Path(path).relative_to(PACKAGE).with_suffix("").parts))
        spec = importlib.util.find_spec(name)
        loaded = spec.origin if spec else None
        if loaded is None or loaded.endswith(".py") != (wanted == "interpreted"):
            raise pytest.UsageError(f"{name} should be {wanted}, but would be loaded from {loaded}")
    if wanted == "interpreted" and not PACKAGE.is_relative_to(SOURCES):
        raise pytest.UsageError(f"warren should come from {SOURCES}, not from {PACKAGE}")


def pytest_report_header() -> str:
    return f"warren: {build_name()}, from {PACKAGE}"
