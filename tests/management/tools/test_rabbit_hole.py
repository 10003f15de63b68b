"""What the Terraform provider and Kubernetes' topology operator do to each of their resources.

Both ask through the Go library rabbit-hole: a connection for each request, and bodies with all
fields, also empty ones. The library takes 404 for "is not there", also as the answer to DELETE, and
every other status of 400 and above for a failure.
"""

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pytest

from tests.support.brokers.http_api import HttpNode

pytestmark = pytest.mark.interop

# A vhost of the provider's own tests.
VHOST = "/virtual//host///"
IN_VHOST = quote(VHOST, safe="")
_LOGIN = "Basic " + base64.b64encode(b"guest:guest").decode()


@dataclass
class Answer:
    """What the API answered; `body` is None when there is none."""

    status: int
    body: Any
    location: str


# Sends a request: method, path below /api/, and the body's object.
Ask = Callable[..., Answer]


@pytest.fixture(scope="module")
def ask(http_node: HttpNode) -> Iterator[Ask]:
    address = urlsplit(http_node.url).netloc

    def ask(method: str, path: str, body: object = None) -> Answer:
        headers = {"Authorization": _LOGIN, "Connection": "close"}
        if method != "GET":
            headers["Content-Type"] = "application/json"
        connection = HTTPConnection(address, timeout=60)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, f"/api/{path}", text, headers)
            reply = connection.getresponse()
            data = reply.read()
            location = reply.getheader("location", "")
            return Answer(reply.status, json.loads(data) if data else None, location)
        finally:
            connection.close()

    created = {"description": "", "tags": "", "tracing": False}
    assert ask("PUT", f"vhosts/{IN_VHOST}", created).status == 201
    yield ask


def shown(ask: Ask, path: str, expected: dict[str, Any]) -> None:
    """Assert that a resource is there with these fields."""
    answer = ask("GET", path)
    assert answer.status == 200
    assert {name: answer.body[name] for name in expected} == expected


def gone(ask: Ask, path: str) -> None:
    """Assert that a resource is not there, for a read and for a delete."""
    for method in ("GET", "DELETE"):
        answer = ask(method, path)
        assert (answer.status, answer.body["error"]) == (404, "Object Not Found")
        assert isinstance(answer.body["reason"], str)


POLICY = {
    "vhost": VHOST,
    "name": "p",
    "pattern": ".*",
    "priority": 0,
    "apply-to": "queues",
    "definition": {"max-length": 10},
}
SHOVEL = {
    "dest-uri": ["amqp:///%2F"],
    "src-uri": ["amqp:///%2F"],
    "ack-mode": "on-confirm",
    "delete-after": "never",
    "dest-queue": "q2",
    "prefetch-count": 1000,
    "reconnect-delay": 1,
    "src-delete-after": 100,
    "src-queue": "q1",
}
UPSTREAM = {
    "uri": ["amqp://server"],
    "expires": 1000,
    "max-hops": 1,
    "prefetch-count": 1000,
    "reconnect-delay": 5,
    "ack-mode": "on-confirm",
    "trust-user-id": False,
}


def parameter(component: str, value: Any) -> dict[str, Any]:
    return {"name": "p", "vhost": VHOST, "component": component, "value": value}


# Resources that one path has: its body when it is created, and changed, is what a read shows.
LASTING: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "policy": (
        f"policies/{IN_VHOST}/p",
        POLICY,
        POLICY | {"priority": 1, "definition": {"ha-mode": "nodes", "ha-params": ["a", "b"]}},
    ),
    "operator policy": (
        f"operator-policies/{IN_VHOST}/p",
        POLICY,
        POLICY | {"pattern": "^a", "definition": {"expires": 1800000}},
    ),
    "shovel": (
        f"parameters/shovel/{IN_VHOST}/p",
        parameter("shovel", SHOVEL),
        parameter("shovel", SHOVEL | {"reconnect-delay": 10}),
    ),
    "federation upstream": (
        f"parameters/federation-upstream/{IN_VHOST}/p",
        parameter("federation-upstream", UPSTREAM),
        parameter("federation-upstream", UPSTREAM | {"max-hops": 2, "exchange": "x"}),
    ),
    "federation upstream set": (
        f"parameters/federation-upstream-set/{IN_VHOST}/p",
        parameter("federation-upstream-set", [{"upstream": "p"}]),
        parameter("federation-upstream-set", [{"upstream": "p", "exchange": "x"}]),
    ),
    "global parameter": (
        "global-parameters/p",
        {"name": "p", "value": {"a": [1, "two", None]}},
        {"name": "p", "value": "text"},
    ),
}


