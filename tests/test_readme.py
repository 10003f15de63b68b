"""The examples of README.md run unchanged, but for the port."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.brokers.fixtures import broker_uri
from warrenmq.cli.control.main import main

__all__ = ["broker_uri"]

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
JOBS = re.findall(r"^    \.venv/bin/warren (pipeline .*)$", README.read_text(), re.MULTILINE)
CONTROL = re.findall(r"^    \.venv/bin/warrenctl (.*)$", README.read_text(), re.MULTILINE)
# Some examples start a JVM, and the machine may be busy.
TIMEOUT_S = 240

pytestmark = pytest.mark.timeout(2 * TIMEOUT_S + 60)


def environment(**more: str) -> dict[str, str]:
    """Return the environment for a program in another directory: PYTHONPATH is made absolute."""
    found = {**os.environ, **more}
    if paths := found.get("PYTHONPATH"):
        found["PYTHONPATH"] = os.pathsep.join(
            os.path.abspath(path) for path in paths.split(os.pathsep)
        )
    return found


def run_block(source: str, uri: str, directory: Path) -> str:
    port = urlsplit(uri).port
    source = source.replace(
        'ConnectionParameters("localhost")', f'ConnectionParameters("127.0.0.1", {port})'
    )
    source = source.replace("guest@localhost", f"guest@127.0.0.1:{port}")
    script = directory / "block.py"
    script.write_text(source)
    result = subprocess.run(
        [sys.executable, str(script)],
        cwd=directory,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout


def test_the_first_tour_publishes_and_fetches(broker_uri: str, tmp_path: Path) -> None:
    output = run_block(BLOCKS[0], broker_uri, tmp_path)
    assert "confirmed: it is on disk" in output
    assert "b'hello'" in output


@pytest.mark.spark
@pytest.mark.slow
def test_the_spark_tour_shows_the_message(broker_uri: str, tmp_path: Path) -> None:
    # The README asks for a few more messages, which no consumer has fetched.
    publish_only = BLOCKS[0].partition("method, properties, body")[0] + "connection.close()\n"
    run_block(publish_only, broker_uri, tmp_path)
    output = run_block(BLOCKS[1], broker_uri, tmp_path)
    assert "tour" in output
    assert "68 65 6C 6C 6F" in output


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout((2 + len(JOBS)) * TIMEOUT_S + 60)
def test_the_jobs_of_the_tour(broker_uri: str, tmp_path: Path) -> None:
    """The tour's jobs, in order, move all messages: archive, replay, backup and report agree."""
    publish_only = BLOCKS[0].partition("method, properties, body")[0] + "connection.close()\n"
    for _ in range(2):
        run_block(publish_only, broker_uri, tmp_path)
    results = {}
    for command in JOBS:
        line = f"{shlex.quote(sys.executable)} -m warrenmq {command} --json"
        done = subprocess.run(
            line,
            shell=True,
            cwd=tmp_path,
            env=environment(WARREN_URI=broker_uri),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, (line, done.stderr[-4000:])
        results[command.split()[1]] = json.loads(done.stdout)
    assert list(results) == ["archive", "replay", "backup", "report"]
    assert results["archive"]["messages"] == results["replay"]["published"] == 2
    assert results["backup"]["messages"] == 2
    assert "tour" in (tmp_path / "report.html").read_text()


def test_the_control_commands_of_the_tour(
    broker_uri: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each command succeeds, and the export has what the commands before it have made."""
    monkeypatch.setenv("WARREN_URI", broker_uri)
    monkeypatch.chdir(tmp_path)
    assert len(CONTROL) == 6
    for command in CONTROL:
        assert main(shlex.split(command)) == 0, (command, capsys.readouterr())
    exported = json.loads((tmp_path / "definitions.json").read_bytes())
    assert "alice" in [user["name"] for user in exported["users"]]
    assert [policy["name"] for policy in exported["policies"]] == ["short"]
