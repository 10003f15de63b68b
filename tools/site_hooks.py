"""Hooks of mkdocs: make the pages at the top of the repository part of the site.

The site's first page has the tour of README.md in place of the link to it, so the tour is written
once, and tested once.

A link that works in the repository works on the site. The hooks rewrite links between docs/ and the
top, and every other relative link that mkdocs cannot resolve fails the build (`--strict`).
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
TOP_PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
# The line of docs/index.md that the tour replaces, and the part of README.md that is the tour.
_TOUR_LINK = re.compile(r"^\[[^]]*\]\(\.\./README\.md#try-it\)$", re.MULTILINE)
_TOUR = re.compile(r"^## Try it\n.*?(?=^## Where to go on\n)", re.MULTILINE | re.DOTALL)
# A page at the top links to a page of docs/ as docs/NAME; a page of docs/ links to one at the
# top as ../NAME.md.
_DOWN = re.compile(r"\]\(docs/")
_UP = re.compile(rf"\]\(((?:\.\./)*)\.\./({'|'.join(map(re.escape, TOP_PAGES))})")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages at the top to the site's files."""
    for name in TOP_PAGES:
        files.append(File.generated(config, name, content=(ROOT / name).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Rewrite the page's links to where their targets are on the site."""
    if page.file.src_uri in TOP_PAGES:
        return _DOWN.sub("](", markdown)
    if page.file.src_uri == "index.md":
        (tour,) = _TOUR.findall((ROOT / "README.md").read_text("utf-8"))
        markdown, found = _TOUR_LINK.subn(lambda _: _DOWN.sub("](", tour), markdown)
        assert found == 1, "docs/index.md has no line for the tour"
    return _UP.sub(r"](\1\2", markdown)
