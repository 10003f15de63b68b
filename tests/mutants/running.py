"""Runs tests on a copy of the sources, interpreted."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
# pytest's exit code for failed tests. With other codes nothing was tested.
TESTS_FAILED = 1


def copy_sources(directory: Path) -> Path:
    """Copy the sources below `directory`; returns the entry for PYTHONPATH."""
    sources = directory / "src"
    shutil.copytree(ROOT / "src", sources, ignore=shutil.ignore_patterns("__pycache__"))
    return sources


def run_tests(sources: Path, tests: list[str], timeout_s: int) -> tuple[int, str]:
    """Run `tests` (arguments of pytest) on the package in `sources`.
    Returns pytest's exit code and last line. Tests that take longer than `timeout_s` seconds count
    as failed.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    # Hypothesis must not retry the failed examples of one mutant with the next: they might fail
    # without it.
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
