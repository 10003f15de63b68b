"""The facts about storing the messages of a queue, each with its evidence in this repository.
S: properties and behaviour of a classic queue. W: weaknesses of other brokers that this broker must
not have. G: guarantees. T: faults and situations that the tests must bring about. Comments and
docstrings in the whole repository cite these numbers.

A fact is one row, `ID | statement | evidence`, whose rest follows in indented lines. Evidence is
`module:name`, a piece of code in `src/warrenmq` (or `bench.module:name`); `path::name`, a test
below `tests`; or `argued: ` and the reason why there is none. Each fact that is not argued names a
test that fails when the fact is broken; `python -m tests.mutants` breaks many facts to verify it.
The tests here check that every named piece exists. OPEN has the facts without evidence and should
be empty.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.store.storage_facts import FACTS, OPEN

ROOT = Path(__file__).parent.parent.parent


def known_ids() -> set[str]:
    cases = [*range(1, 14), *range(20, 35), *range(40, 49), *range(50, 69), *range(70, 79)]
    counted = {"S": range(1, 84), "W": range(1, 30), "G": range(1, 14), "T": cases}
    return {f"{letter}{number}" for letter, numbers in counted.items() for number in numbers}


@cache
def rows() -> dict[str, str]:
    """The evidence of each fact."""
    joined: list[str] = []
    for line in FACTS.splitlines():
        if line.startswith(" "):
            joined[-1] += " " + line.strip()
        elif line:
            joined.append(line)
    found: dict[str, str] = {}
    for line in joined:
        fact, _says, evidence = [part.strip() for part in line.split(" | ")]
        assert fact not in found, f"{fact} stands there twice"
        found[fact] = evidence
    return found


@cache
def body_of(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text(encoding="utf-8")).body


def has_name(body: list[ast.stmt], dotted: str) -> bool:
    first, _, rest = dotted.partition(".")
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name == first:
            return not rest or has_name(node.body, rest)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == first:
            return not rest
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == first for target in targets):
            return not rest
    return False


def is_there(pointer: str) -> bool:
    if "::" in pointer:
        name, _, symbol = pointer.partition("::")
        path = ROOT / "tests" / name
    else:
        module, _, symbol = pointer.partition(":")
        root = ROOT if module.startswith("bench.") else ROOT / "src" / "warrenmq"
        path = root / (module.replace(".", "/") + ".py")
    return path.is_file() and has_name(body_of(path), symbol)


def test_no_fact_is_missing() -> None:
    assert set(rows()) | OPEN == known_ids()
    assert not set(rows()) & OPEN


@pytest.mark.parametrize("fact", list(rows()))
def test_what_is_named_exists(fact: str) -> None:
    evidence = rows()[fact]
    if evidence.startswith("argued: "):
        assert len(evidence) > 20
        return
    pointers = evidence.split()
    assert any("::" in pointer for pointer in pointers), (
        "name a test that fails when the fact is broken"
    )
    assert [pointer for pointer in pointers if not is_there(pointer)] == []
