"""The pages of queues: the API's figures, forms for one and for many, and messages."""

import html
import re
from collections.abc import Iterator

import httpx
import pytest

from tests.management.ui.forms import form_for
from tests.support.brokers.http_api import HttpNode

TEXT = "<script>\"text\" & 'more'</script>"


@pytest.fixture
def pages(http_node: HttpNode) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=http_node.url, timeout=30, follow_redirects=True) as client:
        client.post("login", data={"user": "guest", "password": "guest"})
        yield client


@pytest.fixture
def queue(http_node: HttpNode) -> Iterator[str]:
    """A queue with three messages."""
    api = http_node.client()
    api.put("queues/%2F/own", json={"durable": True, "arguments": {"x-max-length": 10}})
    for number in range(3):
        api.post(
            "exchanges/%2F/amq.default/publish",
            json={
                "properties": {"headers": {"of": TEXT}, "delivery_mode": 2},
                "routing_key": "own",
                "payload": f'{{"number": {number}, "text": "{number} of {html.escape(TEXT)}"}}',
                "payload_encoding": "string",
            },
        )
    yield "own"
    api.delete("queues/%2F/own")


def length(http_node: HttpNode, queue: str = "own") -> int:
    found: int = http_node.client().get(f"queues/%2F/{queue}").json()["messages"]
    return found


def test_the_list_has_the_figures_of_the_api(pages: httpx.Client, queue: str) -> None:
    shown = pages.get("queues?name=ow&columns=Name,Features,Ready,Bytes").text
    row = re.search(r"<tr id=[^>]*>(.*?)</tr>", shown)
    assert row is not None
    cells = re.findall(r"<td[^>]*>(.*?)</td>", row[1])
    assert [re.sub(r"<[^>]*>", "", cell) for cell in cells[1:3]] == [queue, "DLim"]
    assert cells[3] == "3"
    assert "1 of " in shown
    refused = pages.get("queues?name=(&use_regex=true").text
    assert "the pattern cannot be read" in refused


def test_a_look_shows_messages_and_changes_nothing(
    pages: httpx.Client, http_node: HttpNode, queue: str
) -> None:
    shown = pages.get(f"queues/%2F/{queue}?tab=messages").text
    assert "3 messages are ready" in shown
    assert TEXT not in shown
    assert "&#34;number&#34;: 2" in shown
    one = pages.get(f"queues/%2F/{queue}?tab=messages&search=1+of").text
    assert "1 of 3 messages from position" in one
    by_header = pages.get(f"queues/%2F/{queue}?tab=messages&header=of&count=2").text
    assert "2 of 2 messages from position" in by_header
    next_ones = re.search(r'href="([^"]*start=[^"]*)"', by_header)
    assert next_ones is not None
    assert "1 of 1 messages from position" in pages.get(html.unescape(next_ones[1])).text
    other = pages.get(f"queues/%2F/{queue}?tab=messages&header=of+%3D+other").text
    assert "0 of 3 messages from position" in other
    assert "Oldest ready message waits</th><td>–" not in pages.get(f"queues/%2F/{queue}").text
    assert length(http_node) == 3
    redelivered = http_node.client().post(
        f"queues/%2F/{queue}/get",
        json={"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"},
    )
    assert redelivered.json()[0]["redelivered"] is False


def test_what_destroys_asks_for_the_name(
    pages: httpx.Client, http_node: HttpNode, queue: str
) -> None:
    place = f"queues/%2F/{queue}/do"
    asked = pages.post(place, data={"action": "purge"}).text
    assert "3 messages would be gone" in asked
    pages.post(place, data={"action": "purge", "confirmed": "another"})
    assert length(http_node) == 3
    pages.post(place, data={"action": "pause"})
    assert http_node.client().get(f"queues/%2F/{queue}").json()["state"] == "paused"
    pages.post(place, data={"action": "resume"})
    asked = pages.post(place, data={"action": "delete", "back": f"/queues/%2F/{queue}"}).text
    careful = {"confirmed": [queue], "if-empty": ["true"]}
    refused = pages.post(place, data=form_for(asked, f"/{place}").values | careful)
    assert refused.status_code == 400 and "not empty" in refused.text
    pages.post(place, data={"action": "purge", "confirmed": queue})
    assert length(http_node) == 0
    pages.post(place, data={"action": "delete", "confirmed": queue})
    assert http_node.client().get(f"queues/%2F/{queue}").status_code == 404


