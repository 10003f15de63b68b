"""What tools change through RabbitMQ's HTTP API: statuses, refusals and what comes of it."""

import base64
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pika
import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.http_api import HttpNode, refusal
from warrenmq.broker.definitions.passwords import hash_password


@pytest.fixture(scope="module")
def api(http_node: HttpNode) -> Iterator[httpx.Client]:
    yield http_node.client()


def put(api: httpx.Client, path: str, **body: Any) -> int:
    return api.put(path, json=body).status_code


def test_a_queue_is_declared_and_deleted(api: httpx.Client) -> None:
    path = "queues/%2F/a%2Fq"
    assert api.put(path).status_code == 201
    assert api.put(path, json={"durable": "false", "arguments": []}).status_code == 204
    different = api.put(path, json={"durable": True})
    assert refusal(different)[:2] == (400, "bad_request")
    assert different.json()["reason"] == (
        "inequivalent arg 'durable' for queue 'a/q' in vhost '/': "
        "received 'true' but current is 'false'"
    )
    assert api.get(path).json()["durable"] is False
    for wrong in ("yes", 1):
        assert refusal(api.put(path, json={"durable": wrong})) == (
            400,
            "bad_request",
            ["not_boolean", wrong],
        )
    assert refusal(api.put("queues/%2F/" + 256 * "x"))[2] == "a name has more than 255 bytes"
    assert refusal(api.put(path, content=b"{")) == (400, "bad_request", "not_json")
    assert refusal(api.put("queues/%2F/amq.x")) == (401, "not_authorised", "Access refused.")
    api.post("exchanges/%2F/amq.default/publish", json=message("a/q", "one"))
    assert "not empty" in api.delete(path + "?if-empty=true").json()["reason"]
    assert api.delete(path).status_code == 204
    assert refusal(api.delete(path)) == (404, "Object Not Found", "Not Found")
    assert refusal(api.put("queues/none/q")) == (404, "not_found", "vhost_not_found")


def test_line_ends_are_dropped_from_the_name_of_a_new_queue(api: httpx.Client) -> None:
    assert api.put("queues/%2F/a%0D%0Ab", json={}).status_code == 201
    assert api.put("queues/%2F/ab%0A", json={}).status_code == 204
    assert api.delete("queues/%2F/a%0Ab").status_code == 404
    assert api.delete("queues/%2F/ab").status_code == 204


def test_an_exchange_is_declared_bound_and_deleted(api: httpx.Client) -> None:
    assert put(api, "exchanges/%2F/x", type="topic", durable="true") == 201
    assert put(api, "exchanges/%2F/x", type="topic", durable=True) == 204
    assert put(api, "exchanges/%2F/x", type="no such type") == 400
    assert put(api, "queues/%2F/q") == 201
    pair = "bindings/%2F/e/x/q/q"
    for key, arguments, shown in (
        ("", {}, "~"),
        ("a b/c.*", {}, "a+b%2Fc.%2A"),
        ("k", {"n": 1}, ""),
    ):
        bound = api.post(pair, json={"routing_key": key, "arguments": arguments})
        assert bound.status_code == 201
        relative = bound.headers["location"].removeprefix("q/")
        found = api.get(f"{pair}/{relative}").json()
        assert (found["routing_key"], found["arguments"]) == (key, arguments)
        assert not shown or found["properties_key"] == shown
        assert api.delete(f"{pair}/{relative}").status_code == 204
        assert api.delete(f"{pair}/{relative}").status_code == 404
    assert refusal(api.post("bindings/%2F/e/x/q/none", json={})) == (
        404,
        "not_found",
        "no queue 'none' in vhost '/'",
    )
    assert api.get("bindings/%2F/e/x/q/none").json() == []
    assert api.post("bindings/%2F/e/amq.default/q/q", json={}).status_code == 401
    api.post(pair)
    assert "in use" in api.delete("exchanges/%2F/x?if-unused=true").json()["reason"]
    assert api.delete("exchanges/%2F/x").status_code == 204
    for standard in ("amq.topic", "amq.default"):
        assert refusal(api.delete(f"exchanges/%2F/{standard}"))[0] == 401
    assert api.delete("queues/%2F/q").status_code == 204


def message(key: str, payload: str, encoding: str = "string", **properties: Any) -> dict[str, Any]:
    """The body of a publish request."""
    return {
        "properties": properties,
        "routing_key": key,
        "payload": payload,
        "payload_encoding": encoding,
    }


