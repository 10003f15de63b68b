"""Pages of connections, channels, consumers and exchanges: the API's figures, and what they do."""

import html
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pika
import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.http_api import HttpNode

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def api(http_node: HttpNode) -> Iterator[httpx.Client]:
    """The API of a node with a topic exchange `x` that leads to the queue `q`."""
    client = http_node.client()
    client.put("queues/%2F/q", json={})
    client.put("exchanges/%2F/x", json={"type": "topic", "durable": True})
    client.post("bindings/%2F/e/x/q/q", json={"routing_key": "order.*"})
    yield client


@pytest.fixture(scope="module")
def connection(http_node: HttpNode, api: httpx.Client) -> Iterator[str]:
    """The name of a connection, whose client calls itself HOSTILE and consumes `q`."""
    parameters = pika.ConnectionParameters(
        "127.0.0.1", http_node.node.port, client_properties={"connection_name": HOSTILE}
    )
    client = pika.BlockingConnection(parameters)
    channel = client.channel()
    channel.basic_qos(prefetch_count=7)
    channel.confirm_delivery()
    channel.basic_consume("q", lambda *_: None, consumer_tag="tag")
    eventually(lambda: len(api.get("consumers").json()) == 1, "the consumer is listed")
    yield str(api.get("connections").json()[0]["name"])
    client.close()


@pytest.fixture(scope="module")
def pages(http_node: HttpNode, api: httpx.Client) -> Iterator[httpx.Client]:
    yield from signed_in(http_node, "guest")


def signed_in(http_node: HttpNode, user: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=http_node.url, follow_redirects=True, timeout=30) as client:
        reply = client.post("login", data={"user": user, "password": user})
        assert reply.status_code == 200
        yield client


def text(reply: httpx.Response) -> str:
    """What a page shows, without its tags."""
    assert reply.status_code == 200, reply.text
    assert HOSTILE not in reply.text
    return shown(reply.text)


def shown(markup: str) -> str:
    """The text in a piece of a page."""
    return html.unescape(" ".join(re.sub("<[^>]*>", " ", markup).split()))


def rows(reply: httpx.Response) -> list[list[str]]:
    """The cells of the rows of the list of a page."""
    bodies = re.findall(r"<tr id=.*?</tr>", reply.text, re.DOTALL)
    return [
        [shown(cell) for cell in re.findall("<td.*?>(.*?)</td>", body, re.DOTALL)]
        for body in bodies
    ]


def test_a_consumer_leads_to_the_end_of_its_connection(
    pages: httpx.Client, connection: str
) -> None:
    consumers = pages.get("queues/%2F/q?tab=consumers").text
    link = re.search(r'<a href="([^"]*)" aria-label="Close the connection of [^>]*tag"', consumers)
    assert link is not None
    assert link[1].startswith(f"/connections/{quote(connection, safe='')}")
    assert '<details class="fold" open>' in pages.get(html.unescape(link[1])).text


def test_connections_show_what_the_api_does(
    pages: httpx.Client, api: httpx.Client, connection: str
) -> None:
    row = api.get(f"connections/{quote(connection, '')}").json()
    listed = rows(pages.get("connections?columns=Name,State,Channels,Frame max"))
    assert listed == [[f"{connection} {HOSTILE}", row["state"], "1", f"{row['frame_max']:,}"]]
    assert rows(pages.get("connections?name=nobody")) == []
    refused = text(pages.get("connections?name=(&use_regex=true"))
    assert "the pattern cannot be read" in refused
    one = text(pages.get(f"connections/{quote(connection, '')}"))
    assert HOSTILE in one and "Client properties" in one and "PLAIN" in one
    assert pages.get("connections/nobody").status_code == 404


def test_channels_and_consumers_lead_to_each_other(pages: httpx.Client, connection: str) -> None:
    channel = f"{connection} (1)"
    columns = "Channel,Mode,Prefetch,Unacked"
    assert rows(pages.get(f"channels?columns={columns}")) == [[channel, "C", "7", "0"]]
    page = pages.get(f"channels/{quote(channel, '')}")
    assert rows(page)[0][:4] == ["tag", "/", "q", channel]
    assert "Prefetch of each consumer 7" in text(page)
    listed = pages.get("consumers?vhost=%2F&name=q")
    assert rows(listed) == rows(page)
    assert f'href="/channels/{quote(channel, "")}' in listed.text
    assert 'href="/queues/%2F/q' in listed.text
    assert rows(pages.get("consumers?name=nobody")) == []


