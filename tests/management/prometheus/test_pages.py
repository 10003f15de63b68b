"""The pages of metrics over HTTP: who may read them, and what they are."""

from collections.abc import Iterator

import httpx
import pytest

from bench.ports import await_port, held_port
from tests.management.prometheus.served import served
from tests.support.brokers.node_thread import NodeThread
from warrenmq.management.app import make_app
from warrenmq.management.process import place_of_uri, serve_metrics
from warrenmq.management.prometheus.pages import make_metrics_app

GUEST = ("guest", "guest")
PLAIN = "text/plain; version=0.0.4; charset=utf-8"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeThread]:
    """A node with a queue."""
    node = NodeThread(tmp_path_factory.mktemp("node"))
    peer = node.peer()
    peer.open()
    peer.channel().declare(b"orders")
    peer.close()
    yield node
    node.stop()


def test_a_port_of_metrics_alone_asks_for_no_login(node: NodeThread) -> None:
    with served(make_metrics_app(place_of_uri(node.uri))) as http:
        reply = http.get("/metrics")
        assert (reply.status_code, reply.headers["content-type"]) == (200, PLAIN)
        assert "rabbitmq_queue_messages_ready 0.0\n" in reply.text
        labelled = 'rabbitmq_queue_messages_ready{queue="orders",vhost="/"} 0.0\n'
        assert labelled in http.get("/metrics/per-object").text
        openmetrics = http.get("/metrics", headers={"accept": "application/openmetrics-text"})
        assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
        assert openmetrics.text.endswith("# EOF\n")


def test_families_and_vhosts_are_chosen_by_the_query(node: NodeThread) -> None:
    with served(make_metrics_app(place_of_uri(node.uri))) as http:
        query = {"family": ["queue_coarse_metrics", "no_such"], "vhost": ["/"]}
        text = http.get("/metrics/detailed", params=query).text
        assert 'rabbitmq_detailed_queue_messages{queue="orders",vhost="/"} 0.0\n' in text
        assert "rabbitmq_detailed_connection" not in text
        elsewhere = http.get("/metrics/detailed", params=query | {"vhost": ["other"]}).text
        assert "orders" not in elsewhere


def test_the_port_of_the_api_asks_for_a_monitor(node: NodeThread) -> None:
    with served(make_app(place_of_uri(node.uri))) as http:
        assert http.get("/metrics").status_code == 401
        assert "rabbitmq_identity_info{" in http.get("/metrics", auth=GUEST).text


def test_no_node_is_no_metrics() -> None:
    with served(make_metrics_app(place_of_uri("amqp://127.0.0.1:1"))) as http:
        assert http.get("/metrics").status_code == 503


def test_the_process_serves_metrics_at_a_port_of_their_own(node: NodeThread) -> None:
    place = place_of_uri(node.uri)
    port = held_port(place)
    serve_metrics(place, "127.0.0.1", port)
    await_port(port)
    reply = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=30)
    assert "rabbitmq_identity_info{" in reply.text
    with pytest.raises(OSError, match="in use"):
        serve_metrics(place, "127.0.0.1", port)
