"""Writes into the pages how warren is installed: from the package index, or from a file.

    python tools/install_commands.py            write the pages
    python tools/install_commands.py --check    exit 1 if a page is not as it would be written

A name that is not published may be taken by a stranger, so until then every page installs the
file. `IS_PUBLISHED` is the only thing to change when the name is published.
"""

import argparse
import re
import sys
from pathlib import Path

IS_PUBLISHED = False

ROOT = Path(__file__).resolve().parent.parent
# These tell of the past: a command in them stays as it was written.
_HISTORY = ("CHANGELOG.md", "docs/decisions/")
# A command that installs warren, in either form; an extra may follow.
_COMMAND = re.compile(
    r"pip install (?:'warrenmq(?P<a>\[[a-z]+\])'|(?P<b>warrenmq)\b(?!\[)|"
    r'"\$\{WHEEL\}(?P<c>\[[a-z]+\])?")'
)
_HINT = "    # WHEEL: docs/operations/index.md#install"
_CODE_LINE = re.compile(
    rf"^(?P<command> {{4}}\S*pip install .*?)(?:{re.escape(_HINT)})?$", re.MULTILINE
)
# Passages that differ in more than the command stand between these lines.
_PASSAGE = re.compile(r"(<!-- how to install: (\w+) -->\n).*?(<!-- end -->\n)", re.DOTALL)
_PASSAGES = {
    "readme": (
        """
To install warren into an environment of your own, make a wheel, and give it to pip with or without
the Spark extra:

    make build
    pip install "$(ls dist/*.whl)[spark]"

""",
        """
To install warren into an environment of your own, with or without the Spark extra:

    pip install 'warrenmq[spark]'

""",
    ),
    "operations": (
        """
The name `warrenmq` is not on the package index yet: anything there under this name is not warren.
Install the file. `make build` makes a wheel for the Python of your checkout; a
[release](releasing.md) has wheels for several Pythons, and one for all. These pages call the path
of yours `WHEEL`:

    make build
    export WHEEL=$(ls "$PWD"/dist/*.whl)
    pip install "${WHEEL}"
    warren --version

""",
        """
    pip install warrenmq
    warren --version

pip takes the wheel for your Python, and compiles the source distribution where there is none.

""",
    ),
}


def pages() -> list[Path]:
    """All pages that may say how warren is installed."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    return sorted(
        path for path in found if not path.relative_to(ROOT).as_posix().startswith(_HISTORY)
    )


def rewrite(text: str, is_published: bool) -> str:
    """The text of a page with each command in the form that is true."""
    text = _COMMAND.sub(lambda found: _command(found, is_published), text)
    text = _CODE_LINE.sub(lambda found: _code_line(found["command"]), text)
    return _PASSAGE.sub(lambda found: found[1] + _PASSAGES[found[2]][is_published] + found[3], text)


def _command(found: re.Match[str], is_published: bool) -> str:
    extra = found["a"] or found["c"] or ""
    if not is_published:
        return f'pip install "${{WHEEL}}{extra}"'
    return f"pip install 'warrenmq{extra}'" if extra else "pip install warrenmq"


def _code_line(command: str) -> str:
    return command + _HINT if "${WHEEL}" in command else command


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/install_commands.py")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    stale = []
    for path in pages():
        text = path.read_text("utf-8")
        wanted = rewrite(text, IS_PUBLISHED)
        if wanted != text:
            stale.append(path.relative_to(ROOT).as_posix())
            if not options.check:
                path.write_text(wanted, "utf-8")
    print("\n".join(f"{'stale' if options.check else 'written'}: {name}" for name in stale), end="")
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
