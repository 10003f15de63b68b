"""The pages of a node's configuration and log: the API's values, and clients' names as text."""

import html
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pika
import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.http_api import HttpNode

NAME = "<b>bold</b>\nnext"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpNode]:
    directory = tmp_path_factory.mktemp("told")
    file = directory / "warren.conf"
    file.write_text("heartbeat = 30\njournal_file_size_limit = 2MiB\ndefault_pass = hunter2\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARREN_CONFIG_FILE", str(file))
        running = HttpNode(directory)
        running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def file(node: HttpNode) -> Path:
    return node.node.directory / "warren.conf"


@pytest.fixture(scope="module")
def pages(node: HttpNode) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=node.url, follow_redirects=True, timeout=30) as client:
        client.post("login", data={"user": "guest", "password": "hunter2"})
        yield client


def shown(pages: httpx.Client, path: str) -> str:
    """The text of a page, without its tags."""
    reply = pages.get(path)
    assert reply.status_code == 200, reply.text
    return html.unescape(" ".join(re.sub("<[^>]*>", " ", reply.text).split()))


def test_values_with_their_sources(node: HttpNode, pages: httpx.Client, file: Path) -> None:
    page = shown(pages, "configuration")
    api = node.client("guest", "hunter2")
    for key in api.get("warren/config").json()["keys"]:
        value = {"": "not set", "(hidden)": "set, not shown"}.get(key["value"], key["value"])
        changed = "changed " if key["is_changed"] else ""
        assert f"{key['key']} {changed}{value} {key['source']} {key['effect']}" in page, key
    assert f"heartbeat changed 30 {file}:1 reload, for new connections" in page
    assert f"default_pass changed set, not shown {file}:3 first start" in page
    assert "hunter2" not in page and "Values that wait" not in page
    changed_only = shown(pages, "configuration?show=changed")
    assert "heartbeat changed" in changed_only and "frame_max" not in changed_only
    assert "frame_max" in shown(pages, "configuration?text=FRAME_m")
    assert "There are none." in shown(pages, "configuration?text=nothing-like-this")


def test_what_waits_and_what_is_wrong(pages: httpx.Client, file: Path) -> None:
    before = file.read_text()
    file.write_text("heartbeat = 20\njournal_file_size_limit = 4MiB\ndefault_pass = hunter2\n")
    page = shown(pages, "configuration?show=waiting")
    assert "Values that wait: 1 for a reload, 1 for a restart." in page
    assert f"heartbeat changed 30 waits for a reload 20 {file}:1 {file}:1 reload" in page
    assert f"2097152 waits for a restart 4194304 {file}:2 {file}:2 restart" in page
    assert "frame_max" not in page
    file.write_text(f"{before}frame_max = x\n")
    page = shown(pages, "configuration")
    assert f"{file}:4: frame_max: expected a size" in page and "a start would fail" in page
    file.write_text(before)
    # A refresh reads no files.
    refresh = pages.get("configuration", headers={"hx-request": "true"})
    assert "heartbeat" not in refresh.text


def test_the_log_goes_on(node: HttpNode, pages: httpx.Client) -> None:
    api = node.client("guest", "hunter2")
    last = api.get("warren/log").json()["last"]
    parameters = pika.URLParameters(node.node.uri)
    parameters.credentials = pika.PlainCredentials("guest", "hunter2")
    parameters.client_properties = {"connection_name": NAME}
    pika.BlockingConnection(parameters).close()

    def ended() -> bool:
        return bool(
            api.get("warren/log", params={"after": last, "text": "closing"}).json()["entries"]
        )

    eventually(ended, "the end of the connection")
    refresh = pages.get("log", headers={"hx-request": "true"}).text
    entries = api.get("warren/log", params={"limit": 200}).json()["entries"]
    assert re.findall(r'<li id="e(\d+)">', refresh) == [str(each["number"]) for each in entries]
    assert "&lt;b&gt;bold&lt;/b&gt;\\x0anext" in refresh and "<b>bold" not in refresh
    page = shown(pages, "log?text=starting")
    assert "starting warren " in page and "closing AMQP connection" not in page
    assert "There are none." in shown(pages, "log?level=critical")
    older = shown(pages, f"log?before={entries[-1]['number'] + 1}")
    assert entries[-1]["msg"] in older and entries[0]["msg"] not in older and "Newest" in older
    assert "There is no such node." in shown(pages, "log?node=nobody@nowhere")


def test_only_monitors_see_them(node: HttpNode) -> None:
    for name, tag, status in (("m", "monitoring", 200), ("p", "policymaker", 401)):
        node.add_user(name, tag)
        with httpx.Client(base_url=node.url, follow_redirects=True, timeout=30) as client:
            menu = client.post("login", data={"user": name, "password": name}).text
            assert ('href="/log"' in menu) is (status == 200)
            for path in ("log", "configuration"):
                assert client.get(path).status_code == status
