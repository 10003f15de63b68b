"""Every method of pyrabbit2's `Client` on a node, with its result."""

from urllib.parse import quote, urlsplit

import pika
import pytest
from pyrabbit2 import api
from pyrabbit2.api import Client
from pyrabbit2.http import HTTPError

from tests.support.awaiting import eventually
from tests.support.brokers.http_api import HttpNode

pytestmark = pytest.mark.interop

CREATED, CHANGED = 201, 204
# A vhost and a queue whose names need quoting.
VHOST = "shop/eu"
QUEUE = "orders 100%"


@pytest.fixture(scope="module")
def client(http_node: HttpNode) -> Client:
    client = Client(urlsplit(http_node.url).netloc, "guest", "guest", timeout=30)
    assert client.create_vhost(VHOST) == CREATED
    assert client.create_queue(VHOST, QUEUE, durable=True) == CREATED
    return client


def names(rows: list[dict[str, str]]) -> list[str]:
    return [row["name"] for row in rows]


def test_the_broker(client: Client) -> None:
    overview = client.get_overview()
    assert overview["rabbitmq_version"] == "3.10.8"
    (node,) = client.get_nodes()
    assert (node["name"], node["running"]) == (overview["node"], True)
    assert client.get_cluster_name() == {"name": overview["cluster_name"]}
    assert client.get_whoami() == {"name": "guest", "tags": ["administrator"]}
    assert isinstance(client.get_extensions(), list)
    assert client.is_alive() is True
    with pytest.raises(api.APIError, match="No vhost named 'none'"):
        client.is_alive("none")


def test_vhosts(client: Client) -> None:
    assert client.create_vhost("v") == CREATED
    assert client.create_vhost("v") == CHANGED
    assert client.get_vhost("v")["name"] == "v"
    assert {"/", "v", VHOST} <= set(client.get_vhost_names())
    assert client.delete_vhost("v") == CHANGED
    with pytest.raises(HTTPError) as missing:
        client.get_vhost("v")
    assert missing.value.status == 404
    assert missing.value.detail == "Not Found"


def test_users_and_permissions(client: Client) -> None:
    with_hash = "6A1Qoq2RbIHbsAgJ1+5oR4hYHnWIqjlOXq2vUqGKOHpiv8bH"
    assert client.create_user("ann", "secret", tags="management") == CREATED
    assert client.create_user("ann", password_hash=with_hash, tags="monitoring") == CHANGED
    assert {user["name"]: user["tags"] for user in client.get_users()} == {
        "ann": ["monitoring"],
        "guest": ["administrator"],
    }
    assert client.set_vhost_permissions(VHOST, "ann", "^c", "^r", "^w") == CREATED
    permission = {
        "user": "ann", "vhost": VHOST, "configure": "^c", "read": "^r", "write": "^w",
    }  # fmt: skip
    assert client.get_permission(VHOST, "ann") == permission
    assert client.get_user_permissions("ann") == [permission]
    assert permission in client.get_vhost_permissions(VHOST)
    assert permission in client.get_permissions()
    assert client.delete_permission(VHOST, "ann") == CHANGED
    with pytest.raises(HTTPError):
        client.get_permission(VHOST, "ann")
    assert client.delete_user("ann") == CHANGED
    assert "ann" not in names(client.get_users())


def test_a_wrong_password(http_node: HttpNode) -> None:
    with pytest.raises(api.PermissionError):
        Client(urlsplit(http_node.url).netloc, "guest", "wrong", timeout=30).get_overview()


def test_exchanges_and_bindings(client: Client) -> None:
    assert client.create_exchange(VHOST, "x/1", "topic", arguments=[]) is True
    exchange = client.get_exchange(VHOST, "x/1")
    assert (exchange["type"], exchange["durable"], exchange["internal"]) == ("topic", True, False)
    assert "x/1" in names(client.get_exchanges(VHOST))
    assert "x/1" in names(client.get_exchanges())
    assert client.create_binding(VHOST, "x/1", QUEUE, "order.new") == CREATED
    binding = {
        "source": "x/1",
        "vhost": VHOST,
        "destination": QUEUE,
        "destination_type": "queue",
        "routing_key": "order.new",
        "arguments": {},
        "properties_key": "order.new",
    }
    assert binding in client.get_queue_bindings(VHOST, QUEUE)
    assert binding in client.get_bindings()
    assert client.publish(VHOST, "x/1", "order.new", "hello") is True
    assert client.publish(VHOST, "x/1", "order.old", "hello") is False
    assert client.delete_binding(VHOST, "x/1", QUEUE, "order.new") == CHANGED
    assert binding not in client.get_bindings()
    assert client.delete_exchange(VHOST, "x/1") is True
    assert "x/1" not in names(client.get_exchanges())
    client.purge_queue(VHOST, QUEUE)


