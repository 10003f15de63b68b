"""What the node has, as RabbitMQ's HTTP API shows it."""

from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.awaiting import eventually
from tests.support.brokers.http_api import HttpNode, refusal
from warrenmq.admin.protocol.control import SetGlobalParameter, SetPolicy, SetUserLimits

# Counters that a queue has from its first answer.
QUEUE_COUNTERS = (
    "messages", "messages_ready", "messages_unacknowledged", "messages_ram", "messages_persistent",
    "messages_ready_ram", "messages_unacknowledged_ram", "messages_paged_out", "message_bytes",
    "message_bytes_ready", "message_bytes_unacknowledged", "message_bytes_ram",
    "message_bytes_persistent", "message_bytes_paged_out", "memory", "consumers",
)  # fmt: skip


@pytest.fixture(scope="module")
def channel(http_node: HttpNode) -> Iterator[BlockingChannel]:
    """A client with a queue of 3 messages, one of them unacked, in a vhost "/"."""
    connection = pika.BlockingConnection(pika.URLParameters(http_node.node.uri))
    channel = connection.channel()
    channel.queue_declare("a/q", durable=True, arguments={"x-max-length": 10})
    channel.queue_declare("b")
    channel.exchange_declare("x", "topic")
    channel.queue_bind("a/q", "x", "order.*.created")
    channel.queue_bind("a/q", "x", "k", arguments={"n": 1})
    channel.exchange_bind("amq.fanout", "x", "")
    for body in (b"one", b"two", b"three"):
        channel.basic_publish("x", "order.1.created", body)
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume("a/q", lambda *_arguments: None, consumer_tag="c")
    client = http_node.client()
    eventually(
        lambda: client.get("queues/%2F/a%2Fq").json()["messages_unacknowledged"] == 1,
        "one message is unacked",
    )
    yield channel
    connection.close()


def test_a_queue(http_node: HttpNode, channel: BlockingChannel) -> None:
    client = http_node.client()
    row = client.get("queues/%2F/a%2Fq").json()
    assert (row["name"], row["vhost"], row["type"]) == ("a/q", "/", "classic")
    assert (row["messages"], row["messages_ready"], row["consumers"]) == (3, 2, 1)
    assert (row["durable"], row["exclusive"], row["auto_delete"]) == (True, False, False)
    assert (row["arguments"], row["state"]) == ({"x-max-length": 10}, "running")
    (consumer,) = row["consumer_details"]
    assert consumer["queue"] == {"name": "a/q", "vhost": "/"}
    assert consumer["channel_details"]["user"] == "guest"
    empty = client.get("queues/%2F/b").json()
    assert all(isinstance(empty[name], int) for name in QUEUE_COUNTERS)
    assert isinstance(empty["message_stats"], dict)
    assert client.get("queues/%2F/none").status_code == 404


def test_bindings(http_node: HttpNode, channel: BlockingChannel) -> None:
    client = http_node.client()
    rows = client.get("queues/%2F/a%2Fq/bindings").json()
    keys = {row["routing_key"]: row["properties_key"] for row in rows}
    assert keys["order.*.created"] == "order.%2A.created"
    assert keys["k"].startswith("k~") and {row["source"] for row in rows} == {"", "x"}
    pair = "bindings/%2F/e/x/q/a%2Fq"
    assert len(client.get(pair).json()) == 2
    assert client.get(f"{pair}/order.%252A.created").json()["destination"] == "a/q"
    assert client.get(f"{pair}/{keys['k']}").json()["arguments"] == {"n": 1}
    assert client.get(f"{pair}/none").status_code == 404
    (row,) = client.get("bindings/%2F/e/x/e/amq.fanout").json()
    assert (row["destination_type"], row["properties_key"]) == ("exchange", "~")
    assert client.get("exchanges/%2F/x/bindings/source").json()[0]["source"] == "x"
    assert client.get("exchanges/%2F/amq.fanout/bindings/destination").json() == [row]


