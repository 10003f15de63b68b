"""Each page installs warren in the one way that is true: from the index, or from the file."""

import re
from pathlib import Path

import pytest

from tools.install_commands import IS_PUBLISHED, ROOT, pages, rewrite

PAGES = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in pages()}
BY_NAME = re.compile(r"pip install [^\n`]*?'?\bwarrenmq\b(?!\[EXTRA\])")
BY_FILE = re.compile(r"\$\{WHEEL\}")


def test_pages_say_what_the_constant_says() -> None:
    """`python tools/install_commands.py` writes them."""
    stale = [name for name, text in PAGES.items() if rewrite(text, IS_PUBLISHED) != text]
    assert stale == []


@pytest.mark.parametrize("is_published", [True, False])
def test_the_constant_switches_every_command(is_published: bool) -> None:
    """Both ways there are commands of one form only, and the way back gives the same pages."""
    switched = {name: rewrite(text, is_published) for name, text in PAGES.items()}
    wanted, other = (BY_NAME, BY_FILE) if is_published else (BY_FILE, BY_NAME)
    assert sum(bool(wanted.search(text)) for text in switched.values()) >= 10
    assert [name for name, text in switched.items() if other.search(text)] == []
    assert {name: rewrite(text, IS_PUBLISHED) for name, text in switched.items()} == PAGES


def test_a_file_that_is_not_explained_on_the_page_is_linked() -> None:
    """The variable of a command that people copy is explained where the comment says."""
    explained = rewrite(Path(ROOT, "docs/operations/index.md").read_text("utf-8"), False)
    assert "## Install\n" in explained and "export WHEEL=" in explained
    bare = [
        f"{name}: {line}"
        for name, text in PAGES.items()
        if name != "docs/operations/index.md"
        for line in rewrite(text, False).splitlines()
        if line.startswith("    ") and "${WHEEL}" in line
        if not line.endswith("# WHEEL: docs/operations/index.md#install")
    ]
    assert bare == []
