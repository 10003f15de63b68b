"""Tests on a copy of the sources, interpreted."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
# pytest's exit code for failed tests; others mean that nothing was tested.
TESTS_FAILED = 1


def copy_sources(directory: Path) -> Path:
    """A copy of the sources below `directory`; returns what goes into PYTHONPATH."""
    sources = directory / "src"
    shutil.copytree(ROOT / "src", sources, ignore=shutil.ignore_patterns("__pycache__"))
    return sources


def run_tests(sources: Path, tests: list[str], timeout_s: int) -> tuple[int, str]:
    """pytest's exit code and last line, for `tests` (its arguments) with the package of `sources`. What does not end within
    `timeout_s` has failed."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    # What failed with one mutant is not to be tried again with the next: it might fail without any.
    examples = sources.parent / "examples"
    shutil.rmtree(examples, ignore_errors=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(sources),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(examples),
    }
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return TESTS_FAILED, f"no end within {timeout_s} s"
    lines = done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or [""]
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return done.returncode, (failed or lines)[-1]
