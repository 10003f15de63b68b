"""Jobs that are started over HTTP: run, looked at, stopped, and found again after a kill."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.http_api import HttpNode, refusal

pytestmark = pytest.mark.slow

MESSAGES = 20


@pytest.fixture(scope="module")
def api(http_node: HttpNode) -> Iterator[httpx.Client]:
    """A client of a node with a queue of messages."""
    client = http_node.client()
    for name in ("q", "again"):
        assert client.put(f"queues/%2F/{name}", json={"durable": True}).status_code == 201
    for number in range(MESSAGES):
        sent = {
            "properties": {"delivery_mode": 2},
            "routing_key": "q",
            "payload": f"m{number}",
            "payload_encoding": "string",
        }
        client.post("exchanges/%2F/amq.default/publish", json=sent)
    yield client


@pytest.fixture(scope="module")
def backup(api: httpx.Client) -> dict[str, Any]:
    """A finished run that has made the backup `backups/first`."""
    name = start(api, "backup", target="backups/first", engine="local")
    return ended(api, name)


def start(api: httpx.Client, job: str, **arguments: Any) -> str:
    """Start a job; returns the name of its run."""
    reply = api.post("warren/jobs", json={"job": job, "vhost": "/", "arguments": arguments})
    assert reply.status_code == 201, reply.text
    name: str = reply.json()["name"]
    return name


def run_of(api: httpx.Client, name: str) -> dict[str, Any]:
    """A run as the API shows it."""
    row: dict[str, Any] = api.get(f"warren/jobs/{name}").json()
    return row


def ended(api: httpx.Client, name: str) -> dict[str, Any]:
    """A run once it has ended."""
    eventually(lambda: run_of(api, name)["state"] != "running", "the run has ended")
    return run_of(api, name)


def test_a_run_is_recorded_from_its_start_to_its_result(
    http_node: HttpNode, api: httpx.Client, backup: dict[str, Any]
) -> None:
    assert (backup["state"], backup["exit_code"], backup["user"]) == ("done", 0, "guest"), backup
    assert backup["result"]["messages"] == MESSAGES
    assert backup["progress"]["done"] == backup["progress"]["total"]
    assert backup["started"] <= backup["ended"] and backup["log"]
    assert (http_node.jobs_directory / "backups/first/manifest.json").exists()
    # Neither its ticket nor what it needed meanwhile is left.
    assert list((http_node.jobs_directory / ".runs").iterdir()) == []
    recorded = [
        path.read_text() for path in (http_node.node.directory / "data/job-runs").rglob("*.*")
    ]
    assert recorded and not any(["ticket:" in text or "ticket%3A" in text for text in recorded])
    assert api.get(f"warren/jobs/{backup['name']}/report").status_code == 404
    # It is no store of a node.
    wrong = ended(api, start(api, "verify", directory="backups/first"))
    assert (wrong["state"], wrong["exit_code"]) == ("failed", 2)
    assert "backups/first" in wrong["reason"]


def test_a_run_outlives_the_management_process_and_is_stopped(
    http_node: HttpNode, api: httpx.Client, backup: dict[str, Any]
) -> None:
    arguments = {"sources": ["backups/first"], "exchange": "", "routing_key": "again", "rate": 0.5}
    name = start(api, "replay", engine="local", **arguments)
    eventually(lambda: run_of(api, name).get("progress", {}).get("name") == "publishing", "it runs")
    starts = http_node.starts
    os.kill(http_node.management_pid, signal.SIGKILL)
    http_node.await_start(starts)
    api = http_node.client()
    assert run_of(api, name)["state"] == "running"
    assert api.post(f"warren/jobs/{name}/stop").status_code == 204
    stopped = ended(api, name)
    assert (stopped["state"], stopped["exit_code"]) == ("stopped", 2), stopped
    assert stopped["reason"] == "interrupted"
    assert refusal(api.post(f"warren/jobs/{name}/stop")) == (
        400, "bad_request", "the run has ended: stopped"
    )  # fmt: skip
    before = stopped["progress"]["done"]
    assert before < MESSAGES
    # The same call goes on where this one has stopped.
    rest = ended(api, start(api, "replay", engine="local", **{**arguments, "rate": 100.0}))
    assert (rest["state"], rest["result"]["messages"]) == ("done", MESSAGES), rest
    length = api.get("queues/%2F/again").json()["messages"]
    assert length == MESSAGES


def test_a_run_that_died_is_interrupted(http_node: HttpNode, backup: dict[str, Any]) -> None:
    api = http_node.client()
    arguments = {"sources": ["backups/first"], "exchange": "", "routing_key": "none", "rate": 0.5}
    name = start(api, "replay", engine="local", mandatory="ignore", **arguments)
    eventually(lambda: bool(run_of(api, name).get("group")), "its process is known")
    os.killpg(run_of(api, name)["group"], signal.SIGKILL)
    assert ended(api, name)["state"] == "interrupted"


@pytest.mark.parametrize(
    ("job", "arguments", "reason"),
    [
        ("none", {}, "there is no job 'none'"),
        ("rebuild-index", {}, "there is no job"),
        ("compare-mirrors", {}, "there is no job"),
        ("backup", {}, "backup needs 'target'"),
        ("backup", {"target": "b", "master": "local"}, "backup has no field 'master'"),
        ("replay", {"sources": ["backups"], "where": "true"}, "replay has no field 'where'"),
        ("backup", {"target": 5}, "target: expected `str`, got `int`"),
        ("backup", {"target": "b", "engine": "fast"}, "Invalid value for '--engine'"),
        ("archive", {"target": "a", "merge": "x"}, "merge: expected `int`, got `str`"),
        ("archive", {"target": "a", "queues": ["--uri=amqp://x"], "format": "x"}, "'--format'"),
        *[
            ("backup", {"target": place}, "is no path below the jobs' directory")
            for place in ("", "/etc/x", "../x", "a/../../x", ".runs/x", "a//b", "a\nb", "a/.")
            if place
        ],
        ("backup", {"target": "out/x"}, "out/x leads out of the jobs' directory"),
        ("backup", {"target": "loop/x"}, "loop/x"),
        ("verify", {"directory": "out"}, "out leads out of the jobs' directory"),
        ("verify", {"directory": "s3://bucket/x"}, "is no path below"),
        ("verify", {"directory": "nothing"}, "there is no such file or directory"),
    ],
)
def test_what_a_job_does_not_take_is_refused(
    http_node: HttpNode, job: str, arguments: dict[str, Any], reason: str
) -> None:
    root = http_node.jobs_directory
    root.mkdir(exist_ok=True)
    for name, target in (("out", "/tmp"), ("loop", "loop")):
        if not (root / name).is_symlink():
            (root / name).symlink_to(target)
    api = http_node.client()
    status, error, text = refusal(
        api.post("warren/jobs", json={"job": job, "arguments": arguments})
    )
    assert (status, error) == (400, "bad_request")
    assert reason in text and "\n" not in text


def ignored_signals(process: int) -> set[int]:
    """The signals that a process ignores."""
    status = Path("/proc", str(process), "status").read_text()
    mask = next(int(line.split()[1], 16) for line in status.splitlines() if "SigIgn" in line)
    return {number for number in range(1, 64) if mask >> (number - 1) & 1}


def test_jobs_end_with_their_node(http_node: HttpNode, backup: dict[str, Any]) -> None:
    api = http_node.client()
    arguments = {"sources": ["backups/first"], "exchange": "", "routing_key": "last", "rate": 0.5}
    name = start(api, "replay", engine="local", mandatory="ignore", **arguments)
    eventually(lambda: bool(run_of(api, name).get("group")), "its process is known")
    assert not ignored_signals(run_of(api, name)["group"]) & {signal.SIGINT, signal.SIGTERM}
    record = http_node.node.directory / "data" / "job-runs" / name / "run.json"
    starts = http_node.starts
    http_node.node.stop()
    eventually(lambda: "ended" in json.loads(record.read_text()), "the run has ended")
    http_node.node.start()
    http_node.await_start(starts)
    assert run_of(http_node.client(), name)["state"] == "interrupted"
