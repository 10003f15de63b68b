"""The pages of metrics over HTTP: who may read them, and what they are."""

import asyncio
from pathlib import Path

import httpx
import pytest

from tests.support.brokers.amqp_frames import SocketLink
from tests.support.brokers.amqp_peer import Peer
from tests.support.brokers.http_api import HttpNode
from warrenmq.management.process import place_of_uri
from warrenmq.management.prometheus.pages import make_metrics_app
from warrenmq.server.config.options.http_listeners import MetricsOptions

PLAIN = "text/plain; version=0.0.4; charset=utf-8"


@pytest.fixture(scope="module")
def http(http_node: HttpNode) -> httpx.Client:
    """A client of the API's port; the node has a queue."""
    peer = Peer(SocketLink("127.0.0.1", http_node.node.port))
    peer.open()
    peer.channel().declare(b"orders")
    peer.close()
    client = http_node.client()
    client.base_url = httpx.URL(http_node.url)
    return client


def test_metrics_are_text_of_prometheus_or_openmetrics(http: httpx.Client) -> None:
    reply = http.get("metrics")
    assert (reply.status_code, reply.headers["content-type"]) == (200, PLAIN)
    assert "rabbitmq_queue_messages_ready 0.0\n" in reply.text
    labelled = 'rabbitmq_queue_messages_ready{queue="orders",vhost="/"} 0.0\n'
    assert labelled in http.get("metrics/per-object").text
    openmetrics = http.get("metrics", headers={"accept": "application/openmetrics-text"})
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    assert openmetrics.text.endswith("# EOF\n")


def test_families_and_vhosts_are_chosen_by_the_query(http: httpx.Client) -> None:
    query = {"family": ["queue_coarse_metrics", "no_such"], "vhost": ["/"]}
    text = http.get("metrics/detailed", params=query).text
    assert 'rabbitmq_detailed_queue_messages{queue="orders",vhost="/"} 0.0\n' in text
    assert "rabbitmq_detailed_connection" not in text
    elsewhere = http.get("metrics/detailed", params=query | {"vhost": ["other"]}).text
    assert "orders" not in elsewhere


def test_the_port_of_the_api_asks_for_a_monitor(http_node: HttpNode) -> None:
    assert httpx.get(f"{http_node.url}metrics").status_code == 401
    for tag, status in (("management", 401), ("monitoring", 200)):
        client = http_node.add_user(tag, tag)
        assert client.get(f"{http_node.url}metrics").status_code == status


def test_a_port_of_metrics_alone_asks_for_no_login(tmp_path: Path) -> None:
    node = HttpNode(tmp_path)
    node.node.metrics = "127.0.0.1:0"
    node.node.settings = ("prometheus.return_per_object_metrics=true",)
    node.start()
    url = node.metrics_url
    assert "rabbitmq_identity_info{" in httpx.get(url, timeout=30).text
    # There are no queues, and an aggregated page would have their sum.
    assert "rabbitmq_queue_messages_ready 0.0" not in httpx.get(f"{url}/", timeout=30).text
    assert httpx.post(url).status_code == 405
    assert httpx.get(f"{url}/no").json()["error"] == "Object Not Found"
    node.stop()


def test_no_node_is_no_metrics() -> None:
    app = make_metrics_app(place_of_uri("amqp://127.0.0.1:1"), MetricsOptions(path="/m"))

    async def status() -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
            return (await client.get("http://node/m")).status_code

    assert asyncio.run(status()) == 503
