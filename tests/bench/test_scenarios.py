"""Small runs of the scenarios against warren give the figures that they promise."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TIMEOUT_S = 400

pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT_S + 60)]


def figures(directory: Path, *arguments: str) -> dict[str, float]:
    """Run `python -m bench` with `arguments` on warren alone; return its figures by name."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "bench",
            *arguments,
            "--broker",
            "warren",
            "--json",
            "--directory",
            str(directory),
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["scenario"] == arguments[0]
    # The scenario has deleted the broker's data.
    assert list(directory.iterdir()) == []
    return {figure["name"]: figure["value"] for figure in found["figures"]}


def test_backlog(tmp_path: Path) -> None:
    found = figures(tmp_path, "backlog", "--messages", "3000", "--memory-limit", "200")
    for mode in ("lazy", "default"):
        assert found[f"{mode}: messages"] == 3000
        assert found[f"{mode}: RSS at the end"] > 10
        assert found[f"{mode}: publishing, last tenth"] > 0
        assert found[f"{mode}: draining"] > 0
        times = [
            found[f"{mode}: after SIGKILL: {what}"]
            for what in ("client connected", "first message")
        ]
        assert 0 < times[0] < times[1]


def test_disk(tmp_path: Path) -> None:
    found = figures(tmp_path, "disk", "--rounds", "1", "--messages", "2000", "--seconds", "0.5")
    share = found["published into a lazy queue, 1 KiB"] / found["disk alone at the same batch"]
    assert found["published, of the disk alone"] == pytest.approx(100 * share)
    trip, sync = (
        found["confirm round trip, 12 B"],
        found["disk alone: one record written and synced"],
    )
    assert sync > 0 and trip > 0
    assert found["round trip, above the disk alone"] == pytest.approx(trip - sync)


def test_many_queues(tmp_path: Path) -> None:
    found = figures(tmp_path, "many-queues", "--queues", "50", "--messages", "4")
    assert 0 < found["after SIGKILL: client connected"] < found["after SIGKILL: all queues counted"]


def test_latency(tmp_path: Path) -> None:
    """A rate that the broker does not keep has no figures."""
    rates = ("--rate", "200", "--rate", "100000000")
    found = figures(tmp_path, "latency", *rates, "--rounds", "1", "--seconds", "1")
    assert 0 < found["200 msg/s: median"] <= found["200 msg/s: p99"]
    assert not [name for name in found if name.startswith("100,000,000")]


def test_interference(tmp_path: Path) -> None:
    # No message may expire during the filling, which takes a second on a machine without other
    # load.
    sizes = (
        "--messages",
        "2000",
        "--large-messages",
        "500",
        "--rate",
        "200",
        "--seconds",
        "2",
        "--ttl",
        "20",
    )
    chosen = [word for name in ("purged", "expired", "compacted") for word in ("--only", name)]
    found = figures(tmp_path, "interference", *sizes, *chosen)
    assert {"idle", "purged", "expired", "compacted"} == {
        name.removesuffix(": p99") for name in found if name.endswith(": p99")
    }
    assert found["purged: watched for"] >= 5