@pytest.mark.parametrize("resource", LASTING)
def test_what_can_be_changed(ask: Ask, resource: str) -> None:
    path, created, changed = LASTING[resource]
    gone(ask, path)
    assert ask("PUT", path, created).status == 201
    shown(ask, path, created)
    assert ask("PUT", path, changed).status == 204
    shown(ask, path, changed)
    assert ask("DELETE", path).status == 204
    gone(ask, path)


def test_vhost(ask: Ask) -> None:
    path, limits = "vhosts/v%201", "vhost-limits/v%201"
    gone(ask, path)
    created = {"description": "one", "tags": "", "tracing": True}
    assert ask("PUT", path, created).status == 201
    assert ask("PUT", f"{limits}/max-connections", {"value": 100}).status == 204
    assert ask("PUT", f"{limits}/max-queues", {"value": 200}).status == 204
    shown(ask, path, {"name": "v 1", "description": "one", "tracing": True})
    (row,) = ask("GET", limits).body
    assert row == {"vhost": "v 1", "value": {"max-connections": 100, "max-queues": 200}}
    changed = {"description": "two", "tags": "", "tracing": False}
    assert ask("PUT", path, changed).status == 204
    # The provider clears all limits and sets those that stay.
    assert ask("DELETE", f"{limits}/max-connections").status == 204
    assert ask("DELETE", f"{limits}/max-queues").status == 204
    assert ask("PUT", f"{limits}/max-queues", {"value": 300}).status == 204
    shown(ask, path, {"description": "two", "tracing": False})
    assert ask("GET", limits).body == [{"vhost": "v 1", "value": {"max-queues": 300}}]
    assert ask("DELETE", path).status == 204
    gone(ask, path)


def test_user(ask: Ask) -> None:
    path = "users/mc%20test"
    gone(ask, path)
    created = {"name": "", "tags": "administrator,management", "password": "foobar"}
    assert ask("PUT", path, created).status == 201
    shown(ask, path, {"name": "mc test", "tags": ["administrator", "management"]})
    password = ask("GET", path).body["password_hash"]
    assert ask("PUT", path, created | {"tags": "", "password": "foobarry"}).status == 204
    shown(ask, path, {"tags": []})
    assert ask("GET", path).body["password_hash"] != password
    assert ask("DELETE", path).status == 204
    gone(ask, path)


@pytest.fixture
def user(ask: Ask) -> Iterator[str]:
    ask("PUT", "users/mctest", {"name": "", "tags": "", "password": "foobar"})
    yield "mctest"
    ask("DELETE", "users/mctest")


def test_permissions(ask: Ask, user: str) -> None:
    path = f"permissions/{IN_VHOST}/{user}"
    gone(ask, path)
    created = {"configure": ".*", "write": ".*", "read": ".*"}
    assert ask("PUT", path, created).status == 201
    shown(ask, path, created | {"user": user, "vhost": VHOST})
    assert ask("PUT", path, created | {"read": ""}).status == 204
    shown(ask, path, created | {"read": ""})
    assert ask("DELETE", path).status == 204
    gone(ask, path)


def test_topic_permissions(ask: Ask, user: str) -> None:
    """A read shows a list; the provider takes its first row, so an empty list must be a 404."""
    path = f"topic-permissions/{IN_VHOST}/{user}"
    gone(ask, path)
    for exchange, status in (("amq.topic", 201), ("removed", 204)):
        created = {"exchange": exchange, "write": ".*", "read": ".*"}
        assert ask("PUT", path, created).status == status
    rows = ask("GET", path).body
    assert sorted(row["exchange"] for row in rows) == ["amq.topic", "removed"]
    assert {(row["user"], row["vhost"]) for row in rows} == {(user, VHOST)}
    # A change begins with a delete of all.
    assert ask("DELETE", path).status == 204
    changed = {"exchange": "amq.topic", "write": ".*", "read": ""}
    assert ask("PUT", path, changed).status == 201
    assert ask("GET", path).body == [{"user": user, "vhost": VHOST, **changed}]
    assert ask("DELETE", path).status == 204
    gone(ask, path)


def test_topic_permissions_of_one_exchange(ask: Ask, user: str) -> None:
    path = f"topic-permissions/{IN_VHOST}/{user}"
    for exchange in ("amq.topic", "x 1"):
        ask("PUT", path, {"exchange": exchange, "write": "a", "read": "b"})
    assert ask("DELETE", f"{path}/x%201").status == 204
    assert [row["exchange"] for row in ask("GET", path).body] == ["amq.topic"]


