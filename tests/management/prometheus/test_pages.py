"""The pages of metrics over HTTP: who may read them, and what they are."""

import httpx
import pytest

from bench.ports import await_port, held_port
from tests.support.brokers.amqp_frames import SocketLink
from tests.support.brokers.amqp_peer import Peer
from tests.support.brokers.http_api import HttpNode
from warrenmq.management.process import place_of_directory, place_of_uri, serve_metrics

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


def test_a_port_of_metrics_alone_asks_for_no_login(http_node: HttpNode) -> None:
    place = place_of_directory(http_node.node.directory / "data")
    port = held_port(place)
    serve_metrics(place, "127.0.0.1", port)
    await_port(port)
    reply = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=30)
    assert "rabbitmq_identity_info{" in reply.text
    with pytest.raises(OSError, match="in use"):
        serve_metrics(place, "127.0.0.1", port)


def test_no_node_is_no_metrics() -> None:
    place = place_of_uri("amqp://127.0.0.1:1")
    port = held_port(place)
    serve_metrics(place, "127.0.0.1", port)
    await_port(port)
    assert httpx.get(f"http://127.0.0.1:{port}/metrics").status_code == 503