def test_several_queues_ask_for_their_number(pages: httpx.Client, http_node: HttpNode) -> None:
    api = http_node.client()
    names = ["a/b", "c d"]
    for name in names:
        api.put(f"queues/%2F/{name.replace('/', '%2F')}", json={})
    chosen = ["%2F/a%2Fb", "%2F/c%20d"]
    asked = pages.post("chosen-queues", data={"action": "delete", "chosen": chosen}).text
    assert "Type 2 to go on" in asked
    done = pages.post(
        "chosen-queues", data={"action": "delete", "chosen": chosen, "confirmed": "2"}
    ).text
    assert "2 of 2 queues deleted." in done
    assert {row["name"] for row in api.get("queues").json()}.isdisjoint(names)


def test_forms_of_a_queue(pages: httpx.Client, http_node: HttpNode) -> None:
    new = form_for(pages.get("queues").text, "/new-queue").values
    new |= {"queue": ["by form"], "arguments": ["x-max-length = 7"]}
    pages.post("new-queue", data=new)
    found = http_node.client().get("queues/%2F/by%20form").json()
    assert (found["durable"], found["arguments"]) == (True, {"x-max-length": 7})
    place = "queues/%2F/by%20form"
    bound = {"other": "amq.topic", "routing_key": "k.#", "arguments": ""}
    page = pages.post(f"{place}/bind", data=bound).text
    assert "k.#" in page
    unbound = form_for(page, f"/{place}/unbind").values
    assert "k.#" not in pages.post(f"{place}/unbind", data=unbound).text
    message = {
        "payload": "of the form",
        "payload_encoding": "string",
        "headers": "n = 1",
        "back": f"/{place}?tab=publish",
    }
    published = pages.post(f"{place}/publish", data=message).text
    assert "the queue has the message" in published
    assert form_for(published, f"/{place}/publish").values["payload"] == ["of the form"]
    taken = {"ackmode": "ack_requeue_true", "count": "5", "back": f"/{place}?tab=get"}
    got = pages.post(f"{place}/get", data=taken).text
    assert "1 messages were got" in got
    assert "of the form" in got
    http_node.client().put("queues/%2F/other", json={})
    moved = pages.post(f"{place}/move", data={"destination": "other", "count": "5"}).text
    assert "1 messages moved so far, 0 were left" in moved
    assert (length(http_node, "by%20form"), length(http_node, "other")) == (0, 1)
    assert pages.post("new-queue", data={"vhost": "nowhere", "queue": "q"}).status_code >= 400


def test_the_list_is_filtered(pages: httpx.Client, http_node: HttpNode, queue: str) -> None:
    http_node.client().put("queues/%2F/paused", json={})
    http_node.client().post("warren/queues/%2F/paused/pause")
    assert f">{queue}<" in pages.get("queues?type=classic&consumers=none").text
    shown = pages.get("queues?state=paused&policy=").text
    assert ">paused</a>" in shown
    assert f">{queue}<" not in shown
    assert '<option value="paused" selected>' in shown
    assert "There are none." in pages.get("queues?policy=none&growing=true").text


def test_arguments_of_a_new_queue(pages: httpx.Client, http_node: HttpNode) -> None:
    usual = {
        "x-max-length": "9",
        "x-overflow": "reject-publish",
        "x-single-active-consumer": "true",
    }
    pages.post("new-queue", data={"vhost": "/", "queue": "args", **usual, "arguments": "x-a = 1"})
    found = http_node.client().get("queues/%2F/args").json()
    assert found["arguments"] == {
        "x-max-length": 9,
        "x-overflow": "reject-publish",
        "x-single-active-consumer": True,
        "x-a": 1,
    }
    assert pages.post("new-queue", data={"vhost": "/", "x-max-length": "many"}).status_code == 400


