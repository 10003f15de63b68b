"""Every page in Chromium: no error, no fault of accessibility, no sideways scrolling, no script.

The node has traffic, and names, headers, properties and payloads that try to run a script.
"""

import json
import threading
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pika
import pytest

pytest.importorskip("selenium")
pytest.importorskip("axe_core_python")

from tests.support.awaiting import eventually
from tests.support.brokers.http_api import HttpNode
from tests.support.browser import Browser, chromium
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.control import SetMemoryLimit
from warrenmq.admin.protocol.requests import GroupOpened, OpenGroup
from warrenmq.admin.protocol.sinks import OpenStage, StageOpened

HOSTILE = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"
QUEUE = "%3Cimg%20src%3Dx%20onerror%3D%22document.title%3D%27run%27%22%3E%3Cscript%3Edocument.title%3D%27run%27%3C%2Fscript%3E"
PATHS = [
    "overview",
    "connections",
    "channels",
    "consumers",
    "exchanges",
    f"exchanges/%2F/{QUEUE}?tab=bindings",
    f"exchanges/%2F/{QUEUE}?tab=route&key=k",
    f"exchanges/%2F/{QUEUE}?tab=publish",
    f"exchanges/%2F/{QUEUE}?tab=delete",
    f"exchanges/%2F/{QUEUE}",
    "queues?columns=Name,Node,Features,Bytes,Incoming",
    f"queues/%2F/{QUEUE}",
    f"queues/%2F/{QUEUE}?tab=messages",
    f"queues/%2F/{QUEUE}?tab=publish",
    f"queues/%2F/{QUEUE}?tab=get",
    f"queues/%2F/{QUEUE}?tab=consumers",
    f"queues/%2F/{QUEUE}?tab=bindings",
    f"queues/%2F/{QUEUE}?tab=arguments",
    f"queues/%2F/{QUEUE}?tab=storage",
    f"queues/%2F/{QUEUE}?tab=move",
    "storage",
    "storage?tab=queues",
    "storage?tab=files&range=1h",
    "storage?tab=durations&range=7d",
    "configuration?show=changed&text=a",
    "log?level=error",
    "mirrors",
    "mirrors/rebalance",
    "pipeline",
    "pipeline?tab=sinks",
    "pipeline?tab=jobs",
    "pipeline?tab=schedules",
    "pipeline/jobs/new?job=archive",
    "pipeline/schedules/new?job=backup",
    "pipeline/groups/%2F/readers",
    "pipeline/sinks/%2F/writers",
    "nodes",
    "nodes?tab=cluster",
    "nodes?tab=checks",
    f"queues/%2F/{QUEUE}?tab=move&to=queue&count=9&done=9&kept=1&left=9",
    "policies",
    "policies/new",
    "users",
    "users/guest",
    "vhosts",
    "vhosts/%2F",
    "definitions",
    "search?q=script",
]
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
CONTRAST = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
# Width (px), the system's colours, and the rules that they can break.
LOOKS = ((1280, "light", RULES), (1280, "dark", CONTRAST), (390, "light", RULES))
# Links, buttons and fields that the keyboard does not reach, or that show no focus.
KEYBOARD = """
const faults = [];
for (const each of document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary")) {
  if (each.tabIndex < 0) faults.push(`not reached: ${each.outerHTML.slice(0, 80)}`);
  if (!each.checkVisibility()) continue;
  each.focus({focusVisible: true});
  if (document.activeElement === each && getComputedStyle(each).outlineStyle === "none")
    faults.push(`no focus: ${each.outerHTML.slice(0, 80)}`);
}
return faults;
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture(scope="module")
def busy(http_node: HttpNode) -> Iterator[HttpNode]:
    """The node with a queue, its messages, and what reads them: a consumer, a group and a sink."""
    port = http_node.node.port
    properties = {"product": HOSTILE, "connection_name": HOSTILE}
    parameters = pika.ConnectionParameters("127.0.0.1", port, client_properties=properties)
    with (
        pika.BlockingConnection(parameters) as connection,
        AdminClient(NodeAddress(http_node.node.uri)) as reader,
    ):
        channel = connection.channel()
        channel.exchange_declare(HOSTILE, "topic", durable=True)
        channel.queue_declare(HOSTILE, durable=True, arguments={"x-max-length": 1000})
        channel.queue_bind(HOSTILE, HOSTILE, HOSTILE)
        for number in range(20):
            channel.basic_publish(
                HOSTILE,
                HOSTILE,
                json.dumps({"number": number, "text": HOSTILE}).encode(),
                pika.BasicProperties(
                    headers={HOSTILE: HOSTILE}, delivery_mode=2, type=HOSTILE[:99]
                ),
            )
        reader.request(OpenGroup("readers", [HOSTILE.encode()]), GroupOpened)
        reader.request(OpenStage("writers", 1), StageOpened)
        channel.basic_qos(prefetch_count=5)
        channel.basic_consume(HOSTILE, lambda *_: None, consumer_tag=HOSTILE)
        stopping = threading.Event()

        def serve() -> None:
            while not stopping.is_set():
                connection.process_data_events(0.1)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield http_node
        finally:
            stopping.set()
            thread.join()


@pytest.fixture(scope="module")
def signed_in(browser: Browser, busy: HttpNode) -> Browser:
    browser.go(f"{busy.url}login")
    browser.type_into("f-user", "guest")
    browser.type_into("f-password", "guest\n")
    eventually(lambda: browser.ask("return location.pathname") == "/overview", "the overview")
    return browser


def faults_of(browser: Browser, url: str) -> list[str]:
    """What is wrong with a page, which is loaded once, at each of `LOOKS`.

    The page is paused: a refresh during a check would change what is checked.
    """
    found: list[str] = []
    browser.go(f"{url}{'&' if '?' in url else '?'}pause=1")
    browser.ask((files("axe_core_python") / "axe.min.js").read_text())
    for width, scheme, rules in LOOKS:
        browser.show_as(width, scheme)
        shown = f"{url} at {width} px, {scheme}"
        if browser.ask("return document.documentElement.scrollWidth > innerWidth"):
            found.append(f"{shown} scrolls sideways")
        if browser.ask("return document.querySelectorAll('h1').length") != 1:
            found.append(f"{shown} has not one heading")
        if browser.ask("return document.title").startswith("run"):
            found.append(f"{shown} runs scripts of clients")
        result: dict[str, Any] = browser.ask_async(
            "axe.run(document, arguments[0]).then(arguments[1])", rules
        )
        assert result["passes"]
        for violation in result["violations"]:
            nodes = [node["html"][:120] for node in violation["nodes"][:3]]
            found.append(f"{shown}: {violation['id']} at {nodes}")
    found += [f"{url}: {fault}" for fault in (*browser.errors(), *browser.ask(KEYBOARD))]
    return found


@pytest.mark.parametrize("path", PATHS)
def test_a_page_is_sound(signed_in: Browser, busy: HttpNode, path: str) -> None:
    assert faults_of(signed_in, busy.url + path) == []


def test_a_node_with_an_alarm_is_sound(signed_in: Browser, busy: HttpNode) -> None:
    """The alarm is at the head of the page, and its reason and what to do are below."""
    api = busy.client()
    busy.control(SetMemoryLimit(absolute=1))
    eventually(lambda: api.get("nodes").json()[0]["mem_alarm"], "the alarm is on")
    name = api.get("overview").json()["node"]
    assert faults_of(signed_in, f"{busy.url}nodes/{name}") == []
    text = signed_in.ask("return document.querySelector('main').innerText")
    assert "Memory alarm on" in text and "What to do" in text
    busy.control(SetMemoryLimit(relative=0.6))
    eventually(lambda: not api.get("nodes").json()[0]["mem_alarm"], "the alarm is off")


def test_the_form_to_sign_in_is_sound(browser: Browser, http_node: HttpNode) -> None:
    browser.forget_cookies()
    assert faults_of(browser, f"{http_node.url}login") == []


def test_figures_refresh_and_typed_text_stays(
    signed_in: Browser, busy: HttpNode, tmp_path: Path
) -> None:
    signed_in.show_as(1280, "light")
    signed_in.go(f"{busy.url}login")
    signed_in.type_into("f-user", "guest")
    signed_in.type_into("f-password", "guest\n")
    eventually(lambda: signed_in.ask("return location.pathname") == "/overview", "the overview")
    signed_in.ask("window.same = true")
    signed_in.type_into("search", "half a word")
    before = signed_in.ask("return document.querySelector('#count-queues').textContent")
    busy.client().put("queues/%2F/one-more", json={"durable": True})
    eventually(
        lambda: (
            signed_in.ask("return document.querySelector('#count-queues').textContent") != before
        ),
        "the count of queues",
    )
    assert signed_in.ask("return window.same")
    assert signed_in.ask("return document.querySelector('#search').value") == "half a word"
    assert signed_in.errors() == []


def test_chosen_rows_stay_chosen(signed_in: Browser, busy: HttpNode) -> None:
    busy.client().put("queues/%2F/chosen", json={"durable": True})
    signed_in.go(f"{busy.url}queues?name=chosen")
    signed_in.ask(
        "document.querySelector('tbody input').click(); window.row = document.querySelector('tbody tr')"
    )
    busy.client().post(
        "exchanges/%2F/amq.default/publish",
        json={
            "properties": {},
            "routing_key": "chosen",
            "payload": "x",
            "payload_encoding": "string",
        },
    )
    eventually(
        lambda: "1" in signed_in.ask("return document.querySelector('tbody tr').textContent"),
        "the message in the list",
    )
    assert signed_in.ask("return document.querySelector('tbody input').checked")
    assert signed_in.ask("return document.querySelector('tbody tr') === window.row")