def test_messages_are_published_and_got(api: httpx.Client) -> None:
    put(api, "queues/%2F/m")
    publish = "exchanges/%2F/amq.default/publish"
    sent = message("m", "text", headers={"a": [1, {"b": None}]}, delivery_mode=2, timestamp="5")
    assert api.post(publish, json=sent).json() == {"routed": True}
    binary = base64.b64encode(b"\xff\x00").decode()
    api.post(publish, json=message("m", binary, "base64"))
    assert api.post(publish, json=message("nobody", "text")).json() == {"routed": False}
    assert refusal(api.post(publish, json={"payload": ""})) == (
        400,
        "bad_request",
        "[{key_missing,properties},{key_missing,routing_key},{key_missing,payload_encoding}]",
    )
    assert refusal(api.post("exchanges/%2F/none/publish", json=sent)) == (
        400,
        "bad_request",
        "404 NOT_FOUND - no exchange 'none' in vhost '/'",
    )
    for wrong, reason in (
        ({"priority": "a"}, ["not_int", "priority"]),
        ({"priority": 300}, "ubyte format requires 0 <= number <= 255"),
        ({"type": 5}, ["not_string", "type"]),
        ({"headers": {"a": 1.5}}, "fractional numbers cannot be sent: 1.5"),
        ({"expiration": "x"}, "406 PRECONDITION_FAILED - invalid expiration 'x': no_integer"),
    ):
        assert refusal(api.post(publish, json=message("m", "text", **wrong)))[2] == reason
    assert refusal(api.post(publish, json=message("m", "!", "base64")))[2] == ["not_base64", "!"]

    get = "queues/%2F/m/get"
    peeked = {"count": "5", "ackmode": "ack_requeue_true", "encoding": "auto", "truncate": 2}
    first, second = api.post(get, json=peeked).json()
    assert (first["payload"], first["payload_bytes"], first["redelivered"]) == ("te", 4, False)
    assert first["properties"] == {
        "headers": {"a": [1, {"b": None}]},
        "delivery_mode": 2,
        "timestamp": 5,
    }
    assert (second["payload"], second["payload_encoding"]) == (binary, "base64")
    again = api.post(get, json={"count": 1, "requeue": "false"}).json()
    assert [(row["payload"], row["redelivered"]) for row in again] == [("text", True)]
    assert len(api.post(get, json={"count": 9, "ackmode": "reject_requeue_false"}).json()) == 1
    assert api.post(get, json={"count": 9, "ackmode": "ack_requeue_true"}).json() == []
    assert refusal(api.post(get, json={"count": 1})) == (
        400,
        "bad_request",
        "[{key_missing,ackmode}]",
    )
    assert refusal(api.post(get, json={"count": 1, "ackmode": "eat"}))[0] == 400
    api.post(publish, json=message("m", "text"))
    assert api.delete("queues/%2F/m/contents").status_code == 204
    assert api.get("queues/%2F/m").json()["messages"] == 0
    assert api.delete("queues/%2F/none/contents").status_code == 404
    assert api.get("aliveness-test/%2F").json() == {"status": "ok"}


def test_users_vhosts_and_permissions(http_node: HttpNode, api: httpx.Client) -> None:
    assert refusal(api.put("users/ann", json={"password": "p"})) == (
        400,
        "bad_request",
        "tags_not_present",
    )
    assert put(api, "users/ann", password="p", tags="management") == 201
    assert put(api, "users/ann", password="p2", tags=["management", "policymaker"]) == 204
    assert put(api, "vhosts/v", description="a vhost", tags="one,two") == 201
    assert put(api, "vhosts/v", description="other", tags="three") == 204
    assert api.get("vhosts/v").json()["metadata"] == {"description": "other", "tags": ["three"]}
    assert put(api, "vhosts/v") == 204
    assert api.get("vhosts/v").json()["metadata"] == {"description": "", "tags": []}
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    assert put(api, "permissions/v/ann", **everything) == 201
    assert put(api, "permissions/v/ann", **everything) == 204
    assert refusal(api.put("permissions/v/nobody", json=everything)) == (
        400,
        "bad_request",
        "vhost_or_user_not_found",
    )
    assert refusal(api.put("permissions/v/ann", json={"configure": ""})) == (
        400,
        "bad_request",
        "[{key_missing,write},{key_missing,read}]",
    )
    assert put(api, "topic-permissions/v/ann", exchange="amq.topic", write="^a", read="") == 201
    assert api.get("topic-permissions/v/ann").json()[0]["write"] == "^a"
    assert put(api, "topic-permissions/v/ann", exchange="other", write="", read="") == 204
    assert len(api.get("topic-permissions/v/ann/other").json()) == 1
    assert api.delete("topic-permissions/v/ann/other").status_code == 204
    assert api.delete("topic-permissions/v/ann/other").status_code == 404
    assert len(api.get("topic-permissions/v/ann").json()) == 1
    assert api.delete("topic-permissions/v/ann").status_code == 204

    ann = http_node.client("ann", "p2")
    assert put(ann, "queues/v/own") == 201
    assert refusal(ann.put("queues/%2F/foreign"))[0] == 401
    assert refusal(ann.put("users/eve", json={"tags": ""}))[0] == 401
    assert put(ann, "policies/v/ha", pattern="^own", definition={"max-length": 5}) == 201
    assert refusal(ann.put("policies/%2F/ha", json={"pattern": "", "definition": {}}))[0] == 401

    digest = base64.b64encode(hash_password(b"hashed")).decode()
    assert put(api, "users/bob", password_hash=digest, tags="management") == 201
    assert http_node.client("bob", "hashed").get("whoami").json()["name"] == "bob"
    both = {"password": "p", "password_hash": digest, "tags": ""}
    assert refusal(api.put("users/bob", json=both))[0] == 400
    assert put(api, "users/bob", tags="monitoring") == 204
    assert http_node.client("bob", "hashed").get("whoami").json()["tags"] == ["monitoring"]
    assert refusal(api.post("users/bulk-delete", json={"users": ["bob", "nobody"]})) == (
        400,
        "bad_request",
        ["no_such_user", "nobody"],
    )
    assert api.post("users/bulk-delete", json={"users": ["bob"]}).status_code == 204
    assert api.delete("users/bob").status_code == 404
    assert api.delete("permissions/v/ann").status_code == 204
    assert api.delete("permissions/v/ann").status_code == 404
    assert api.delete("users/ann").status_code == 204
    assert api.delete("vhosts/v").status_code == 204
    assert api.delete("vhosts/v").status_code == 404


