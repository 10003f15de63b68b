"""What `make build` makes, and new environments with nothing but that and what it depends on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LOCK = ROOT / "requirements/dev.lock"
UV = Path(sys.executable).parent / "uv"
# No test may find the package of the checkout or of the developer's environment.
CLEAN = {
    key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "MAKEFLAGS", "CI")
}


def run(*command: str | Path, cwd: Path = ROOT, environment: dict[str, str] | None = None) -> str:
    """What the command prints; it must succeed."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=CLEAN | (environment or {}),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def install(directory: Path, *requirements: str, is_copied: bool = False) -> Path:
    """A new environment in `directory` with `requirements` and nothing else; returns its folder of
    programs.

    Dependencies have the versions of the lock, so that a release of one of them cannot fail the
    test. Files are links into uv's cache, and with `is_copied` files of their own: tar fails when
    another process makes or removes such a link meanwhile."""
    run(UV, "venv", "--quiet", "--no-config", "--python", sys.executable, directory)
    run(
        UV, "pip", "install", "--quiet", "--no-config", "--system-certs",
        "--python", directory / "bin/python", "--constraint", LOCK,
        "--link-mode", "copy" if is_copied else "hardlink", *requirements,
    )  # fmt: skip
    return directory / "bin"


@pytest.fixture(scope="module")
def dist() -> Path:
    """The folder with what `make build` has made."""
    run("make", "--silent", "build")
    return ROOT / "dist"


def only(dist: Path, pattern: str) -> Path:
    (found,) = dist.glob(pattern)
    return found
