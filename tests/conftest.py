"""Which build is tested: `--build=compiled` and `--build=interpreted` insist on one, and the header names it.

Without the option whatever `warren` Python finds is tested; the header says which.
"""

from pathlib import Path

import pytest

import warren
from warren.build import build_name, compiled_module_names, interpreted_module_names

SOURCES = Path(__file__).parent.parent / "src"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--build",
        choices=("compiled", "interpreted"),
        help="fail unless this build of warren is the one loaded",
    )


def pytest_configure(config: pytest.Config) -> None:
    wanted = config.getoption("--build")
    interpreted = interpreted_module_names()
    if wanted == "compiled" and interpreted:
        raise pytest.UsageError(f"these modules should be compiled and are not: {' '.join(interpreted)}")
    if wanted == "interpreted":
        compiled = sorted(set(compiled_module_names()) - set(interpreted))
        if compiled:
            raise pytest.UsageError(
                f"these modules should be interpreted and are compiled: {' '.join(compiled)}"
            )
        if not Path(warren.__file__).is_relative_to(SOURCES):
            raise pytest.UsageError(f"warren should come from {SOURCES}, not from {warren.__file__}")


def pytest_report_header() -> str:
    return (
        f"warren: {build_name()} ({len(compiled_module_names())} hot modules), {Path(warren.__file__).parent}"
    )
