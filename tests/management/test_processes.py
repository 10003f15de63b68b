"""The configuration and the log of a node over HTTP."""

from typing import Any

import httpx
import pika
import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.http_api import HttpNode, refusal
from warrenmq.admin.protocol.control import SetMemoryLimit


@pytest.fixture(scope="module")
def api(http_node: HttpNode) -> httpx.Client:
    return http_node.client()


def log(api: httpx.Client, **query: Any) -> Any:
    reply = api.get("warren/log", params=query)
    assert reply.status_code == 200, reply.text
    return reply.json()


def connect(http_node: HttpNode, name: str) -> None:
    parameters = pika.URLParameters(http_node.node.uri)
    parameters.client_properties = {"connection_name": name}
    pika.BlockingConnection(parameters).close()


def test_the_newest_entries_come_first(http_node: HttpNode, api: httpx.Client) -> None:
    start = log(api, text="starting WARREN")["entries"]
    assert [(each["level"], each["domain"]) for each in start] == [("info", "warren.node")]
    assert start[0]["msg"].startswith("starting warren ")
    assert f"{start[0]['time']} [INFO] warren.node: " in http_node.node.log_path.read_text()
    last = log(api)["last"]
    for number in range(3):
        connect(http_node, f"c{number}")
    # The node logs the end of a connection after it has closed it.
    eventually(lambda: len(log(api, after=last, text="closing")["entries"]) == 3, "the ends")
    found = log(api, after=last, text="closing", limit=2)
    assert [" - c2, " in each["msg"] for each in found["entries"]] == [True, False]
    assert found["has_more"] is True and found["first"] == log(api)["first"]
    rest = log(api, after=last, text="closing", before=found["entries"][-1]["number"])
    assert [" - c0, " in each["msg"] for each in rest["entries"]] == [True]
    assert rest["has_more"] is False
    assert log(api, after=log(api)["last"])["entries"] == []


def test_levels_and_names_of_clients(http_node: HttpNode, api: httpx.Client) -> None:
    last = log(api)["last"]
    connect(http_node, "x\n2026-11-29 10:00:00 [ERROR] warren.node: \u202e<b>gone</b>")
    eventually(lambda: log(api, after=last, text="closing")["entries"], "the end")
    (named,) = log(api, after=last, text="client-provided")["entries"]
    assert named["msg"].endswith(
        r"name: x\x0a2026-11-29 10:00:00 [ERROR] warren.node: \u202e<b>gone</b>"
    )
    assert log(api, after=last, level="warning")["entries"] == []
    for wrong in ({"level": "loud"}, {"limit": 0}, {"limit": 1001}, {"after": "x"}, {"before": -1}):
        assert refusal(api.get("warren/log", params=wrong))[0] == 400
    assert api.get("warren/log", params={"node": "nobody@nowhere"}).status_code == 404


def test_the_configuration(http_node: HttpNode, api: httpx.Client) -> None:
    told = api.get("warren/config").json()
    keys = {each["key"]: each for each in told["keys"]}
    assert told["node"] == api.get("overview").json()["node"]
    assert (told["files"], told["faults"]) == ([], [])
    assert keys["data_dir"] == {
        "key": "data_dir",
        "value": str(http_node.node.directory / "data"),
        "source": "--data-dir",
        "effect": "restart",
        "section": "The node",
        "is_changed": True,
        "pending": None,
    }
    assert (keys["default_pass"]["value"], keys["default_pass"]["source"]) == (
        "(hidden)", "default",
    )  # fmt: skip
    http_node.control(SetMemoryLimit(relative=0.3))
    keys = {each["key"]: each for each in api.get("warren/config").json()["keys"]}
    limit = keys["vm_memory_high_watermark.relative"]
    assert (limit["value"], limit["source"]) == ("0.3", "runtime")
    assert limit["pending"] == {"value": "0.4", "source": "default", "by": "restart"}
    assert api.get("warren/config?columns=node").json() == {"node": told["node"]}
    assert api.get("warren/config?node=nobody@nowhere").status_code == 404