def test_connections_and_channels(http_node: HttpNode, channel: BlockingChannel) -> None:
    client = http_node.client()
    (row,) = client.get("connections").json()
    assert (row["user"], row["vhost"], row["channels"]) == ("guest", "/", 1)
    assert (row["protocol"], row["state"]) == ("AMQP 0-9-1", "running")
    assert row["client_properties"]["product"] == "Pika Python Client Library"
    assert client.get(f"connections/{row['name']}").json()["name"] == row["name"]
    (shown,) = client.get(f"connections/{row['name']}/channels").json()
    assert shown["connection_details"]["peer_port"] == row["peer_port"]
    one = client.get(f"channels/{shown['name']}").json()
    assert (one["messages_unacknowledged"], one["consumer_count"]) == (1, 1)
    assert one["consumer_details"][0]["consumer_tag"] == "c"
    foreign = http_node.add_user("watcher", "management")
    assert foreign.get("connections").json() == foreign.get("channels").json() == []


def test_users_policies_and_permissions_come_in_pages(http_node: HttpNode) -> None:
    client = http_node.add_user("paged", "administrator")
    policy = {"pattern": "^paged", "definition": {"max-length": 1}}
    assert client.put("policies/%2F/paged", json=policy).status_code == 201
    for path in ("users", "policies", "policies/%2F"):
        found = client.get(f"{path}?page=1&page_size=1&name=^page&use_regex=true").json()
        assert [row["name"] for row in found["items"]] == ["paged"]
        assert found["filtered_count"] == 1
    for path in ("users/paged/permissions", "vhosts/%2F/permissions", "permissions"):
        found = client.get(f"{path}?page=1&page_size=1").json()
        assert found["total_count"] == len(client.get(path).json())
        # A permission has no name.
        assert client.get(f"{path}?page=1&name=x").json()["items"] == []
    assert client.delete("policies/%2F/paged").status_code == 204


def test_lists_are_sorted_filtered_and_paged(http_node: HttpNode, channel: BlockingChannel) -> None:
    client = http_node.client()

    def names(query: str) -> list[str]:
        return [row["name"] for row in client.get(f"queues?{query}").json()]

    assert names("sort=messages") == ["b", "a/q"]
    assert names("sort=messages&sort_reverse=true") == names("") == ["a/q", "b"]
    assert client.get("queues/%2F/b?columns=name,message_stats.disk_reads").json() == {
        "name": "b",
        "message_stats": {"disk_reads": 0},
    }
    page = client.get("queues?page=2&page_size=1&columns=name").json()
    assert page == {
        "filtered_count": 2,
        "item_count": 1,
        "items": [{"name": "b"}],
        "page": 2,
        "page_count": 2,
        "page_size": 1,
        "total_count": 2,
    }
    found = client.get("queues?page=1&name=^A/&use_regex=true&columns=name").json()
    assert (found["items"], found["filtered_count"]) == ([{"name": "a/q"}], 1)
    bad = "Pagination parameters are invalid"
    for query in ("page=x", "page=", "page=1&page_size=y", "page=1&name=(&use_regex=true"):
        assert refusal(client.get(f"queues?{query}")) == (400, "bad_request", bad), query
    for query in ("page=0", "page=-1", "page=1&page_size=0"):
        assert refusal(client.get(f"queues?{query}"))[1] == "invalid_pagination_parameters", query
    assert isinstance(client.get("queues?pagination=true").json(), list)
    assert client.get("queues/%2F/b?columns=name,none,arguments.none").json() == {"name": "b"}
    assert refusal(client.get("queues?page=9"))[:2] == (400, "page_out_of_range")
    too_large = client.get("queues?page=1&page_size=501")
    assert refusal(too_large)[:2] == (400, "invalid_pagination_parameters")


def test_queues_are_filtered_by_what_they_are(
    http_node: HttpNode, channel: BlockingChannel
) -> None:
    client = http_node.client()

    def names(query: str) -> list[str]:
        return [row["name"] for row in client.get(f"queues?{query}").json()]

    client.put("policies/%2F/of-b", json={"pattern": "^b$", "definition": {"max-length": 9}})
    assert names("type=classic&state=running") == ["a/q", "b"]
    assert names("policy=of-b") == names("consumers=none") == ["b"]
    assert names("type=quorum") == names("policy=of-b&state=paused") == []
    page = client.get("queues?page=1&consumers=none&columns=name").json()
    assert (page["items"], page["filtered_count"], page["total_count"]) == ([{"name": "b"}], 1, 2)
    client.delete("policies/%2F/of-b")
    for wrong in ("consumers=some", "growing=false"):
        assert refusal(client.get(f"queues?{wrong}"))[0] == 400


