"""docs/mirroring.md has each number of mirroring once, with tests that exist."""

import re

import pytest

from tests.store.test_storage_facts import ROOT, is_there

PAGE = (ROOT / "docs" / "mirroring.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| ([MFI]\d+) \|.*\| ([^|]+) \|$", PAGE, re.MULTILINE))


def test_each_number_is_one_row() -> None:
    counted = {"M": range(1, 65), "F": range(1, 23), "I": range(1, 8)}
    known = [f"{letter}{number}" for letter, numbers in counted.items() for number in numbers]
    assert sorted(re.findall(r"^\| ([MFI]\d+) \|", PAGE, re.MULTILINE)) == sorted(known)
    assert sorted(ROWS) == sorted(known)


@pytest.mark.parametrize("number", list(ROWS))
def test_its_tests_exist(number: str) -> None:
    evidence = ROWS[number]
    if evidence.startswith("none: "):
        return
    pointers = re.findall(r"`([\w/]+\.py::\w+)`", evidence)
    assert pointers, "name a test that fails when the fact is broken"
    assert [pointer for pointer in pointers if not is_there(pointer)] == []
