"""The table of mutants fits the sources, and its tests are those of its facts.
Running all mutants takes minutes: `python -m tests.mutants`.
"""

from pathlib import Path

import pytest

from tests.mutants.table import MUTANTS, Mutant
from tests.store.test_storage_facts import is_there, rows

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "src" / "warrenmq"
MUTANTS_MIN = 30


def test_there_are_enough() -> None:
    assert len(MUTANTS) >= MUTANTS_MIN
    assert len({(mutant.path, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.fact} {mutant.what}")
def test_a_mutant_changes_the_sources(mutant: Mutant) -> None:
    """Each mutant's `old` is in the sources; after a change there, the table needs a new fault."""
    text = (PACKAGE / mutant.path).read_text(encoding="utf-8")
    assert mutant.applied_to(text) != text


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.fact} {mutant.what}")
def test_its_tests_are_there_and_one_is_named_by_its_fact(mutant: Mutant) -> None:
    tests = [test.removeprefix("tests/") for test in mutant.tests]
    named = rows()[mutant.fact].split()
    assert any(
        test in named or any(name.startswith(test + "::") for name in named) for test in tests
    )
    for test in tests:
        assert (ROOT / "tests" / test.partition("::")[0]).is_file()
        assert "::" not in test or is_there(test)