def test_user_limits(ask: Ask, user: str) -> None:
    path = f"user-limits/{user}"
    assert ask("GET", path).body == []
    assert ask("PUT", f"{path}/max-connections", {"value": 5}).status == 204
    assert ask("PUT", f"{path}/max-channels", {"value": 7}).status == 204
    values = {"max-connections": 5, "max-channels": 7}
    assert ask("GET", path).body == [{"user": user, "value": values}]
    assert ask("DELETE", f"{path}/max-channels").status == 204
    assert ask("GET", path).body == [{"user": user, "value": {"max-connections": 5}}]
    assert ask("DELETE", f"{path}/max-connections").status == 204


def test_exchange(ask: Ask) -> None:
    path = f"exchanges/{IN_VHOST}/x%201"
    gone(ask, path)
    created = {"type": "fanout", "durable": False, "auto_delete": True}
    assert ask("PUT", path, created).status == 201
    shown(ask, path, created | {"name": "x 1", "vhost": VHOST, "arguments": {}})
    # The provider replaces an exchange that is changed.
    assert ask("DELETE", path).status == 204
    gone(ask, path)
    arguments = {"alternate-exchange": "amq.fanout"}
    assert (
        ask("PUT", path, {"type": "direct", "durable": True, "arguments": arguments}).status == 201
    )
    shown(ask, path, {"type": "direct", "auto_delete": False, "arguments": arguments})
    assert ask("DELETE", path).status == 204
    gone(ask, path)


def test_queue(ask: Ask) -> None:
    path = f"queues/{IN_VHOST}/q%201"
    gone(ask, path)
    assert ask("PUT", path, {"type": "", "durable": False, "auto_delete": True}).status == 201
    created = {"name": "q 1", "vhost": VHOST, "durable": False, "auto_delete": True}
    shown(ask, path, created | {"arguments": {}})
    assert ask("DELETE", f"{path}?").status == 204
    gone(ask, path)
    arguments = {"x-message-ttl": 5000, "x-dead-letter-exchange": "amq.fanout"}
    assert ask("PUT", path, {"type": "", "durable": True, "arguments": arguments}).status == 201
    shown(ask, path, {"durable": True, "auto_delete": False, "arguments": arguments})
    assert ask("DELETE", f"{path}?").status == 204
    gone(ask, path)


def test_a_queue_is_deleted_only_when_it_is_empty(ask: Ask) -> None:
    path = f"queues/{IN_VHOST}/full"
    ask("PUT", path, {"type": "", "durable": True})
    message = {"routing_key": "full", "payload": "x", "payload_encoding": "string"}
    publish = f"exchanges/{IN_VHOST}/amq.default/publish"
    assert ask("POST", publish, message | {"properties": {}}).body == {"routed": True}
    refused = ask("DELETE", f"{path}?if-empty=true&if-unused=true")
    assert (refused.status, refused.body["error"]) == (400, "bad_request")
    assert ask("DELETE", f"{path}/contents").status == 204
    assert ask("DELETE", f"{path}?if-empty=true&if-unused=true").status == 204
    gone(ask, path)


@pytest.mark.parametrize(
    ("kind", "name", "key", "arguments"),
    [
        ("queue", "q", "#", {}),
        ("queue", "q", "", {}),
        ("queue", "q", "///routing//key/", {"key1": "value1", "key2": "value2"}),
        ("exchange", "amq.fanout", "#", {}),
    ],
)
def test_binding(ask: Ask, kind: str, name: str, key: str, arguments: dict[str, str]) -> None:
    """The provider takes the key of a binding from `Location`, and finds it in a list by it."""
    if kind == "queue":
        ask("PUT", f"queues/{IN_VHOST}/{name}", {"type": "", "durable": True})
    path = f"bindings/{IN_VHOST}/e/amq.topic/{kind[0]}/{name}"
    binding = {
        "source": "amq.topic",
        "vhost": VHOST,
        "destination": name,
        "destination_type": kind,
        "routing_key": key,
        "arguments": arguments,
    }
    answer = ask("POST", path, binding)
    assert answer.status == 201
    properties_key = unquote(answer.location.rpartition("/")[2])
    assert ask("GET", path).body == [binding | {"properties_key": properties_key}]
    delete = f"{path}/{quote(properties_key, safe='')}"
    assert ask("DELETE", delete).status == 204
    assert ask("GET", path).body == []
    assert ask("DELETE", delete).status == 404


def test_overview(ask: Ask) -> None:
    """Terraform's provider reads the broker's version to explain refused topic permissions."""
    assert ask("GET", "overview").body["rabbitmq_version"] == "3.10.8"
