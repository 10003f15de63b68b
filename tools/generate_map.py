"""Write docs/map.md, a table of the files of each room, from the docstrings of the sources.

    python tools/generate_map.py            write the page
    python tools/generate_map.py --check    exit 1 if the page is not what would be written

A room is a folder with modules. Its line on the page is the first sentence of its `__init__.py`, a
module's line that of the module, so a wrong line is mended in the source. Never edit the page.
"""

import argparse
import ast
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "map.md"
# The packages of the broker from the top layer down, then the simulator.
PACKAGES = (
    "testing", "cli", "management", "pipeline", "spark", "topology", "perf", "tables", "server", "offline",
    "admin", "cluster", "broker", "queues", "store", "routing", "wire", "vocabulary",
)  # fmt: skip
FOLDERS = (*(ROOT / "src" / "warrenmq" / name for name in PACKAGES), ROOT / "simulator")
# A full stop ends a sentence before a space, unless a small letter or a digit follows.
SENTENCE = re.compile(r".+?[.?](?=$|\s+[^a-z0-9\s])")
COLUMNS_MAX = 100
QUOTES = '"""'

HEADER = """\
# The map

The files of each room, top layer first. [Architecture](../ARCHITECTURE.md) says how the rooms work
together. `make docs` writes this page from the first sentence of each module
(`tools/generate_map.py`): change the module, not the page.
"""


def first_sentence(docstring: str) -> str:
    """The first sentence of a docstring, on one line; a colon before a list becomes a full stop."""
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    sentence = SENTENCE.match(paragraph)
    return sentence.group() if sentence else paragraph.rstrip(":.") + "."


def summary(module: Path) -> str:
    """What a module says of itself; ValueError if it does not begin with a docstring."""
    # A script begins with the line that names its interpreter.
    text = re.sub(r"\A#!.*\n", "", module.read_text("utf-8"))
    if not text.startswith(QUOTES):
        raise ValueError(f"{module.relative_to(ROOT)} does not begin with a docstring")
    # Only the docstring is parsed: that takes a tenth of the time for all modules.
    return first_sentence(ast.literal_eval(QUOTES + text.split(QUOTES, 2)[1] + QUOTES))


def rooms(folder: Path) -> list[Path]:
    """A package and the rooms in it, each before those inside it."""
    return sorted(path.parent for path in folder.rglob("__init__.py"))


def section(room: Path) -> list[str]:
    """The heading, the summary and the table of one room."""
    name = room.relative_to(ROOT).as_posix().removeprefix("src/warrenmq/")
    level = "##" if room in FOLDERS else "###"
    lines = ["", f"{level} {name}", "", *textwrap.wrap(summary(room / "__init__.py"), COLUMNS_MAX)]
    modules = sorted(path for path in room.glob("*.py") if path.stem != "__init__")
    if modules:
        rows = [
            f"| `{path.name}` | {summary(path).replace('|', chr(92) + '|')} |" for path in modules
        ]
        lines += ["", "| file | subject |", "|---|---|", *rows]
    return lines


def generate() -> str:
    """The whole page."""
    lines = [line for folder in FOLDERS for room in rooms(folder) for line in section(room)]
    return HEADER + "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if the page is out of date"
    )
    text = generate()
    if not parser.parse_args().check:
        TARGET.write_text(text, "utf-8")
        return 0
    if TARGET.read_text("utf-8") == text:
        return 0
    print(f"{TARGET.relative_to(ROOT)} is out of date: run make docs", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
