"""Metrics of a real node say what the node has, under RabbitMQ's names."""

from collections.abc import Iterator

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics

from tests.management.prometheus.scraped import AGGREGATED, PER_OBJECT, scrape
from tests.support.brokers.mirrors import MirrorsOfTest, copy, facts
from tests.support.brokers.node_thread import NodeThread
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.requests import GroupOpened, OpenGroup
from warrenmq.admin.protocol.sinks import OpenStage, StageOpened
from warrenmq.management.prometheus.metrics import label_text, object_family
from warrenmq.management.prometheus.scrape import FAMILIES, Page
from warrenmq.management.prometheus.scrape import scrape as families_of
from warrenmq.management.prometheus.text import PIECE_BYTES, encode
from warrenmq.vocabulary.rabbitmq_version import RABBITMQ_VERSION


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeThread]:
    """A node with two queues, and a client that holds one unacked message of three."""
    node = NodeThread(tmp_path_factory.mktemp("node"), "cluster_name=rabbits")
    peer = node.peer()
    peer.open()
    channel = peer.channel()
    channel.declare(b"orders")
    channel.declare(b'odd "name" \\')
    channel.publish_each(b"orders", b"one", b"three", b"five")
    channel.get(b"orders")
    channel.bind(b"orders", b"amq.fanout")
    yield node
    peer.close()
    node.stop()


def test_the_identity_is_that_of_node_and_cluster(node: NodeThread) -> None:
    found = scrape(node)
    (identity,) = found.labelled("rabbitmq_identity_info")
    assert identity["rabbitmq_cluster"] == "rabbits" and identity["rabbitmq_node"]
    (build,) = found.labelled("rabbitmq_build_info")
    assert build["rabbitmq_version"] == RABBITMQ_VERSION


def test_aggregated_metrics_are_sums_without_labels(node: NodeThread) -> None:
    found = scrape(node)
    assert found("rabbitmq_queue_messages_ready") == 2
    assert found("rabbitmq_queue_messages_unacked") == 1
    assert found("rabbitmq_queue_messages") == 3
    assert found("rabbitmq_queue_messages_bytes") == len("onethreefive")
    assert (found("rabbitmq_queues"), found("rabbitmq_consumers")) == (2, 0)
    assert (found("rabbitmq_connections"), found("rabbitmq_channels")) == (1, 1)
    assert found("rabbitmq_channel_messages_unacked") == 1
    assert found("warren_queue_messages", **{"class": "alpha"}) == 2
    assert found("rabbitmq_process_open_fds") < found("rabbitmq_process_max_fds")
    assert found("rabbitmq_alarms_memory_used_watermark") == 0
    assert found("warren_published_bytes_total", vhost="/") == 0


def test_metrics_of_objects_name_each_object(node: NodeThread) -> None:
    found = scrape(node, PER_OBJECT)
    assert found("rabbitmq_queue_messages_ready", vhost="/", queue="orders") == 2
    assert found("rabbitmq_queue_messages_ready", vhost="/", queue='odd "name" \\') == 0
    (labels,) = found.labelled("rabbitmq_connection_incoming_bytes_total")
    assert set(labels) == {"connection"}
    assert found("rabbitmq_connection_incoming_bytes_total", **labels) > 0


def test_a_page_of_chosen_families_has_a_prefix_and_no_others(node: NodeThread) -> None:
    page = Page(frozenset(["queue_coarse_metrics"]), False, "detailed_", frozenset(["/"]))
    found = scrape(node, page)
    infos = {"rabbitmq_identity_info", "rabbitmq_build_info", "warren_build_info"}
    assert found.names - infos == {
        f"rabbitmq_detailed_queue_{name}"
        for name in ("messages", "messages_ready", "messages_unacked")
    }
    other = Page(page.families, False, "detailed_", frozenset(["other"]))
    assert scrape(node, other).names == infos


def test_exchanges_are_shown_with_their_bindings(node: NodeThread) -> None:
    found = scrape(node, Page(frozenset(FAMILIES), False, "detailed_"))
    labels = {"vhost": "/", "exchange": "amq.fanout", "type": "fanout"}
    assert found("rabbitmq_cluster_exchange_bindings", **labels) == 1
    assert found("rabbitmq_cluster_exchange_name", **labels) == 1
    assert found("rabbitmq_cluster_vhost_status", vhost="/") == 1


