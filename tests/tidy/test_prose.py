"""Rules for all prose: width, words with one meaning, source numbers and links that resolve."""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
COLUMNS_MAX = 100
# Generated: the words of its comments come from the table spec/amqp0-9-1.toml.
GENERATED = "src/warrenmq/wire/methods.py"

# Names with two meanings or none, and the words to use instead (docs/glossary.md).
REPLACED = {
    "BackupHold": "BackupPins",
    "BackupOwner": "BackupListener",
    "EntryLog": "EntryLedger",
    "INFINITE": "UNLIMITED, FOREVER_S",
    "OperationSink": "OperationFeed",
    "QueueLog": "QueueLedger",
    "Seams": "NodeParts",
    "StoreOwner": "StoreHost",
    "VhostHost": "VhostQueueHost",
    "VhostStoreOwner": "VhostStoreHost",
    "go_on": "resume, start_next, or what comes next",
    "held": "reserved, deferred, pinned or paused",
    "hold": "reserve, defer or pin",
    "look": "what is found out",
}
# The admin protocol and what prints it have a field of that name.
KEEPS_HELD = tuple(
    f"src/warrenmq/{name}.py"
    for name in (
        "admin/protocol/figures",
        "admin/protocol/readers",
        "admin/protocol/requests",
        "admin/readers/all_readers",
        "admin/status",
        "cli/group",
        "management/prometheus/readers",
        "spark/streams/group_session",
    )
)
# A source number; SOURCE_PAGES lists them. What begins with $ is a date in the configuration.
SOURCE = re.compile(r"(?<!\$)\b([SWGTCPMFI][1-9][0-9]?)\b")
SOURCE_PAGES = ("docs/guarantees.md", "docs/mirroring.md", "docs/protocol-notes.md")
# A link to a file, with or without an anchor.
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s]+)\)")


@cache
def tracked(*suffixes: str) -> tuple[Path, ...]:
    """Files with one of these suffixes that git tracks or would add."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    paths = [ROOT / name for name in listing.stdout.split("\0") if name.endswith(suffixes)]
    return tuple(path for path in paths if path.exists())


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def sources() -> list[Path]:
    return [path for path in tracked(".py") if name_of(path) != GENERATED]


@cache
def prose_of(path: Path) -> tuple[tuple[int, str], ...]:
    """The lines of comments and docstrings of a module, with their numbers."""
    text = path.read_text("utf-8")
    lines = text.splitlines()
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            found.add(token.start[0])
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node) is not None:
            docstring = node.body[0]
            assert docstring.end_lineno is not None
            found.update(range(docstring.lineno, docstring.end_lineno + 1))
    return tuple((number, lines[number - 1]) for number in sorted(found))


def page_prose(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a page that are neither code nor rows of a table."""
    is_code = False
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code and not line.startswith(("    ", "|")):
            yield number, line


def test_prose_ends_at_column_100() -> None:
    wide = [
        f"{name_of(path)}:{number}"
        for path in sources()
        for number, line in prose_of(path)
        if len(line) > COLUMNS_MAX and "# noqa" not in line and "# type:" not in line
    ]
    for path in tracked(".md"):
        for number, line in page_prose(path):
            # A line without a space to break at is a link or a path.
            if len(line) > COLUMNS_MAX and " " in line.strip():
                wide.append(f"{name_of(path)}:{number}")
    assert wide == []


def test_replaced_names_do_not_come_back() -> None:
    """Replaced names do not occur in src/; tests may use them where they read best."""
    found = []
    for path in sources():
        if not name_of(path).startswith(("src/", "simulator/")):
            continue
        for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
            if token.string == "held" and name_of(path) in KEEPS_HELD:
                continue
            if token.type == tokenize.NAME and token.string in REPLACED:
                replacement = REPLACED[token.string]
                found.append(f"{name_of(path)}:{token.start[0]}: {token.string}: say {replacement}")
    assert found == []


def test_every_source_number_leads_to_a_page() -> None:
    known = {
        number
        for page in SOURCE_PAGES
        for number in re.findall(r"^\| ([A-Z][0-9]+) \|", (ROOT / page).read_text(), re.MULTILINE)
    }
    assert len(known) > 200
    unknown = []
    for path in sources():
        for number, line in prose_of(path):
            for source in SOURCE.findall(line):
                if source not in known:
                    unknown.append(f"{name_of(path)}:{number}: {source}")
    for path in tracked(".md"):
        for number, line in page_prose(path):
            for source in SOURCE.findall(line):
                if source not in known:
                    unknown.append(f"{name_of(path)}:{number}: {source}")
    assert unknown == []


def test_links_of_pages_lead_somewhere() -> None:
    dead = []
    for path in tracked(".md"):
        for number, line in page_prose(path):
            for link in LINK.findall(line):
                target = link.partition("#")[0]
                if target and not (path.parent / target).exists():
                    dead.append(f"{name_of(path)}:{number}: {link}")
    assert dead == []


def test_pages_that_code_names_are_there() -> None:
    missing = [
        f"{name_of(path)}:{number}: {page}"
        for path in [*sources(), *tracked(".md")]
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        for page in re.findall(r"(?<![\w/.])docs/[\w/-]+\.md", line)
        if not (ROOT / page).exists()
    ]
    assert missing == []


def test_the_site_builds_and_each_page_is_in_its_menu(tmp_path: Path) -> None:
    """mkdocs builds the site, the tour on its first page, and fails on a dead link or anchor."""
    pytest.importorskip("mkdocs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "tour.parquet" in (tmp_path / "index.html").read_text("utf-8")
