"""The pages of jobs and schedules: forms of each job, runs as the API has them, who may what."""

import html
import re
from collections.abc import Iterator

import httpx
import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.http_api import HttpNode


@pytest.fixture(scope="module")
def api(http_node: HttpNode) -> httpx.Client:
    client = http_node.client()
    client.put("queues/%2F/q", json={"durable": True})
    return client


@pytest.fixture(scope="module")
def pages(http_node: HttpNode) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=http_node.url, follow_redirects=True, timeout=30) as client:
        client.post("login", data={"user": "guest", "password": "guest"})
        yield client


def text(reply: httpx.Response) -> str:
    """The text of a page, without its tags."""
    return html.unescape(" ".join(re.sub("<[^>]*>", " ", reply.text).split()))


def test_a_job_is_started_by_its_form_and_shown(pages: httpx.Client, api: httpx.Client) -> None:
    jobs = text(pages.get("pipeline?tab=jobs"))
    kinds = api.get("warren/job-kinds").json()
    for kind in kinds:
        assert f"{kind['name']} : {kind['does']}" in jobs
        form = pages.get(f"pipeline/jobs/new?job={kind['name']}")
        for field in kind["fields"]:
            assert f'id="f-{field["name"]}"' in form.text
    assert pages.get("pipeline/jobs/new?job=none").status_code == 404
    sent = {"job": "report", "in": "/", "html": "../r.html", "headers": "true", "engine": "local"}
    refused = pages.post("pipeline/jobs/new", data=sent)
    assert refused.status_code == 400
    assert "html: '../r.html' is no path" in text(refused) and 'value="../r.html"' in refused.text
    begun = pages.post("pipeline/jobs/new", data={**sent, "html": "{run}.html"})
    assert "report has begun." in text(begun)
    name = begun.url.path.rpartition("/")[2]
    eventually(lambda: api.get(f"warren/jobs/{name}").json()["ended"] > 0, "the run has ended")
    run = api.get(f"warren/jobs/{name}").json()
    assert run["arguments"] == {"html": "{run}.html", "engine": "local"}
    page = pages.get(f"pipeline/jobs/{name}")
    assert f"State {run['state']}" in text(page) and "Exit status 0" in text(page)
    assert "html = {run}.html" in text(page) and run["log"][-1] in text(page)
    assert "Stop" not in text(page)
    assert f"{name} report / – done " in text(pages.get("pipeline?tab=jobs"))
    report = pages.get(f"pipeline/jobs/{name}/report")
    assert report.headers["content-security-policy"].startswith("sandbox;")
    assert report.headers["content-type"].startswith("text/html")
    ended = pages.post(f"pipeline/jobs/{name}/stop", data={"confirmed": "report"})
    assert "It has ended by itself." in text(ended)
    asked = pages.post(f"pipeline/jobs/{name}/stop")
    assert "Type report to go on" in text(asked)


def test_a_schedule_is_set_changed_and_deleted(pages: httpx.Client, api: httpx.Client) -> None:
    sent = {
        "job": "archive", "name": "nightly", "in": "/", "cron": "0 3 * *", "every": "", "node": "",
        "grace": "60", "enabled": "true", "target": "a", "queues": "q\nr", "interval": "2.5",
    }  # fmt: skip
    refused = pages.post("pipeline/schedules/new", data=sent)
    assert refused.status_code == 400 and "'0 3 * *' is no cron expression" in text(refused)
    listed = text(pages.post("pipeline/schedules/new", data={**sent, "cron": "0 3 * * *"}))
    assert "nightly is set." in listed and "nightly / archive 0 3 * * * any, now " in listed
    path = "warren/schedules/%2F/nightly"
    found = api.get(path).json()
    assert found["arguments"] == {"target": "a", "queues": ["q", "r"], "interval": 2.5}
    assert (found["user"], found["grace"], found["last"]) == ("guest", 60, None)
    page = pages.get("pipeline/schedules/%2F/nightly")
    assert ">q\nr</textarea>" in page.text and "May begin late by 1 min 0 s" in text(page)
    off = pages.post("pipeline/schedules/%2F/nightly/enable", data={"enabled": "false"})
    assert "Next disabled" in text(off)
    changed = {**sent, "cron": "", "every": "3600", "queues": "", "pattern": ".*"}
    page = pages.post("pipeline/schedules/%2F/nightly/change", data=changed)
    assert "When (UTC) every 1 h 0 min" in text(page)
    wrong = pages.post("pipeline/schedules/%2F/nightly/change", data={**changed, "every": "x"})
    assert wrong.status_code == 400
    found = api.get(path).json()
    assert (found["enabled"], found["interval"]) == (True, 3600)
    assert found["arguments"]["pattern"] == ".*" and "queues" not in found["arguments"]
    asked = pages.post("pipeline/schedules/%2F/nightly/delete", data={"confirmed": "no"})
    assert "Delete the schedule nightly?" in text(asked)
    gone = pages.post("pipeline/schedules/%2F/nightly/delete", data={"confirmed": "nightly"})
    assert "nightly deleted." in text(gone) and api.get(path).status_code == 404


def test_monitors_look_and_others_see_no_jobs(http_node: HttpNode, api: httpx.Client) -> None:
    value = {"job": "report", "arguments": {"html": "r.html"}, "cron": "0 3 1 1 *"}
    assert api.put("warren/schedules/%2F/s", json=value).status_code == 201
    for name, tag in (("watcher", "monitoring"), ("plain", "management")):
        http_node.add_user(name, tag)
        with httpx.Client(base_url=http_node.url, follow_redirects=True, timeout=30) as pages:
            pages.post("login", data={"user": name, "password": name})
            jobs = text(pages.get("pipeline?tab=jobs"))
            assert "Start a job" not in jobs
            assert ("Schedules" in jobs) == (tag == "monitoring")
            one = text(pages.get("pipeline/schedules/%2F/s"))
            assert ("Job report" in one) == (tag == "monitoring") and "Delete" not in one
            new = {"job": "report", "in": "/", "html": "r.html"}
            assert pages.post("pipeline/jobs/new", data=new).status_code == 401
            assert (
                pages.post("pipeline/schedules/%2F/s/delete", data={"confirmed": "s"}).status_code
                == 401
            )
    assert api.delete("warren/schedules/%2F/s").status_code == 204
