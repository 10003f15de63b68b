"""Monitors and the library rabbit-hole get from the HTTP API what they decode."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote_plus

import httpx
import pika
import pytest

from tests.management.tools.scraped import ABSENT, TOOLS, Scrape
from tests.support.awaiting import eventually
from tests.support.brokers.http_api import HttpNode

pytestmark = pytest.mark.interop

QUEUE = "orders"


@pytest.fixture(scope="module")
def api(http_node: HttpNode) -> Iterator[httpx.Client]:
    """A client of a node with a policy, and with a queue that is published to and consumed."""
    client = http_node.client()
    policy = {"pattern": "^ord", "definition": {"max-length": 100}, "apply-to": "queues"}
    client.put("policies/%2F/short", json=policy)
    connection = pika.BlockingConnection(pika.URLParameters(http_node.node.uri))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare(QUEUE, durable=True, arguments={"x-max-length": 1000})
    channel.queue_bind(QUEUE, "amq.topic", "order.#")
    for _ in range(10):
        channel.basic_publish("amq.topic", "order.new", b"content")
    channel.basic_get(QUEUE, auto_ack=True)
    channel.basic_get(QUEUE)
    taken = connection.channel()
    taken.basic_qos(prefetch_count=2)
    for method, *_ in taken.consume(QUEUE):
        taken.basic_ack(method.delivery_tag)
        break
    eventually(lambda: client.get(f"queues/%2F/{QUEUE}").json().get("messages") == 8, "counts")
    eventually(lambda: bool(client.get("connections").json()), "the connection is listed")
    eventually(lambda: has_rates(client, f"queues/%2F/{QUEUE}", "publish"), "the queue has rates")
    eventually(lambda: has_rates(client, "exchanges/%2F/amq.topic", "publish_in"), "rates")
    yield client
    connection.close()


def has_rates(client: httpx.Client, path: str, counter: str) -> bool:
    """Whether the object at `path` has been published to, and the API has taken a rate of it."""
    stats = client.get(path).json()["message_stats"]
    return bool(stats.get(counter)) and "rate" in stats.get(f"{counter}_details", {})


def objects(api: httpx.Client, scrape: Scrape) -> list[dict[str, Any]]:
    """The object of a reply, or those of its list or page, but for what the broker made itself."""
    node = api.get("overview").json()["node"]
    path = scrape.path.format(node=node, queue=quote_plus(QUEUE), vhost=quote_plus("/"))
    reply = api.get(path)
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("application/json")
    body = reply.json()
    if isinstance(body, dict):
        page: list[dict[str, Any]] = body.get("items", [body])
        return page
    own = "amq.topic" if path.startswith("exchanges") else QUEUE
    named = [row for row in body if row.get("name") == own]
    return named or body


def value_at(row: Any, path: str) -> Any:
    for name in path.split("."):
        row = row[name]
    return row


@pytest.mark.parametrize(
    ("tool", "scrape"),
    [pytest.param(tool, each, id=f"{tool}:{each.path}") for tool in TOOLS for each in TOOLS[tool]],
)
def test_the_fields_that_a_tool_decodes(api: httpx.Client, tool: str, scrape: Scrape) -> None:
    rows = objects(api, scrape)
    assert rows or not scrape.fields
    for row in rows:
        for name, kind in scrape.fields.items():
            if name.endswith(ABSENT):
                continue
            value = value_at(row, name)
            # A boolean is no number in JSON.
            assert isinstance(value, kind), (name, value)
            assert kind is bool or not isinstance(value, bool), (name, value)


def test_the_format_that_rabbitmq_exporter_prefers(api: httpx.Client) -> None:
    """The exporter asks for Erlang's format first, and reads the one that the reply names."""
    accepted = {"accept": "application/bert, application/json;q=0.1"}
    reply = api.get("overview", headers=accepted)
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/json")
