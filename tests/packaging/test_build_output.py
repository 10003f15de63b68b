"""The build says on the terminal what it does, although pip shows nothing of it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.environments import CLEAN, ROOT

# pip's own output goes to a file: what the terminal shows, the build has written past pip.
PIP = (
    '"$0" -m pip wheel --no-build-isolation --no-deps --no-index --disable-pip-version-check'
    " --wheel-dir wheels . >pip.log 2>&1"
)
SPAWN = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"
BUILD = 'def compiled_module_paths(root):\n    return [str(root / "small.py")]\n'
SMALL = "def double(number: int) -> int:\n    return 2 * number\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A warren of one module, with the real set-up."""
    package = tmp_path / "src/warrenmq"
    package.mkdir(parents=True)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, tmp_path / name)
    (package / "__init__.py").write_text('__version__ = "1.0"\n')
    (package / "build.py").write_text(BUILD)
    (package / "small.py").write_text(SMALL)
    return tmp_path


def shown(project: Path, **settings: str) -> list[str]:
    """The lines that the terminal shows while pip builds the wheel of `project`."""
    done = subprocess.run(
        [sys.executable, "-c", SPAWN, "sh", "-c", PIP, sys.executable],
        cwd=project,
        env=CLEAN | settings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, (project / "pip.log").read_text()
    return [line for line in done.stdout.splitlines() if line.strip()]


def test_a_build_that_compiles_says_so_and_how_far_it_is(project: Path) -> None:
    first, *others = shown(project)
    if "no working C compiler" in first:
        pytest.skip("there is no C compiler with the Python headers")
    assert first.startswith("building warren: 1 modules become C") and "WARREN_PURE=1" in first
    assert len(others) == 4
    number = int(others[-1].split()[2])
    assert others[-1] == f"building warren: {number} of {number} C files are compiled"
    assert "building warren" not in (project / "pip.log").read_text()
    assert "-none-any" not in next((project / "wheels").iterdir()).name


def test_a_build_that_compiles_nothing_says_why(project: Path) -> None:
    lines = ["warren: interpreted build, WARREN_PURE=1"]
    assert shown(project, WARREN_PURE="1") == lines
    assert next((project / "wheels").iterdir()).name.endswith("-none-any.whl")
