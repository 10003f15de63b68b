"""ARCHITECTURE.md is short and true, and docs/map.md is what the sources say of themselves."""

import ast
import re
from functools import cache
from pathlib import Path

from tests.store.test_storage_facts import is_there
from tools.generate_map import ROOT, TARGET, first_sentence, generate

SOURCES = ROOT / "src" / "warrenmq"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
# Pages that name files of the sources by their paths below src/warrenmq.
PAGES = (ARCHITECTURE, ROOT / "docs" / "walkthroughs.md")
LINES_MAX = 320
COLUMNS_MAX = 100


@cache
def files_of_classes() -> dict[str, list[Path]]:
    """Where each class of the sources stands."""
    found: dict[str, list[Path]] = {}
    for path in SOURCES.rglob("*.py"):
        for name in re.findall(r"^class (\w+)", path.read_text("utf-8"), re.MULTILINE):
            found.setdefault(name, []).append(path)
    return found


def has_member(name: str, member: str) -> bool:
    """Whether the class `name`, or one that it extends, has a function or attribute `member`."""
    for path in files_of_classes().get(name, []):
        for node in ast.parse(path.read_text("utf-8")).body:
            if not isinstance(node, ast.ClassDef) or node.name != name:
                continue
            source = ast.unparse(node)
            if re.search(rf"def {member}\b|\bself\.{member}\b", source):
                return True
            if any(has_member(ast.unparse(base), member) for base in node.bases):
                return True
    return False


def paths_in(page: Path) -> list[str]:
    """The paths that a page names, without the symbol behind `::`."""
    return re.findall(r"`([a-z_0-9]+/[a-z_0-9/]*(?:\.[a-z]+)?)(?:::\w+)?`", page.read_text("utf-8"))


def test_the_page_is_short_and_narrow() -> None:
    lines = ARCHITECTURE.read_text("utf-8").splitlines()
    assert len(lines) <= LINES_MAX
    assert [line for line in lines if len(line) > COLUMNS_MAX and " " in line.strip()] == []


def test_named_paths_exist() -> None:
    missing = {
        f"{page.name}: {path}"
        for page in PAGES
        for path in paths_in(page)
        if not (SOURCES / path).exists() and not (ROOT / path).exists()
    }
    assert missing == set()


def test_named_members_of_classes_exist() -> None:
    missing = {
        f"{page.name}: {name}.{member}"
        for page in PAGES
        for name, member in re.findall(r"`([A-Z]\w+)\.(\w+)`", page.read_text("utf-8"))
        if not has_member(name, member)
    }
    assert missing == set()


def test_each_invariant_names_what_fails_without_it() -> None:
    text = ARCHITECTURE.read_text("utf-8")
    invariants = re.findall(r"^\* Invariant: .*?(?=^\* |^\n|\Z)", text, re.MULTILINE | re.DOTALL)
    assert len(invariants) >= 20
    for invariant in invariants:
        pointers = re.findall(r"`tests/([\w/]+\.py::\w+)`", invariant)
        assert pointers or "make lint" in invariant, invariant
        assert all(is_there(pointer) for pointer in pointers), invariant


def test_the_map_is_what_the_sources_say() -> None:
    """The map is out of date: run `make docs`."""
    assert TARGET.read_text("utf-8") == generate()


def test_a_sentence_ends_where_the_next_begins() -> None:
    assert first_sentence("The codec of AMQP 0-9-1, e.g. frames. It is fast.") == (
        "The codec of AMQP 0-9-1, e.g. frames."
    )
    assert first_sentence("Values over two\nlines, without end\n\nMore.") == (
        "Values over two lines, without end."
    )
    assert first_sentence("The states:\n\n* one") == "The states."