def test_policies_parameters_and_limits(api: httpx.Client) -> None:
    policy = {"pattern": "^p", "definition": {"max-length": 5}, "priority": "3"}
    for kind in ("policies", "operator-policies"):
        assert put(api, f"{kind}/%2F/p", **policy) == 201
        assert put(api, f"{kind}/%2F/p", **policy) == 204
        assert api.get(f"{kind}/%2F/p").json()["priority"] == 3
        refused = api.put(f"{kind}/%2F/p", json={"pattern": "^p", "definition": {"max-length": -1}})
        assert refusal(refused)[0] == 400
        assert api.delete(f"{kind}/%2F/p").status_code == 204
        assert api.delete(f"{kind}/%2F/p").status_code == 404
    assert refusal(api.put("policies/%2F/p", json={})) == (
        400,
        "bad_request",
        "[{key_missing,pattern},{key_missing,definition}]",
    )
    assert put(api, "parameters/shovel/%2F/s", value={"src-uri": "amqp://"}) == 201
    assert api.delete("parameters/shovel/%2F/s").status_code == 204
    assert refusal(api.put("parameters/unknown/%2F/s", json={"value": 1})) == (
        400,
        "bad_request",
        "Validation failed\n\ncomponent unknown not found\n",
    )
    assert put(api, "global-parameters/g", value={"a": [1]}) == 201
    assert put(api, "global-parameters/g", value=2) == 204
    assert api.get("global-parameters/g").json()["value"] == 2
    assert api.delete("global-parameters/g").status_code == 204

    assert put(api, "vhost-limits/%2F/max-queues", value="100") == 204
    assert put(api, "vhost-limits/%2F/max-connections", value=50) == 204
    (limits,) = api.get("vhost-limits/%2F").json()
    assert limits["value"] == {"max-queues": 100, "max-connections": 50}
    for limit in ("max-queues", "max-connections"):
        assert api.delete(f"vhost-limits/%2F/{limit}").status_code == 204
    assert api.get("vhost-limits/%2F").json() in ([], [{"vhost": "/", "value": {}}])
    assert refusal(api.put("user-limits/nobody/max-channels", json={"value": 9})) == (
        400,
        "bad_request",
        ["no_such_user", "nobody"],
    )
    assert put(api, "user-limits/guest/max-channels", value=9) == 204
    assert api.get("user-limits/guest").json()[0]["value"]["max-channels"] == 9
    assert api.delete("user-limits/guest/max-channels").status_code == 204


