"""Every call of amqpstorm's `ManagementApi` on a node, with its result."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from amqpstorm.connection import Connection
from amqpstorm.management.api import ManagementApi
from amqpstorm.management.exception import ApiConnectionError, ApiError
from amqpstorm.message import Message

from tests.support.awaiting import eventually
from tests.support.brokers.http_api import HttpNode

pytestmark = pytest.mark.interop

VHOST = "shop/eu"
# A ManagementApi, whose annotations differ from what its methods return.
Api = Any


@pytest.fixture(scope="module")
def api(http_node: HttpNode) -> Iterator[Api]:
    with ManagementApi(http_node.url, "guest", "guest", timeout=30) as api:
        assert api.virtual_host.create(VHOST) is None
        yield api


@pytest.fixture
def connection(http_node: HttpNode) -> Iterator[Connection]:
    connection = Connection(
        "127.0.0.1", "guest", "guest", http_node.node.port,
        client_properties={"platform": "Atari"},
    )  # fmt: skip
    yield connection
    connection.close()


def names(rows: list[dict[str, str]]) -> list[str]:
    return [row["name"] for row in rows]


def test_the_broker(http_node: HttpNode, api: Api) -> None:
    assert api.aliveness_test() == api.aliveness_test("/") == {"status": "ok"}
    overview = api.overview()
    assert overview["management_version"] == "3.10.8"
    (context,) = overview["contexts"]
    assert (context["node"], context["path"]) == (overview["node"], "/")
    assert context["port"] == str(urlsplit(http_node.url).port)
    assert api.cluster_name() == {"name": overview["cluster_name"]}
    (node,) = api.nodes()
    assert node["name"] == overview["node"] == api.node(node["name"])["name"]
    assert api.whoami() == {"name": "guest", "tags": ["administrator"]}
    # The list of processes is of a plug-in that RabbitMQ has disabled at first.
    with pytest.raises(ApiError, match="NOT-FOUND"):
        api.top()


def test_a_slash_at_the_end_of_the_address(http_node: HttpNode) -> None:
    for url in (http_node.url, http_node.url.rstrip("/")):
        assert ManagementApi(url, "guest", "guest").aliveness_test() == {"status": "ok"}


def test_errors(http_node: HttpNode, api: Api) -> None:
    with pytest.raises(ApiError, match="401 Client Error: Unauthorized"):
        ManagementApi(http_node.url, "guest", "wrong").aliveness_test()
    with pytest.raises(ApiConnectionError):
        ManagementApi("http://127.0.0.1:1", "guest", "guest").overview()
    for declare in (api.queue.declare, api.exchange.declare):
        with pytest.raises(ApiError, match="NOT-FOUND") as missing:
            declare("none", passive=True)
        assert missing.value.error_code == 404


def test_messages(api: Api) -> None:
    assert api.queue.declare("q") is None
    assert api.basic.publish("hello", "q") == {"routed": True}
    assert api.basic.publish("hello", "none") == {"routed": False}
    (message,) = api.basic.get("q", requeue=True)
    assert isinstance(message, Message)
    assert (message.body, message.properties) == ("hello", {})
    (row,) = api.basic.get("q", requeue=False, to_dict=True)
    assert (row["payload"], row["redelivered"], row["message_count"]) == ("hello", True, 0)
    assert api.basic.get("q") == []
    properties = {"content_type": "text/plain", "delivery_mode": 2, "headers": {"k": "v"}}
    assert api.basic.publish("AAH/", "q", payload_encoding="base64", properties=properties)
    (row,) = api.basic.get("q", to_dict=True, count=5, truncate=3, encoding="base64")
    assert (row["payload"], row["payload_bytes"], row["properties"]) == ("AAH/", 3, properties)
    api.queue.delete("q")


def test_queues(api: Api) -> None:
    for name in ("abc", "def", "ghi"):
        assert api.queue.declare(name, VHOST, durable=True, arguments={"x-max-length": 9}) is None
    declared = api.queue.declare("abc", VHOST, passive=True)
    assert declared["name"] == api.queue.get("abc", VHOST)["name"] == "abc"
    assert (declared["durable"], declared["auto_delete"]) == (True, False)
    assert (declared["arguments"], declared["node"]) == (
        {"x-max-length": 9},
        api.overview()["node"],
    )
    for size in (100, 1, None):
        found = api.queue.list(VHOST, page_size=size)
        assert names(found) == ["abc", "def", "ghi"]
    assert names(api.queue.list(VHOST, name="AB")) == ["abc"]
    assert names(api.queue.list(VHOST, name="^[ad]", use_regex=True, page_size=1)) == ["abc", "def"]
    assert {"abc", "def", "ghi"} <= set(names(api.queue.list(show_all=True)))
    assert api.queue.purge("abc", VHOST) is None
    assert api.queue.delete("ghi", VHOST) is None
    with pytest.raises(ApiError, match="NOT-FOUND"):
        api.queue.get("ghi", VHOST)


def test_bindings_of_queues(api: Api) -> None:
    api.queue.declare("bound", VHOST)
    (implicit,) = api.queue.bindings("bound", VHOST)
    assert (implicit["source"], implicit["routing_key"]) == ("", "bound")
    assert api.queue.bind("bound", "amq.topic", "a.#", VHOST) is None
    assert api.queue.bind("bound", "amq.headers", "", VHOST, {"x-match": "all", "n": 1}) is None
    rows = {row["source"]: row for row in api.queue.bindings("bound", VHOST)}
    assert rows["amq.topic"]["properties_key"] == "a.%23"
    assert rows["amq.headers"]["arguments"] == {"x-match": "all", "n": 1}
    assert api.queue.unbind("bound", "amq.topic", "a.%2523", VHOST) is None
    hashed = rows["amq.headers"]["properties_key"]
    assert api.queue.unbind("bound", "amq.headers", "", VHOST, properties_key=hashed) is None
    assert api.queue.bindings("bound", VHOST) == [implicit]


def test_exchanges(api: Api) -> None:
    assert api.exchange.declare("x", "topic", VHOST, durable=True, internal=True) is None
    exchange = api.exchange.declare("x", virtual_host=VHOST, passive=True)
    assert exchange == api.exchange.get("x", VHOST)
    assert (exchange["type"], exchange["durable"], exchange["internal"]) == ("topic", True, True)
    assert {"x", "amq.direct", ""} <= set(names(api.exchange.list(VHOST)))
    assert names(api.exchange.list(show_all=True, name="^x$", use_regex=True)) == ["x"]
    before = api.exchange.bindings("amq.match", VHOST)
    assert api.exchange.bind("x", "amq.match", "key", VHOST) is None
    (bound,) = api.exchange.bindings("amq.match", VHOST)
    assert (bound["destination"], bound["destination_type"]) == ("x", "exchange")
    assert api.exchange.unbind("x", "amq.match", "key", VHOST) is None
    assert api.exchange.bindings("amq.match", VHOST) == before == []
    assert api.exchange.delete("x", VHOST) is None
    with pytest.raises(ApiError, match="NOT-FOUND"):
        api.exchange.get("x", VHOST)


def test_connections_and_channels(api: Api, connection: Connection) -> None:
    connection.channel().queue.declare("own", exclusive=True)
    eventually(lambda: len(api.channel.list()) == 1, "the channel is listed")
    eventually(lambda: len(api.connection.list()) == 1, "its connection alone is listed")
    (row,) = api.connection.list()
    owner = {name: row[name] for name in ("name", "peer_host", "peer_port")}
    assert api.queue.get("own")["owner_pid_details"] == owner
    assert row["client_properties"]["platform"] == "Atari"
    assert names(api.connection.list(name="^127", use_regex=True, page_size=1)) == [row["name"]]
    assert api.connection.get(row["name"])["peer_port"] == row["peer_port"]
    (channel,) = api.channel.list(page_size=10)
    assert channel["connection_details"]["name"] == row["name"]
    assert api.channel.get(channel["name"])["number"] == channel["number"] == 1
    assert api.connection.close(row["name"], reason="enough") is None
    eventually(lambda: connection.is_closed, "the client sees its connection closed")
    (error,) = connection.exceptions
    assert "enough" in str(error)
    with pytest.raises(ApiError, match="NOT-FOUND"):
        api.connection.get("none")


def test_users(api: Api) -> None:
    assert api.user.get("guest")["tags"] == ["administrator"]
    assert api.user.create("ann", "secret", tags="monitoring") is None
    assert api.user.create("bob", "secret", tags=["management", "policymaker"]) is None
    tags = {user["name"]: user["tags"] for user in api.user.list()}
    assert (tags["ann"], tags["bob"]) == (["monitoring"], ["management", "policymaker"])
    assert api.user.set_permission("ann", VHOST, "^c", "^w", "^r") is None
    permission = {
        "user": "ann", "vhost": VHOST, "configure": "^c", "write": "^w", "read": "^r",
    }  # fmt: skip
    assert api.user.get_permission("ann", VHOST) == permission
    assert api.user.get_permissions("ann") == [permission]
    assert permission in api.virtual_host.get_permissions(VHOST)
    assert api.user.delete_permission("ann", VHOST) is None
    assert api.user.get_permissions("ann") == []
    assert api.user.delete("ann") is None
    api.user.create("ann", "secret")
    assert api.user.delete(["ann", "bob"]) is None
    assert names(api.user.list()) == ["guest"]


def test_vhosts(api: Api) -> None:
    assert api.virtual_host.create("v") is None
    assert api.virtual_host.get("v")["name"] == "v"
    assert {"/", "v"} <= set(names(api.virtual_host.list()))
    (permission,) = api.virtual_host.get_permissions("v")
    assert (permission["user"], permission["configure"]) == ("guest", ".*")
    assert api.virtual_host.delete("v") is None
    with pytest.raises(ApiError, match="NOT-FOUND"):
        api.virtual_host.get("v")


def test_health_checks(api: Api) -> None:
    assert api.healthchecks.get() == {"status": "ok"}
    assert api.healthchecks.get(api.overview()["node"]) == {"status": "ok"}
