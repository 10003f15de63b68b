"""Unmodified amqplib under Node.js works; the scenario is in `node/scenario.js`."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.interop.amqplib_installation import INSTALL_TIMEOUT_S, SCENARIO, node_directory

__all__ = ["node_directory"]

pytestmark = pytest.mark.interop


# One run may wait for the installation of another.
@pytest.mark.timeout(2 * INSTALL_TIMEOUT_S + 120)
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
