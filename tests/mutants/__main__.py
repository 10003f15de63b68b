"""Breaks facts one at a time, in a copy of the sources, and runs the tests that should notice.

    python -m tests.mutants [FACT]...

A fact is a row of the facts table (`tests/store/test_storage_facts.py`), such as S17. Each mutant
is one line of output: `killed` by its test, or `ALIVE`. The exit code is 1 if a mutant lives. All
tests must pass on the unchanged sources first. Everything runs interpreted: a mutant takes the time
of its test.

    python -m tests.mutants sample [OPTION]...

Breaks the engine at random places: see `sample.py`.
"""

import sys
import tempfile
from pathlib import Path

from tests.mutants import sample
from tests.mutants.running import TESTS_FAILED, copy_sources, run_tests
from tests.mutants.table import MUTANTS, Mutant

# Seconds that a mutant may take: it may hang the code that it breaks.
TIMEOUT_S = 300


def try_mutant(sources: Path, mutant: Mutant) -> bool:
    """Run the tests of `mutant`; returns whether one fails. `sources` are restored afterwards."""
    path = sources / "warrenmq" / mutant.path
    text = path.read_text(encoding="utf-8")
    path.write_text(mutant.applied_to(text), encoding="utf-8")
    try:
        code, line = run_tests(sources, mutant.tests, TIMEOUT_S)
    finally:
        path.write_text(text, encoding="utf-8")
    is_killed = code == TESTS_FAILED
    verdict = "killed" if is_killed else "ALIVE "
    print(f"{verdict} {mutant.fact:4} {mutant.what}: {line}", flush=True)
    return is_killed


def main(facts: list[str]) -> int:
    """Run the mutants of `facts`, or all of them, or a sample."""
    if facts[:1] == ["sample"]:
        return sample.main(facts[1:])
    chosen = [mutant for mutant in MUTANTS if not facts or mutant.fact in facts]
    if not chosen:
        print(f"no mutant of {' '.join(facts)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="warren-mutants-") as directory:
        sources = copy_sources(Path(directory))
        tests = sorted({test for mutant in chosen for test in mutant.tests})
        code, line = run_tests(sources, tests, TIMEOUT_S)
        if code != 0:
            print(f"the tests fail without any mutant: {line}", file=sys.stderr)
            return 2
        alive = [mutant for mutant in chosen if not try_mutant(sources, mutant)]
    print(f"{len(chosen)} mutants, {len(alive)} alive")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