def test_consumers_and_connections_are_found_by_all_their_names(
    http_node: HttpNode, channel: BlockingChannel
) -> None:
    client = http_node.client()
    for path, texts in (("consumers", ("C", "a/")), ("consumers/%2F", ("C", "a/"))):
        for text in texts:
            page = client.get(f"{path}?page=1&name={text}").json()
            assert [each["consumer_tag"] for each in page["items"]] == ["c"], text
        assert client.get(f"{path}?page=1&name=^/&use_regex=true").json()["items"] == []
        assert [each["consumer_tag"] for each in client.get(path).json()] == ["c"]
    parameters = pika.URLParameters(http_node.node.uri)
    parameters.client_properties = {"connection_name": "Till"}
    with pika.BlockingConnection(parameters):
        for path in ("connections", "vhosts/%2F/connections", "connections/username/guest"):
            page = client.get(f"{path}?page=1&name=till").json()
            (found,) = page["items"]
            assert found["user_provided_name"] == "Till" and page["total_count"] == 2
            assert len(client.get(f"{path}?page=1&name=127.0").json()["items"]) == 2


def test_messages_of_vhosts_are_counted_when_they_are_shown_or_sorted_by(
    http_node: HttpNode, channel: BlockingChannel
) -> None:
    client = http_node.client()
    for query in ("", "?columns=messages", "?columns=name,messages_details.rate,messages"):
        assert client.get(f"vhosts{query}").json()[0]["messages"] == 3, query
    for query in ("columns=name", "columns=name&sort=messages"):
        assert client.get(f"vhosts?{query}").json()[0] == {"name": "/"}, query


def test_definitions_of_users_and_policies(http_node: HttpNode) -> None:
    http_node.add_user("app", vhosts=("v",))
    http_node.control(
        SetPolicy(vhost="v", name="p", pattern="^a", definition='{"max-length":5}', priority=2),
        SetUserLimits(name="app", max_channels=7),
        SetGlobalParameter(name="g", value='{"k":1}'),
    )
    client = http_node.client()
    assert client.get("policies/v/p").json() == {
        "vhost": "v",
        "name": "p",
        "pattern": "^a",
        "apply-to": "all",
        "definition": {"max-length": 5},
        "priority": 2,
    }
    user = client.get("users/app").json()
    assert (user["tags"], user["limits"]) == ([], {"max-channels": 7})
    assert user["hashing_algorithm"] == "rabbit_password_hashing_sha256"
    assert client.get("user-limits/app").json() == [{"user": "app", "value": {"max-channels": 7}}]
    assert client.get("users/app/permissions").json() == [
        client.get("permissions/v/app").json(),
    ]
    assert client.get("global-parameters/g").json() == {"name": "g", "value": {"k": 1}}
    exported = client.get("definitions", params={"download": "d.json"})
    assert exported.headers["content-disposition"] == 'attachment; filename="d.json"'
    assert {"users", "vhosts", "queues"} <= set(exported.json())
    assert "users" not in client.get("definitions/v").json()
    for path in ("users/x", "policies/v/x", "permissions/v/x", "vhosts/x", "nodes/x"):
        assert refusal(client.get(path)) == (404, "Object Not Found", "Not Found"), path


def test_overview_nodes_and_checks(http_node: HttpNode, channel: BlockingChannel) -> None:
    client = http_node.client()
    overview = client.get("overview").json()
    assert (overview["rabbitmq_version"], overview["object_totals"]["connections"]) == ("3.10.8", 1)
    assert overview["queue_totals"]["messages"] == 3
    (node,) = client.get("nodes").json()
    assert node["name"] == overview["node"] and node["running"] and node["mem_used"] > 0
    port = http_node.node.port
    assert client.get("health/checks/alarms").json() == {"status": "ok"}
    assert client.get(f"health/checks/port-listener/{port}").json()["port"] == port
    limit = client.get("health/checks/below-node-connection-limit").json()
    assert limit == {"status": "ok", "current": 1, "limit": "infinity"}
    failed = client.get("health/checks/port-listener/1")
    assert (failed.status_code, failed.json()["missing"]) == (503, 1)
    failed = client.get("health/checks/protocol-listener/mqtt")
    assert (failed.status_code, failed.json()["protocols"]) == (503, ["amqp"])
    for path in ("extensions", "shovels", "federation-links/%2F"):
        assert client.get(path).json() == []
