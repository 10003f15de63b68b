"""The pages of nodes, reader groups and sinks have the API's figures, and say what alarms mean."""

import html
import re
from collections.abc import Iterator

import httpx
import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.http_api import HttpNode
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.control import SetDiskLimit, SetMemoryLimit
from warrenmq.admin.protocol.requests import GroupOpened, OpenGroup
from warrenmq.admin.protocol.sinks import OpenStage, StageOpened
from warrenmq.management.ui import figures


@pytest.fixture(scope="module")
def api(http_node: HttpNode) -> httpx.Client:
    return http_node.client()


@pytest.fixture(scope="module")
def pages(http_node: HttpNode) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=http_node.url, follow_redirects=True, timeout=30) as client:
        client.post("login", data={"user": "guest", "password": "guest"})
        yield client


def shown(pages: httpx.Client, path: str) -> str:
    """The text of a page."""
    reply = pages.get(path)
    assert reply.status_code == 200, reply.text
    return text(reply)


def text(reply: httpx.Response) -> str:
    """The text of a page, without its tags."""
    return html.unescape(" ".join(re.sub("<[^>]*>", " ", reply.text).split()))


def test_a_node(pages: httpx.Client, api: httpx.Client) -> None:
    (node,) = api.get("nodes").json()
    listed = shown(pages, "nodes")
    files = f"of {figures.count(node['fd_total'])}"
    assert f"{node['name']} running" in listed and files in listed
    page = shown(pages, f"nodes/{node['name']}")
    (listener,) = api.get("warren/cluster").json()["nodes"][0]["listeners"]
    for words in (
        f"Process id {node['os_pid']}",
        f"Memory alarm from {figures.size(node['mem_limit'])}",
        f"Disk alarm below {figures.size(node['disk_free_limit'])}",
        f"Data directory {node['db_dir']}",
        f"amqp 127.0.0.1, port {listener['port']}",
        "Memory by use",
    ):
        assert words in page, words
    assert "What to do" not in page
    assert "runs alone" in shown(pages, "nodes?tab=cluster")
    assert pages.get("nodes/none").status_code == 404


def test_checks_of_health(pages: httpx.Client, http_node: HttpNode) -> None:
    page = shown(pages, "nodes?tab=checks")
    assert page.count(" ok") == 9 and "failed" not in page
    # A refresh makes no checks.
    refresh = pages.get("nodes?tab=checks", headers={"hx-request": "true"})
    assert "health/checks" not in refresh.text


def test_an_alarm_is_explained(pages: httpx.Client, api: httpx.Client, http_node: HttpNode) -> None:
    http_node.control(SetMemoryLimit(absolute=1), SetDiskLimit(absolute=1 << 60))

    def alarms() -> bool:
        (node,) = api.get("nodes").json()
        return bool(node["mem_alarm"] and node["disk_free_alarm"])

    eventually(alarms, "both alarms are on")
    name = api.get("overview").json()["node"]
    page = shown(pages, f"nodes/{name}")
    assert "used of 1 B Connections that publish are blocked on all nodes" in page
    assert "What to do: Find the queue that fills the disk" in page
    checks = shown(pages, "nodes?tab=checks")
    assert "failed There are alarms in effect on the node" in checks
    assert "memory disk" in shown(pages, "nodes")
    http_node.control(SetMemoryLimit(relative=0.6), SetDiskLimit(absolute=1))
    eventually(lambda: not alarms(), "the alarms are off")


def test_reader_groups_and_sinks(
    pages: httpx.Client, api: httpx.Client, http_node: HttpNode
) -> None:
    assert api.put("queues/%2F/read", json={"durable": True}).status_code == 201
    for _ in range(3):
        sent = {
            "properties": {}, "routing_key": "read", "payload": "p", "payload_encoding": "string"
        }  # fmt: skip
        api.post("exchanges/%2F/amq.default/publish", json=sent)
    with AdminClient(NodeAddress(http_node.node.uri)) as client:
        client.request(OpenGroup("g", [b"read"]), GroupOpened)
        client.request(OpenStage("s", 1), StageOpened)
        group = api.get("warren/groups/%2F/g").json()
        page = shown(pages, "pipeline")
        assert "g / read 3 " in page
        assert "s / – idle 0 1 0" in shown(pages, "pipeline?tab=sinks")
        of_group = shown(pages, "pipeline/groups/%2F/g")
        assert f"Messages behind {group['lag']}" in of_group
        assert f"Epoch {group['epoch']}" in of_group
        assert "Open stages 1" in shown(pages, "pipeline/sinks/%2F/s")
        for path, name, question in (
            ("pipeline/groups/%2F/g", "g", "0 reserved messages"),
            ("pipeline/sinks/%2F/s", "s", "0 staged messages"),
        ):
            asked = pages.post(f"{path}/delete", data={"confirmed": "wrong"})
            assert question in text(asked) and pages.get(path).status_code == 200
            done = pages.post(f"{path}/delete", data={"confirmed": name})
            assert f"{name} forgotten" in text(done)
            assert pages.get(path).status_code == 404


def test_vhosts_without_permission_are_told(pages: httpx.Client, api: httpx.Client) -> None:
    api.put("vhosts/closed")
    api.delete("permissions/closed/guest")
    assert "You have no permissions in closed" in shown(pages, "pipeline")
    api.delete("vhosts/closed")
