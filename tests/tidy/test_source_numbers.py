"""docs/guarantees.md has each number once; docs/protocol-notes.md has each section that code names.

A comment names a section as "protocol 7.2".
"""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.store.test_storage_facts import known_ids

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"


def sources() -> Iterator[tuple[str, str]]:
    for folder in ("src", "tests", "bench", "demo"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def test_each_number_is_one_row() -> None:
    questions = {f"C{number}" for number in range(1, 21)}
    page = (DOCS / "guarantees.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-Z]\d+) \|", page, re.MULTILINE)
    assert sorted(rows) == sorted(known_ids() | questions)


def test_sections_that_comments_name_are_there() -> None:
    page = (DOCS / "protocol-notes.md").read_text(encoding="utf-8")
    sections = set(re.findall(r"^##+ (\d+(?:\.\d+)?)\b", page, re.MULTILINE))
    unknown = {
        f"{path}: {number}"
        for path, text in sources()
        for names in re.findall(r"\(protocol (?:section )?(\d[\d., ]*)", text)
        for number in re.findall(r"\d+(?:\.\d+)?", names)
        if number not in sections
    }
    assert unknown == set()