def test_settings_say_who_gave_them(pages: httpx.Client, http_node: HttpNode) -> None:
    api = http_node.client()
    arguments = {"x-max-length": 100, "x-message-ttl": 9000, "x-overflow": "reject-publish"}
    api.put("queues/%2F/set", json={"arguments": arguments})
    low = {"max-length": 50, "overflow": "drop-head", "expires": 60000, "max-length-bytes": 99}
    api.put("policies/%2F/low", json={"pattern": "^set$", "definition": low})
    lowest = {"max-length-bytes": 10, "message-ttl": 9999}
    api.put("operator-policies/%2F/lowest", json={"pattern": "^set$", "definition": lowest})
    shown = pages.get("queues/%2F/set?tab=arguments").text
    rows = re.findall(r"<tr><th scope=\"row\">(.*?)</th>(.*?)</tr>", shown)
    values = {name: re.findall(r"<td>(?:<b>)?(.*?)(?:</b>)?</td>", row) for name, row in rows}
    assert values == {
        "expires": ["60000", "the policy", "", "60000", ""],
        "max-length": ["50", "the policy", "100", "50", ""],
        "max-length-bytes": ["10", "the operator policy", "", "99", "10"],
        "message-ttl": ["9000", "the argument", "9000", "", "9999"],
        "overflow": ["reject-publish", "the argument", "reject-publish", "drop-head", ""],
    }
    for kind, name in (("policies", "low"), ("operator-policies", "lowest")):
        api.delete(f"{kind}/%2F/{name}")


def test_dead_letters_go_back_in_slices(pages: httpx.Client, http_node: HttpNode) -> None:
    api = http_node.client()
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "morgue"}
    api.put("queues/%2F/morgue", json={})
    api.put("queues/%2F/alive", json={"arguments": dead})
    message = {"properties": {}, "payload": "m", "payload_encoding": "string"}
    for _ in range(3):
        api.post("exchanges/%2F/amq.default/publish", json={**message, "routing_key": "alive"})
    reject = {"count": 9, "ackmode": "reject_requeue_false", "encoding": "auto"}
    assert len(api.post("queues/%2F/alive/get", json=reject).json()) == 3
    api.post("exchanges/%2F/amq.default/publish", json={**message, "routing_key": "morgue"})
    place = "queues/%2F/morgue"
    first = pages.post(f"{place}/replay", data={"to": "queue", "count": "2"})
    assert "2 messages replayed so far, 2 were left" in first.text
    assert "The next 2" in first.text
    # A page that is loaded again replays nothing.
    assert "2 messages replayed so far, 2 were left" in pages.get(str(first.url)).text
    last = pages.post(f"{place}/replay", data={"to": "queue", "count": "2", "done": "2"}).text
    assert "3 messages replayed so far, 1 were left" in last
    assert "1 messages in front stay" in last
    assert "The next" not in last
    assert (length(http_node, "morgue"), length(http_node, "alive")) == (1, 3)


def test_another_user_sees_and_does_nothing(http_node: HttpNode, queue: str) -> None:
    http_node.add_user("stranger", "management", vhosts=("elsewhere",))
    with httpx.Client(base_url=http_node.url, timeout=30, follow_redirects=True) as client:
        client.post("login", data={"user": "stranger", "password": "stranger"})
        assert f">{queue}<" not in client.get("queues").text
        for tab in ("figures", "messages", "bindings", "get"):
            assert client.get(f"queues/%2F/{queue}?tab={tab}").status_code == 401
        refused = client.post(
            f"queues/%2F/{queue}/do", data={"action": "purge", "confirmed": queue}
        )
        assert refused.status_code == 401
    assert length(http_node) == 3
