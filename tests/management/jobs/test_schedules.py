"""Schedules run their jobs: when they are due, one at a time, and no time twice."""

import itertools
import json
import os
import signal
import time
from typing import Any

import httpx
import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.http_api import HttpNode, refusal
from warrenmq.admin.protocol.schedules import SetSchedule

pytestmark = pytest.mark.slow

REPORT = {"job": "report", "arguments": {"html": "{run}.html", "engine": "local"}}
# A job that ends soon, as there is nothing to verify.
VERIFY = {"job": "verify", "arguments": {"directory": "empty"}}


@pytest.fixture(scope="module")
def api(http_node: HttpNode) -> httpx.Client:
    (http_node.jobs_directory / "empty").mkdir(parents=True)
    return http_node.client()


def runs(api: httpx.Client, schedule: str) -> list[dict[str, Any]]:
    """The runs of a schedule, the first one first."""
    return [row for row in api.get("warren/jobs").json() if row["schedule"] == schedule]


def one(api: httpx.Client, name: str) -> dict[str, Any]:
    """A schedule as the API shows it."""
    found: dict[str, Any] = api.get(f"warren/schedules/%2F/{name}").json()
    return found


def test_a_schedule_runs_its_job_again_and_again(api: httpx.Client) -> None:
    path = "warren/schedules/%2F/often"
    assert api.put(path, json={**VERIFY, "interval": 1}).status_code == 201
    eventually(lambda: len([run for run in runs(api, "often") if run["ended"]]) > 1, "it ran twice")
    assert api.put(path, json={**VERIFY, "interval": 1, "enabled": False}).status_code == 204
    eventually(lambda: one(api, "often")["last"]["state"] != "running", "the last run is noted")
    found = runs(api, "often")
    assert {(run["state"], run["exit_code"]) for run in found} == {("failed", 2)}
    assert all([first["ended"] <= then["started"] for first, then in itertools.pairwise(found)])
    assert len({run["due"] for run in found}) == len(found)
    last = one(api, "often")
    assert (last["last"]["run"], last["last"]["due"]) == (found[-1]["name"], found[-1]["due"])
    assert (last["next"], last["user"], last["runs_at"]) == (0, "guest", last["last"]["node"])
    assert api.delete(path).status_code == 204
    assert api.get(path).status_code == 404


def test_a_missed_time_is_made_up_for_once(http_node: HttpNode, api: httpx.Client) -> None:
    """The management process is killed as soon as the run is noted, and runs nothing twice."""
    day = 86_400
    schedule = {**VERIFY, "user": "guest", "interval": day, "grace": day}
    http_node.control(SetSchedule(vhost="/", name="daily", value=json.dumps(schedule)))
    eventually(lambda: one(api, "daily")["last"] is not None, "it has begun")
    starts = http_node.starts
    os.kill(http_node.management_pid, signal.SIGKILL)
    http_node.await_start(starts)
    again = http_node.client()
    eventually(lambda: one(again, "daily")["last"]["state"] == "failed", "its end is noted")
    (run,) = runs(again, "daily")
    assert run["due"] == int(time.time()) // day * day
    again.delete("warren/schedules/%2F/daily")


def test_a_run_that_cannot_begin_says_why(http_node: HttpNode) -> None:
    api = http_node.client()
    wanted = {**VERIFY, "user": "nobody", "interval": 1}
    assert api.put("warren/schedules/%2F/bad", json=wanted).status_code == 201
    eventually(lambda: bool(runs(api, "bad")), "a run is recorded")
    run = runs(api, "bad")[0]
    assert (run["state"], run["reason"]) == ("failed", 'User "nobody" does not exist')
    api.delete("warren/schedules/%2F/bad")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "either 'cron' or 'interval'"),
        ({"cron": "* * * * *", "interval": 5}, "either 'cron' or 'interval'"),
        ({"cron": "99 * * * *"}, "'99 * * * *' is no cron expression"),
        ({"interval": -1}, "Expected `int` >= 0"),
        ({"interval": 5, "job": "none"}, "there is no job 'none'"),
        ({"interval": 5, "arguments": {"html": "/etc/x"}}, "is no path below"),
        ({"interval": 5, "arguments": {"html": "x", "engine": "?"}}, "'--engine'"),
    ],
)
def test_a_wrong_schedule_is_refused(
    http_node: HttpNode, changes: dict[str, Any], reason: str
) -> None:
    api = http_node.client()
    status, _, text = refusal(api.put("warren/schedules/%2F/wrong", json={**REPORT, **changes}))
    assert status == 400 and reason in text
    assert api.put("warren/schedules/none/s", json={**REPORT, "interval": 5}).status_code == 404


def test_definitions_carry_a_schedule(http_node: HttpNode) -> None:
    api = http_node.client()
    path = "warren/schedules/%2F/kept"
    api.put(path, json={**REPORT, "cron": "0 3 1 1 *"})
    before = one(api, "kept")
    exported = api.get("definitions/%2F").json()
    assert [each["component"] for each in exported["parameters"]] == ["pipeline-schedule"]
    api.delete(path)
    assert api.post("definitions/%2F", json=exported).status_code == 204
    assert one(api, "kept") == before
    set_value = {"value": exported["parameters"][0]["value"]}
    refused = api.put("parameters/pipeline-schedule/%2F/other", json=set_value)
    assert refused.status_code == 400
    api.delete(path)