def test_a_connection_is_closed_with_a_reason(
    http_node: HttpNode, pages: httpx.Client, api: httpx.Client
) -> None:
    client = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", http_node.node.port))
    port = client._impl._transport._sock.getsockname()[1]
    names = [each["name"] for each in api.get("connections").json()]
    name = next(each for each in names if f":{port} -> " in each)
    done = pages.post(f"connections/{quote(name, '')}/close", data={"reason": "too löud"})
    assert f"Connection {name} closed." in text(done)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match=r"too l\?ud"):
        client.process_data_events(10)


def test_exchanges_are_added_bound_and_deleted(pages: httpx.Client, api: httpx.Client) -> None:
    fields = {
        "in_vhost": "/",
        "name": HOSTILE,
        "type": "headers",
        "durable": "true",
        "alternate": "amq.fanout",
        "arguments": 'x-number = 5\nx-text = "5"',
    }
    assert f"There is an exchange {HOSTILE}." in text(pages.post("exchanges", data=fields))
    path = f"exchanges/%2F/{quote(HOSTILE, '')}"
    made = api.get(path).json()
    assert (made["type"], made["durable"], made["internal"]) == ("headers", True, False)
    arguments = {"x-number": 5, "x-text": "5", "alternate-exchange": "amq.fanout"}
    assert made["arguments"] == arguments
    row = next(row for row in rows(pages.get("exchanges")) if row[0] == HOSTILE)
    assert row[:4] == [HOSTILE, "/", "headers", "D AE Args"]

    bound = {"kind": "q", "other": "q", "arguments": "colour = red"}
    text(pages.post(f"{path}/bind", data=bound))
    text(pages.post(f"{path}/bind", data={"kind": "from", "other": "x", "routing_key": "#"}))
    page = pages.get(f"{path}?tab=bindings")
    assert [row[:2] for row in rows(page)] == [
        ["x", f"exchange {HOSTILE}"],
        [HOSTILE, "queue q"],
    ]
    binding = api.get(f"{path}/bindings/destination").json()[0]
    sent = {
        "source": "x",
        "kind": "e",
        "destination": HOSTILE,
        "properties_key": binding["properties_key"],
    }
    assert len(rows(pages.post(f"{path}/unbind", data=sent))) == 1

    assert "another name was typed" in text(pages.post(f"{path}/delete", data={"confirmed": "x"}))
    careful = pages.post(f"{path}/delete", data={"confirmed": HOSTILE, "if_unused": "true"})
    assert careful.status_code == 400
    assert "deleted" in text(pages.post(f"{path}/delete", data={"confirmed": HOSTILE}))
    assert api.get(path).status_code == 404


def test_a_message_is_published_with_its_properties(pages: httpx.Client, api: httpx.Client) -> None:
    api.put("queues/%2F/letters", json={})
    message = {
        "routing_key": "letters",
        "payload": "one\r\ntwo",
        "payload_encoding": "string",
        "delivery_mode": "2",
        "headers": "n = 1",
        "priority": "3",
        "content_type": "text/plain",
        "back": "/exchanges/%2F/amq.default?tab=publish",
    }
    reply = pages.post("exchanges/%2F/amq.default/publish", data=message)
    assert "a queue has the message" in text(reply)
    assert 'value="letters"' in reply.text, "the form stays filled"
    got = api.post("queues/%2F/letters/get", json={"count": 1, "ackmode": "ack_requeue_false"})
    found: dict[str, Any] = got.json()[0]
    assert found["payload"] == "one\ntwo"
    assert found["properties"] == {
        "headers": {"n": 1},
        "delivery_mode": 2,
        "priority": 3,
        "content_type": "text/plain",
    }
    lost = {**message, "routing_key": "none"}
    assert "no queue takes it" in text(pages.post("exchanges/%2F/x/publish", data=lost))


def test_a_route_is_tried_from_a_link(pages: httpx.Client) -> None:
    page = pages.get("exchanges/%2F/x?tab=route&key=order.new")
    assert 'href="/queues/%2F/q"' in page.text and "1 queue would get it" in text(page)
    assert "No queue would get it" in text(pages.get("exchanges/%2F/x?tab=route&key=other"))
    assert "No answer" in text(pages.get("exchanges/%2F/x?tab=route&key=k&headers=CC%20%3D%201"))


def test_a_search_finds_by_name(http_node: HttpNode, pages: httpx.Client, connection: str) -> None:
    found = text(pages.get(f"search?q={quote(HOSTILE.upper(), '')}"))
    assert f"Connections: 1 {connection} {HOSTILE}" in found and "Queues: 0" in found
    assert "Users: 1 guest administrator" in text(pages.get("search?q=gue"))
    assert "Exchanges: 1 amq.topic in /" in text(pages.get("search?q=amq.t"))
    http_node.add_user("looker", "management")
    for narrow in signed_in(http_node, "looker"):
        seen = text(narrow.get("search?q=e"))
        assert "Users:" not in seen and "Connections: 0" in seen
