"""The examples of applications with tests pass as they are, each as its reader runs it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
# A Celery worker starts in 2 s on a machine without other load.
TIMEOUT_S = 240

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(TIMEOUT_S + 60)]


def test_the_page_of_the_outbox_shows_the_example() -> None:
    """Each block of docs/outbox.md is in the example, word by word."""
    page = (EXAMPLES.parent / "docs" / "outbox.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    example = (EXAMPLES / "outbox_shop.py").read_text("utf-8")
    assert len(blocks) == 3
    assert [block for block in blocks if block not in example] == []


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("test_*.py")))
def test_an_example(name: str, tmp_path: Path) -> None:
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-p", "warrenmq.testing.pytest_plugin",
            "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'base'}", name,
        ],
        cwd=EXAMPLES,
        env={
            **os.environ,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in paths if path),
        },
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
