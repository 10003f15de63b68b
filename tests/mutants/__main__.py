"""Breaks facts one at a time, in a copy of the sources, and runs the tests that should notice.

    python -m tests.mutants [FACT]...

A fact is a row of the facts table (`tests/store/test_storage_facts.py`), such as S17. Each mutant is one line of output:
`killed` by its test, or `ALIVE`. The exit code is 1 when one lives. First of all each test has to pass on the sources as
they are. Everything runs interpreted: a mutant costs what its test costs.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutants.table import MUTANTS, Mutant

ROOT = Path(__file__).parent.parent.parent
# A mutant may hang what it breaks.
TIMEOUT_S = 300
# pytest's exit code for failed tests; others mean that nothing was tested.
TESTS_FAILED = 1


def run_tests(sources: Path, tests: list[str]) -> tuple[int, str]:
    """pytest's exit code and last line, for `tests` with the package of `sources`."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return TESTS_FAILED, f"no end within {TIMEOUT_S} s"
    lines = done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or [""]
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return done.returncode, (failed or lines)[-1]


def try_mutant(sources: Path, mutant: Mutant) -> bool:
    """Is `mutant` noticed? `sources` is as it was afterwards."""
    path = sources / "warren" / mutant.path
    text = path.read_text(encoding="utf-8")
    path.write_text(mutant.applied_to(text), encoding="utf-8")
    try:
        code, line = run_tests(sources, mutant.tests)
    finally:
        path.write_text(text, encoding="utf-8")
    is_killed = code == TESTS_FAILED
    verdict = "killed" if is_killed else "ALIVE "
    print(f"{verdict} {mutant.fact:4} {mutant.what}: {line}", flush=True)
    return is_killed


def main(facts: list[str]) -> int:
    """Run the mutants of `facts`, or all."""
    chosen = [mutant for mutant in MUTANTS if not facts or mutant.fact in facts]
    if not chosen:
        print(f"no mutant of {' '.join(facts)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="warren-mutants-") as directory:
        sources = Path(directory) / "src"
        shutil.copytree(ROOT / "src", sources, ignore=shutil.ignore_patterns("__pycache__"))
        tests = sorted({test for mutant in chosen for test in mutant.tests})
        code, line = run_tests(sources, tests)
        if code != 0:
            print(f"the tests fail without any mutant: {line}", file=sys.stderr)
            return 2
        alive = [mutant for mutant in chosen if not try_mutant(sources, mutant)]
    print(f"{len(chosen)} mutants, {len(alive)} alive")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
