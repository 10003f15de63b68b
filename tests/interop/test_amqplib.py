"""amqplib under Node.js, unchanged; the scenario is in `node/scenario.js`.

The library is installed once below build/, from the lock file beside the scenario.
"""

import filecmp
import json
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.interop

SCENARIO = Path(__file__).parent / "node"
INSTALLED = Path(__file__).parent.parent.parent / "build" / "interop-node"
LOCK = "package-lock.json"


@pytest.fixture(scope="module")
def node_directory() -> Path:
    """A directory whose node_modules hold amqplib."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    lock = INSTALLED / "node_modules" / LOCK
    if lock.is_file() and filecmp.cmp(lock, SCENARIO / LOCK, shallow=False):
        return INSTALLED
    INSTALLED.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", LOCK):
        shutil.copy(SCENARIO / name, INSTALLED / name)
    command = [
        "npm",
        "ci",
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        "--prefer-offline",
        "--loglevel=error",
    ]
    done = subprocess.run(command, cwd=INSTALLED, capture_output=True, text=True, timeout=100)
    if done.returncode != 0:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        pytest.skip(f"npm could not install amqplib: {last}")
    # The mark of a whole installation.
    shutil.copy(SCENARIO / LOCK, lock)
    return INSTALLED


def test_amqplib(broker_uri: str, name: str, node_directory: Path) -> None:
    done = subprocess.run(
        ["node", str(SCENARIO / "scenario.js"), broker_uri, name, str(node_directory)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    assert steps == ["confirms", "consume", "content", "topology", "errors", "cancelled", "done"]