def test_definitions_are_imported_after_a_dry_run(api: httpx.Client) -> None:
    whole = {"queues": [{"name": "imported", "vhost": "/", "durable": True, "arguments": {}}]}
    dry = api.post("definitions?dry-run=true", json=whole).json()
    assert any(["imported" in line for line in dry["changes"]])
    assert api.get("queues/%2F/imported").status_code == 404
    assert api.post("definitions", json=whole).status_code == 204
    assert api.get("queues/%2F/imported").json()["durable"] is True
    assert api.post("definitions", content=b"no json").status_code == 400
    assert (
        api.post("definitions", json={"queues": [{"name": "x", "vhost": "none"}]}).status_code
        == 400
    )
    assert refusal(api.post("definitions/none", json={}))[0] == 404
    assert api.post("definitions").status_code == 204
    form = {"file": ("d.json", json.dumps(whole).encode())}
    assert api.post("definitions", files=form).status_code == 204
    assert api.post("definitions", files={"other": b"{}"}).status_code == 400
    one = {"queues": [{"name": "of-vhost", "durable": True, "arguments": {}}]}
    assert api.post("definitions/%2F", content=json.dumps(one)).status_code == 204
    for name in ("imported", "of-vhost"):
        assert api.delete(f"queues/%2F/{name}").status_code == 204


def test_a_connection_is_closed_with_a_reason(http_node: HttpNode, api: httpx.Client) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(http_node.node.uri))
    eventually(lambda: len(api.get("connections").json()) == 1, "the connection is listed")
    name = api.get("connections").json()[0]["name"]
    path = f"connections/{name.replace(' ', '%20').replace('>', '%3E')}"
    assert api.delete(path, headers={"x-reason": "enough"}).status_code == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="enough"):
        connection.sleep(60)
    assert api.delete(path).status_code == 404
    assert api.delete("connections/username/guest").status_code == 204
    assert api.post("rebalance/queues").status_code == 204
    assert refusal(api.post("queues/%2F/none/actions", json={"action": "dance"}))[0] == 400


def test_a_user_closes_its_own_connections(http_node: HttpNode, api: httpx.Client) -> None:
    own = http_node.add_user("owner", "management")
    uri = http_node.node.uri.replace("guest:guest", "owner:owner")
    parameters = pika.URLParameters(uri)
    foreign = pika.BlockingConnection(pika.URLParameters(http_node.node.uri))
    connections = [pika.BlockingConnection(parameters) for _ in range(2)]
    eventually(lambda: len(api.get("connections").json()) == 3, "the connections are listed")
    names = [row["name"] for row in own.get("connections").json()]
    assert len(names) == 2
    (other,) = {row["name"] for row in api.get("connections").json()} - {*names}
    assert own.delete(f"connections/{quote(other, '')}").status_code == 401
    assert own.delete("connections/username/guest").status_code == 401
    assert own.delete(f"connections/{quote(names[0], '')}").status_code == 204
    assert own.delete("connections/username/owner").status_code == 204
    for connection in connections:
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
            connection.sleep(60)
    foreign.close()


def test_who_creates_a_vhost_may_do_everything_in_it(api: httpx.Client) -> None:
    assert put(api, "vhosts/created") == 201
    assert api.post("definitions", json={"vhosts": [{"name": "imported"}]}).status_code == 204
    for vhost in ("created", "imported"):
        assert put(api, f"queues/{vhost}/q") == 201
        assert api.delete(f"vhosts/{vhost}").status_code == 204


def test_a_login_is_checked(api: httpx.Client) -> None:
    assert api.post("login", data={"username": "guest", "password": "guest"}).json() == "ok"
    for wrong in ({"username": "guest", "password": "other"}, {}):
        assert refusal(api.post("login", data=wrong)) == (401, "not_authorized", "Login failed")


def test_the_cluster_gets_a_name(http_node: HttpNode, api: httpx.Client) -> None:
    configured = api.get("cluster-name").json()["name"]
    assert named_to_clients(http_node) == configured
    assert put(api, "cluster-name", name="of tests") == 204
    assert named_to_clients(http_node) == "of tests"
    assert api.get("cluster-name").json() == {"name": "of tests"}
    assert refusal(api.put("cluster-name", json={}))[2] == "[{key_missing,name}]"
    own = api.get("overview").json()["cluster_name"]
    assert put(api, "global-parameters/cluster_name", value=5) == 204
    assert api.get("cluster-name").json() != {"name": own}
    assert named_to_clients(http_node) == configured
    assert api.delete("global-parameters/cluster_name").status_code == 204


def named_to_clients(http_node: HttpNode) -> Any:
    """The name of the cluster among the properties that an AMQP client gets."""
    with pika.BlockingConnection(pika.URLParameters(http_node.node.uri)) as connection:
        return connection._impl.server_properties["cluster_name"]


def test_a_queue_without_mirrors_has_nothing_to_synchronise(api: httpx.Client) -> None:
    put(api, "queues/%2F/alone")
    for action in ("sync", "cancel_sync"):
        reply = api.post("queues/%2F/alone/actions", json={"action": action})
        assert reply.status_code == 204
        assert api.post("queues/%2F/none/actions", json={"action": action}).status_code == 404
    assert api.delete("queues/%2F/alone").status_code == 204
