"""Breaks facts one at a time, in a copy of the sources, and runs the tests that should notice.

    python -m tests.mutants [FACT]...

A fact is a row of the facts table (`tests/store/test_storage_facts.py`), such as S17. Each mutant is one line of output:
`killed` by its test, or `ALIVE`. The exit code is 1 when one lives. First of all each test has to pass on the sources as
they are. Everything runs interpreted: a mutant costs what its test costs.

    python -m tests.mutants sample [OPTION]...

Breaks the engine anywhere, by chance: see `sample.py`.
"""

import sys
import tempfile
from pathlib import Path

from tests.mutants import sample
from tests.mutants.running import TESTS_FAILED, copy_sources, run_tests
from tests.mutants.table import MUTANTS, Mutant

# A mutant may hang what it breaks.
TIMEOUT_S = 300


def try_mutant(sources: Path, mutant: Mutant) -> bool:
    """Is `mutant` noticed? `sources` is as it was afterwards."""
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
    """Run the mutants of `facts`, or all; or a sample."""
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
