"""Pages with whole files and commands: writes the files and runs the commands as a reader does.

A file is a block with a title, which is its path: ```python title="shop/totals.py". A command is
a line of an indented block, and may go on in further lines as in a shell.
"""

import os
import re
import subprocess
import sys
from pathlib import Path


def files_of(page: str) -> dict[str, str]:
    """The text of each file that a page has, by its path."""
    blocks = re.finditer(r'^```\w+ title="([^"]+)"\n(.*?)^```', page, re.MULTILINE | re.DOTALL)
    return {block[1]: block[2] for block in blocks}


def commands_of(section: str) -> str:
    """The indented lines of a section that are commands, as a script."""
    outside = re.sub(r"^```.*?^```", "", section, flags=re.MULTILINE | re.DOTALL)
    return "\n".join(re.findall(r"^    (.*\S)$", outside, re.MULTILINE))


def section_of(page: str, heading: str) -> str:
    """The text below a heading of the second level, up to the next one."""
    return page.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def write_files(page: str, directory: Path) -> None:
    """Write the files of a page below `directory`."""
    for name, text in files_of(page).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run_commands(script: str, directory: Path, timeout_s: float, **more: str) -> str:
    """Run a script in `directory` with this Python's programs; returns what it prints.

    `more` are variables of its environment. A command that fails ends the script and is an error.
    """
    programs = str(Path(sys.executable).parent)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, **more}
    environment["PATH"] = programs + os.pathsep + environment["PATH"]
    if paths := environment.get("PYTHONPATH"):
        environment["PYTHONPATH"] = os.pathsep.join(
            os.path.abspath(each) for each in paths.split(os.pathsep)
        )
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, (script, (done.stdout + done.stderr)[-6000:])
    return done.stdout + done.stderr
