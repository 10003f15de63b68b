"""The firehose: messages of a traced vhost are copied to amq.rabbitmq.trace, as in RabbitMQ."""

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.brokers.node_thread import NodeThread
from warrenmq.admin.definitions.administration import Refusal
from warrenmq.broker.definitions.metadata import Change, PutVhost


def set_tracing(node: NodeThread, is_on: bool) -> None:
    done: Future[Refusal | None] = Future()

    def plan() -> list[Change]:
        known = node.node.broker.vhosts[b"/"].definition
        return [PutVhost(known.name, known.id, is_tracing=is_on)]

    def run() -> None:
        administration = node.node.admin.administration
        assert administration is not None
        administration.run(plan, done.set_result)

    node.call(run)
    assert done.result(60) is None


def copies(channel: BlockingChannel, count: int) -> list[tuple[str, dict[str, Any], bytes]]:
    """The next `count` copies in the queue `trace`: routing key, headers, body."""
    found: list[tuple[str, dict[str, Any], bytes]] = []
    for method, properties, body in channel.consume("trace", auto_ack=True):
        found.append((method.routing_key, properties.headers, body))
        if len(found) == count:
            break
    channel.cancel()
    return found


@pytest.fixture
def node(tmp_path: Path) -> Any:
    running = NodeThread(tmp_path)
    yield running
    running.stop()


def test_messages_of_a_traced_vhost_are_copied(node: NodeThread) -> None:
    """Publishes, deliveries and gets are copied while tracing is on, on channels that are open."""
    connection = pika.BlockingConnection(pika.URLParameters(node.uri))
    channel = connection.channel()
    watcher = connection.channel()
    watcher.queue_declare("trace")
    watcher.queue_bind("trace", "amq.rabbitmq.trace", "#")
    channel.queue_declare("q")
    channel.confirm_delivery()
    channel.basic_publish("", "q", b"untraced")
    set_tracing(node, True)
    properties = pika.BasicProperties(
        content_type="text/plain", delivery_mode=2, headers={"CC": ["other"], "h": 1}
    )
    channel.basic_publish("", "q", b"traced", properties)
    channel.basic_get("q", auto_ack=True)
    channel.basic_get("q", auto_ack=True)
    publish, first, second = copies(watcher, 3)
    assert publish[0] == "publish."
    assert publish[2] == b"traced"
    headers = publish[1]
    assert headers["exchange_name"] == ""
    assert headers["routing_keys"] == ["q", "other"]
    assert headers["routed_queues"] == ["q"]
    assert headers["properties"] == {
        "content_type": "text/plain",
        "delivery_mode": 2,
        "headers": {"CC": ["other"], "h": 1},
    }
    assert (headers["vhost"], headers["user"], headers["channel"]) == ("/", "guest", 1)
    assert headers["node"] == node.node.config.node_name
    assert [copy[0] for copy in (first, second)] == ["deliver.q", "deliver.q"]
    assert [copy[2] for copy in (first, second)] == [b"untraced", b"traced"]
    assert second[1]["redelivered"] == 0
    set_tracing(node, False)
    channel.basic_publish("", "q", b"untraced again")
    assert watcher.queue_declare("trace", passive=True).method.message_count == 0
    connection.close()