def test_queues(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    assert client.create_queue(VHOST, "other", durable=True, arguments={"x-max-length": 9}) == 201
    assert client.create_queue(VHOST, "other", durable=True, arguments={"x-max-length": 9}) == 204
    assert client.get_queue(VHOST, "other")["arguments"] == {"x-max-length": 9}
    assert names(client.get_queues(VHOST)) == [QUEUE, "other"]
    assert {QUEUE, "other"} <= set(names(client.get_queues()))
    assert names(client.get_queues(VHOST, "OTH")) == ["other"]
    assert names(client.get_queues(pattern="^ord.*%$", regex=True)) == [QUEUE]
    assert names(client.get_queues(VHOST, "none")) == []
    for body in ("one", "two"):
        assert client.publish(VHOST, "amq.default", QUEUE, body) is True
    eventually(lambda: client.get_queue(VHOST, QUEUE).get("messages") == 2, "two messages")
    assert client.get_queue_depth(VHOST, QUEUE) == 2
    client.get_queue_depths(VHOST)
    assert [line[-3:] for line in capsys.readouterr().out.splitlines()] == [": 2", ": 0"]
    # The client quotes a vhost twice when it asks for some queues of it.
    assert client.create_vhost("plain") == CREATED
    assert client.create_queue("plain", "q") == CREATED
    eventually(lambda: client.get_queue("plain", "q").get("messages") == 0, "no messages")
    client.get_queue_depths("plain", ["q"])
    assert capsys.readouterr().out == "\tq: 0\n"
    assert client.purge_queue(VHOST, QUEUE) == CHANGED
    assert client.purge_queues([(QUEUE, VHOST), ("other", VHOST)]) is True
    assert client.get_messages(VHOST, QUEUE) == []
    assert client.delete_queue(VHOST, "other") == CHANGED
    with pytest.raises(HTTPError):
        client.get_queue(VHOST, "other")


def test_messages(client: Client) -> None:
    properties = {"delivery_mode": 2, "message_id": "m1", "headers": {"n": 1}}
    assert client.publish(VHOST, "amq.default", QUEUE, "hello", properties=properties) is True
    assert client.publish(VHOST, "amq.default", QUEUE, "AAH/", payload_enc="base64") is True
    first, second = client.get_messages(VHOST, QUEUE, count=5, requeue=True)
    assert (first["payload"], first["payload_encoding"]) == ("hello", "string")
    assert (first["properties"], first["redelivered"]) == (properties, False)
    assert (first["exchange"], first["routing_key"], first["message_count"]) == ("", QUEUE, 1)
    assert (second["payload"], second["payload_encoding"]) == ("AAH/", "base64")
    first, second = client.get_messages(VHOST, QUEUE, count=5, truncate=2)
    assert (first["payload"], first["payload_bytes"], first["redelivered"]) == ("he", 5, True)
    assert client.get_messages(VHOST, QUEUE) == []


def test_connections_and_channels(http_node: HttpNode, client: Client) -> None:
    uri = http_node.node.uri.replace("%2F", quote(VHOST, safe=""))
    connection = pika.BlockingConnection(pika.URLParameters(uri))
    connection.channel()
    eventually(lambda: len(client.get_channels()) == 1, "the channel is listed")
    eventually(lambda: len(client.get_connections()) == 1, "its connection alone is listed")
    (row,) = client.get_connections()
    assert (row["vhost"], row["user"]) == (VHOST, "guest")
    assert client.get_connection(row["name"])["peer_port"] == row["peer_port"]
    (channel,) = client.get_channels()
    assert client.get_channel(channel["name"])["number"] == 1
    assert client.delete_connection(row["name"]) is True
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        connection.process_data_events(time_limit=60)
    eventually(lambda: client.get_connections() == [], "the connection is gone")


def test_policies_and_shovels(client: Client) -> None:
    policy = {"pattern": "^hf", "definition": {"max-length": 5}, "priority": 1}
    assert client.get_all_policies() == []
    assert client.create_policy(VHOST, "p", **policy, **{"apply-to": "queues"}) == CREATED
    shown = {"vhost": VHOST, "name": "p", "apply-to": "queues", **policy}
    assert client.get_policy(VHOST, "p") == shown
    assert client.get_all_policies() == [shown]
    assert client.delete_policy(VHOST, "p") == CHANGED
    shovel = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"}
    assert client.get_all_shovels() == []
    assert client.create_shovel(VHOST, "s", **shovel) == CREATED
    assert client.get_shovel(VHOST, "s") == {
        "component": "shovel", "name": "s", "vhost": VHOST, "value": shovel,
    }  # fmt: skip
    assert len(client.get_all_shovels()) == 1
    assert client.delete_shovel(VHOST, "s") == CHANGED
    with pytest.raises(HTTPError):
        client.get_shovel(VHOST, "s")


def test_definitions(client: Client) -> None:
    definitions = client.get_definitions()
    assert (VHOST, QUEUE) in [(row["vhost"], row["name"]) for row in definitions["queues"]]
    assert VHOST in [row["name"] for row in definitions["vhosts"]]