def test_openmetrics_is_for_those_that_ask(node: NodeThread) -> None:
    """Its reader refuses a text that is not whole, or whose types do not fit its names."""
    address = NodeAddress(node.uri)
    address.vhost = ""
    accept = "application/openmetrics-text;version=1.0.0"
    with AdminClient(address) as client:
        for page in (AGGREGATED, PER_OBJECT):
            text = b"".join(encode(families_of(client, page), accept)).decode()
            assert list(openmetrics(text)) and " # {" not in text
            assert text.count("# EOF") == 1 and text.endswith("# EOF\n")


def test_pages_of_many_objects_come_in_pieces() -> None:
    names = [label_text(("queue",), (f"q{number}",)) for number in range(PIECE_BYTES // 8)]
    family = object_family("messages", "counter", "text", names, [1.0] * len(names))
    pieces = list(encode([family, family], "application/openmetrics-text"))
    assert len(pieces) == 3 and pieces[-1] == b"# EOF\n"
    assert b'messages_total{queue="q7"} 1.0\n' in pieces[0]


def test_durations_are_histograms(node: NodeThread) -> None:
    found = scrape(node)
    name = "warren_event_loop_lag_seconds"
    assert found(f"{name}_bucket", le="+Inf") == found(f"{name}_count") > 0
    assert found(f"{name}_bucket", le="0.0001") <= found(f"{name}_bucket", le="0.1")
    assert found("warren_checkpoint_seconds_count") > 0
    assert found("rabbitmq_io_sync_ops_total") == found("warren_fsync_seconds_count")
    assert found("rabbitmq_io_write_bytes_total") > 0
    detailed = scrape(node, Page(frozenset(["warren_latency_metrics"]), False, "detailed_"))
    assert detailed("warren_detailed_journal_batch_bytes_bucket", le="1024") >= 0


def test_the_global_counters_have_the_labels_of_rabbitmq(node: NodeThread) -> None:
    found = scrape(node)
    assert found("rabbitmq_global_messages_received_total", protocol="amqp091") == 3
    classic = {"protocol": "amqp091", "queue_type": "rabbit_classic_queue"}
    assert found("rabbitmq_global_messages_delivered_get_manual_ack_total", **classic) == 1
    assert found("rabbitmq_global_messages_delivered_total", **classic) == 1
    assert found("rabbitmq_channel_messages_published_total") == 3
    assert found("rabbitmq_channel_get_ack_total") == 1
    assert found("rabbitmq_queues_created_total") == 2
    assert found("rabbitmq_connection_incoming_bytes_total") > 0
    assert found("rabbitmq_auth_attempts_succeeded_total", protocol="amqp091") == 1


def test_reader_groups_and_sinks_are_shown_one_by_one(node: NodeThread) -> None:
    peer = node.peer()
    peer.open()
    channel = peer.channel()
    channel.declare(b"read", durable=True)
    channel.publish_each(b"read", b"1", b"2")
    channel.count(b"read")
    peer.close()
    with AdminClient(NodeAddress(node.uri)) as client:
        client.request(OpenGroup("reports", [b"read"]), GroupOpened)
        client.request(OpenStage("invoices", 1), StageOpened)
        found = scrape(node)
        assert found("warren_reader_group_lag_messages", vhost="/", group="reports") == 2
        assert found("warren_reader_group_held_messages", vhost="/", group="reports") == 0
        assert found("warren_reader_group_lag_seconds", vhost="/", group="reports") >= 0
        assert found("warren_sink_stages", vhost="/", sink="invoices") == 1
        page = Page(frozenset(["warren_reader_metrics"]), False, "detailed_", frozenset(["v"]))
        assert not any("reader_group" in name for name in scrape(node, page).names)


def test_mirrors_are_summed_up_and_shown_one_by_one(node: NodeThread) -> None:
    mirrors = MirrorsOfTest()
    mirrors.put("orders", facts(copy("n2@host"), copy("n3@host", False, True, (7, 70))))
    mirrors.put('odd "name" \\', facts(copy("n2@host", False, False)))
    node.node.broker.mirrors = mirrors
    sums = scrape(node)
    each = scrape(node, PER_OBJECT)
    node.node.broker.mirrors = None
    for found in (sums, each):
        assert found("warren_mirrored_queues") == 2 and found("warren_mirrors") == 3
        assert found("warren_unsynchronised_mirrors") == 2
        assert found("warren_unprotected_queues") == 1
    labels = {"vhost": "/", "queue": "orders", "mirror": "n3@host"}
    assert each("warren_mirror_lag_messages", **labels) == 7
    assert each("warren_mirror_lag_bytes", **labels) == 70
    assert each("warren_mirror_synchronised", **labels) == 0
