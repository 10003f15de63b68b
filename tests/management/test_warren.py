"""Endpoints that only warren has: stores, mirrors, reader groups, sinks, waiting messages."""

from collections.abc import Iterator
from typing import Any

import httpx
import pika
import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.http_api import HttpNode, refusal
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.control import SetPermissions
from warrenmq.admin.protocol.requests import GroupOpened, OpenGroup
from warrenmq.admin.protocol.sinks import OpenStage, StageOpened

PROPERTIES = {"headers": {"n": 1}, "delivery_mode": 2, "type": "task", "timestamp": 7}


@pytest.fixture(scope="module")
def api(http_node: HttpNode) -> Iterator[httpx.Client]:
    """A client of a node with a queue of 5 messages."""
    client = http_node.client()
    assert client.put("queues/%2F/q", json={"durable": True}).status_code == 201
    for number in range(5):
        publish(client, "q", f"m{number}")
    yield client


def publish(api: httpx.Client, queue: str, payload: str) -> None:
    sent = {
        "properties": PROPERTIES,
        "routing_key": queue,
        "payload": payload,
        "payload_encoding": "string",
    }
    assert api.post("exchanges/%2F/amq.default/publish", json=sent).json() == {"routed": True}


def ready(api: httpx.Client, queue: str) -> list[str]:
    """The bodies of a queue's messages, in their order."""
    reply = api.post(f"warren/queues/%2F/{queue}/peek", json={"count": 100})
    return [row["payload"] for row in reply.json()["messages"]]


def test_a_peek_leaves_messages_as_they_are(api: httpx.Client) -> None:
    path = "warren/queues/%2F/q/peek"
    first = api.post(path, json={"count": 2, "truncate": 1}).json()
    assert (first["messages_ready"], len(first["messages"])) == (5, 2)
    row = first["messages"][0]
    assert (row["payload"], row["payload_bytes"], row["redelivered"]) == ("m", 2, False)
    assert (row["exchange"], row["routing_key"], row["position"]) == ("", "q", first["first"])
    assert row["properties"] == PROPERTIES
    rest = api.post(path, json={"count": 100, "start": first["next"]}).json()
    assert [each["payload"] for each in rest["messages"]] == ["m2", "m3", "m4"]
    assert rest["next"] == rest["end"]
    past = api.post(path, json={"count": 1, "start": rest["end"] + 9}).json()
    assert past["messages"] == []
    assert ready(api, "q") == ["m0", "m1", "m2", "m3", "m4"]
    for wrong in ({}, {"count": 0}, {"count": 1001}, {"count": "x"}):
        assert refusal(api.post(path, json=wrong))[0] == 400
    assert api.post("warren/queues/%2F/none/peek", json={"count": 1}).status_code == 404


def test_messages_are_moved(api: httpx.Client) -> None:
    path = "warren/queues/%2F/q/move"
    assert api.put("queues/%2F/other", json={}).status_code == 201
    moved = api.post(path, json={"count": 2, "destination": "other"}).json()
    assert moved == {"moved": 2, "messages_left": 3, "refused": False}
    assert ready(api, "other") == ["m0", "m1"]
    nobody = api.post(path, json={"count": 9, "exchange": "amq.topic"}).json()
    assert nobody == {"moved": 0, "messages_left": 3, "refused": True}
    assert ready(api, "q") == ["m2", "m3", "m4"]
    key = {"count": 9, "exchange": "amq.direct", "routing_key": "k"}
    api.post("bindings/%2F/e/amq.direct/q/other", json={"routing_key": "k"})
    assert api.post(path, json=key).json() == {"moved": 3, "messages_left": 0, "refused": False}
    assert ready(api, "other") == ["m0", "m1", "m2", "m3", "m4"]
    for wrong in (
        {"count": 1},
        {"count": 1, "destination": "q"},
        {"count": 1, "destination": "a", "exchange": "b"},
    ):
        assert refusal(api.post(path, json=wrong))[0] == 400
    missing = {"count": 1, "exchange": "none"}
    assert api.post("warren/queues/%2F/other/move", json=missing).status_code == 404
    assert len(ready(api, "other")) == 5
    back = {"count": 1000, "destination": "q"}
    assert api.post("warren/queues/%2F/other/move", json=back).json()["moved"] == 5
    assert api.post("warren/queues/%2F/none/move", json=back).status_code == 404


def test_a_queue_is_paused_and_resumed(http_node: HttpNode, api: httpx.Client) -> None:
    path = "warren/queues/%2F/q"
    get = {"count": 100, "ackmode": "ack_requeue_true", "encoding": "auto"}
    for _ in range(2):
        assert api.post(f"{path}/pause").status_code == 204
    assert api.get("queues/%2F/q").json()["state"] == "paused"
    assert "warren_queue_paused 1.0" in api.get(f"{http_node.url}metrics").text
    assert api.post("queues/%2F/q/get", json=get).json() == []
    assert len(ready(api, "q")) == 5
    move = {"count": 9, "destination": "other"}
    assert api.post(f"{path}/move", json=move).json()["moved"] == 0
    for _ in range(2):
        assert api.post(f"{path}/resume").status_code == 204
    assert api.get("queues/%2F/q").json()["state"] == "running"
    assert len(api.post("queues/%2F/q/get", json=get).json()) == 5
    assert api.post("warren/queues/%2F/none/pause").status_code == 404
    http_node.add_user("reader", "management")
    http_node.control(SetPermissions(vhost="/", user="reader", configure="", write=".*", read=".*"))
    assert http_node.client("reader", "reader").post(f"{path}/pause").status_code == 401


def test_stores(api: httpx.Client) -> None:
    whole = api.get("warren/storage").json()
    of_vhost = api.get("warren/storage/%2F").json()
    assert of_vhost["vhost"] == "/" and of_vhost["journal"]["bytes"] > 0
    assert [row["vhost"] for row in whole["vhosts"]] == ["/"] and "type" not in whole
    files = api.get("warren/storage/%2F/files").json()
    assert sum(row[1] for row in files["journal"]) == of_vhost["journal"]["bytes"]
    assert [row[3] for row in files["journal"]][-1] is True and files["left_off"] == 0
    assert whole["paging_limit_bytes"] < whole["memory_limit_bytes"]
    queue = api.get("warren/queues/%2F/q/storage").json()
    assert (queue["ready"], sum(queue["parts"].values())) == (5, 5)
    assert api.get("warren/queues/%2F/none/storage").status_code == 404
    segments = api.get("warren/queues/%2F/q/storage/segments").json()
    assert (segments["items"], segments["total_count"], segments["unindexed"]) == ([], 0, 5)
    assert api.get("warren/queues/%2F/none/storage/segments").status_code == 404
    for wrong in ({"page": 0}, {"page": 2}, {"page_size": 501}, {"page": "x"}):
        reply = api.get("warren/queues/%2F/q/storage/segments", params=wrong)
        assert reply.status_code == 400


def test_history_of_stores(api: httpx.Client) -> None:
    path = "warren/storage?node_stats_age=60&node_stats_incr=5&columns=history,sync_bounds"
    eventually(lambda: api.get(path).json()["history"], "two ticks")
    whole = api.get(path).json()
    newest = whole["history"][0]
    assert len(newest["syncs"]) == len(whole["sync_bounds"]) + 1
    assert newest["memory"]["mem_used"] > 0
    assert newest["memory"]["mem_paging"] == api.get("warren/storage").json()["paging_limit_bytes"]
    path = "warren/queues/%2F/q/storage?lengths_age=60&lengths_incr=5"

    def samples() -> list[dict[str, object]]:
        return list(api.get(path).json()["history"])

    def newest_forms() -> list[object]:
        return [samples()[0][name] for name in ("alpha", "target_ram_count")] if samples() else []

    eventually(lambda: newest_forms() == [5, None], "a sample of the queue")
    assert "history" not in api.get("warren/queues/%2F/q/storage").json()


def test_a_store_is_compacted_on_demand(http_node: HttpNode, api: httpx.Client) -> None:
    def contents() -> dict[str, Any]:
        row: dict[str, Any] = api.get("warren/storage/%2F").json()["persistent"]
        return row

    with pika.BlockingConnection(pika.URLParameters(http_node.node.uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("large", durable=True)
        properties = pika.BasicProperties(delivery_mode=2)
        for _ in range(40):
            channel.basic_publish("", "large", bytes(1 << 20), properties)
        tags = [channel.basic_get("large")[0] for _ in range(40)]
        for method in tags[::4]:
            assert method is not None
            channel.basic_ack(method.delivery_tag)
        eventually(lambda: contents()["garbage_bytes"] > 8 << 20, "the acks are counted")
        before = contents()
        rows = api.get("warren/storage/%2F/files").json()["persistent"]
        assert sum(row[1] for row in rows) == before["total_bytes"]
        assert sum(row[2] for row in rows) == before["valid_bytes"]
        begun = api.post("warren/storage/compact", json={"vhost": "/", "store": "persistent"})
        (store,) = begun.json()["stores"]
        assert (store["vhost"], store["store"], store["files"]) == ("/", "persistent", 2)
        assert store["garbage_bytes"] >= 8 << 20
        eventually(lambda: not contents()["wanted_files"], "the files are copied")
        after = contents()
        assert after["compactions"] > before["compactions"] and not after["is_compacting"]
        assert before["total_bytes"] - after["total_bytes"] >= 8 << 20
        runs = api.get("warren/storage/%2F/compactions").json()["runs"]
        assert len(runs) == after["compactions"]
        assert (
            sum(run["freed_bytes"] for run in runs) == before["total_bytes"] - after["total_bytes"]
        )
        for run in runs:
            assert run["is_asked"] and not run["is_failed"] and run["store"] == "persistent"
            assert run["began_ms"] <= run["ended_ms"] and set(run["files"]) < {
                row[0] for row in rows
            }
        channel.queue_purge("large")
    again = api.post("warren/storage/compact").json()
    assert [row["files"] for row in again["stores"]] == [0, 0]
    assert api.post("warren/storage/compact", json={"store": "x"}).status_code == 400
    assert api.post("warren/storage/compact", json={"vhost": "none"}).status_code == 404
    assert api.post("warren/storage/compact", json={"node": "none"}).status_code == 404
    own = api.get("overview").json()["node"]
    assert api.post("warren/storage/compact", json={"node": own}).json()["node"] == own


def test_latencies_and_the_cluster(api: httpx.Client) -> None:
    found = api.get("warren/latencies").json()
    assert len(found["syncs"]["counts"]) == len(found["syncs"]["bounds"]) + 1
    assert sum(found["confirms"]["counts"]) > 0
    alone = api.get("warren/cluster").json()
    assert (alone["cluster"], alone["etcd"], alone["members"]) == ("", None, [alone["node"]])


def test_reader_groups_and_sinks(http_node: HttpNode, api: httpx.Client) -> None:
    with AdminClient(NodeAddress(http_node.node.uri)) as client:
        client.request(OpenGroup("g", [b"q"]), GroupOpened)
        client.request(OpenStage("s", 1), StageOpened)
        (group,) = api.get("warren/groups/%2F").json()
        assert (group["name"], group["vhost"], group["lag"]) == ("g", "/", 5)
        assert api.get("warren/groups/%2F/g").json()["members"][0]["queue"] == "q"
        (sink,) = api.get("warren/sinks/%2F").json()
        assert (sink["name"], sink["batch"], sink["stages"]) == ("s", None, 1)
        assert api.get("warren/sinks/%2F/s").json() == sink
        for path in ("warren/groups/%2F/g", "warren/sinks/%2F/s"):
            assert api.delete(path).status_code == 204
            assert api.get(path).status_code == api.delete(path).status_code == 404
    assert api.delete("warren/groups/%2F/no%20name").status_code == 404


def test_a_queue_without_mirrors(api: httpx.Client) -> None:
    assert api.get("warren/mirrors").json() == api.get("warren/mirrors/%2F").json() == []
    assert api.get("warren/mirrors/%2F/q").status_code == 404


def test_a_name_that_cannot_be_costs_one_request(api: httpx.Client) -> None:
    """The node ends the session of such a request, which must serve no other one."""
    for _ in range(2):
        too_long = api.post(f"warren/queues/%2F/{'x' * 256}/peek", json={"count": 1})
        assert refusal(too_long)[0] == 400
        assert api.delete("warren/groups/%2F/no%20name").status_code == 404
        assert api.get("warren/groups/%2F").status_code == 200
    assert len(ready(api, "q")) == 5


def test_a_route_is_found_without_a_message(http_node: HttpNode, api: httpx.Client) -> None:
    for name in ("topics", "all", "copies"):
        api.put(f"queues/%2F/{name}", json={})
    api.put("exchanges/%2F/way", json={"type": "topic"})
    api.post("bindings/%2F/e/way/q/topics", json={"routing_key": "order.*"})
    api.post("bindings/%2F/e/way/e/amq.headers", json={"routing_key": "#"})
    colour = {"arguments": {"x-match": "all", "colour": "red"}}
    api.post("bindings/%2F/e/amq.headers/q/all", json=colour)

    def reached(key: str, exchange: str = "way", **headers: object) -> list[str]:
        sent = {"routing_key": key, "properties": {"headers": headers}}
        queues: list[str] = api.post(f"warren/exchanges/%2F/{exchange}/route", json=sent).json()[
            "queues"
        ]
        return queues

    assert reached("order.new") == ["topics"]
    assert reached("order.new", colour="red") == ["topics", "all"]
    assert reached("other") == []
    assert reached("other", CC=["order.x"]) == ["topics"]
    assert reached("copies", "amq.default") == ["copies"]
    lengths = [api.get(f"queues/%2F/{name}").json()["messages"] for name in ("topics", "all")]
    assert lengths == [0, 0]
    path = "warren/exchanges/%2F/way/route"
    assert api.post("warren/exchanges/%2F/none/route", json={}).status_code == 404
    assert refusal(api.post(path, json={"properties": {"headers": {"CC": 1}}}))[0] == 400
    assert refusal(api.post(path, json={"properties": {"headers": {"a": 1 << 70}}}))[0] == 400
    reader = http_node.add_user("narrow", "management")
    http_node.control(SetPermissions(vhost="/", user="narrow", configure="", write=".*", read="q"))
    assert reader.post(path, json={}).status_code == 401


def test_dead_letters_are_replayed(http_node: HttpNode, api: httpx.Client) -> None:
    path = "warren/queues/%2F/dead/replay"
    for queue, arguments in (
        ("dead", {}),
        ("work", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}),
        ("gone", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}),
        ("copy", {}),
    ):
        api.put(f"queues/%2F/{queue}", json={"arguments": arguments})
    for exchange, queue in (("ways", "work"), ("ways", "copy"), ("closed", "gone")):
        api.put(f"exchanges/%2F/{exchange}", json={"type": "direct"})
        api.post(f"bindings/%2F/e/{exchange}/q/{queue}", json={"routing_key": "key"})

    def die(exchange: str, queue: str) -> None:
        sent = {
            "properties": {},
            "routing_key": "key",
            "payload": queue,
            "payload_encoding": "string",
        }
        api.post(f"exchanges/%2F/{exchange}/publish", json=sent)
        reject = {"count": 9, "ackmode": "reject_requeue_false", "encoding": "auto"}
        api.post(f"queues/%2F/{queue}/get", json=reject)

    alive = {
        "properties": {},
        "routing_key": "dead",
        "payload": "alive",
        "payload_encoding": "string",
    }
    api.post("exchanges/%2F/amq.default/publish", json=alive)
    die("closed", "gone")
    die("ways", "work")
    api.delete("queues/%2F/copy/contents")
    assert ready(api, "dead") == ["alive", "gone", "work"]
    api.delete("exchanges/%2F/closed")
    reply = api.post(path, json={"count": 1000}).json()
    assert reply == {"replayed": 1, "kept": 2, "messages_left": 2}
    assert (ready(api, "dead"), ready(api, "work")) == (["alive", "gone"], ["work"])
    assert ready(api, "copy") == ["work"]
    # To the queue alone, its exchange may be gone.
    reply = api.post(path, json={"count": 1000, "to": "queue"}).json()
    assert reply == {"replayed": 1, "kept": 1, "messages_left": 1}
    assert (ready(api, "gone"), ready(api, "work"), ready(api, "copy")) == (
        ["gone"],
        ["work"],
        ["work"],
    )
    for wrong in ({}, {"count": 0}, {"count": 1, "to": "elsewhere"}):
        assert refusal(api.post(path, json=wrong))[0] == 400
    assert api.post("warren/queues/%2F/none/replay", json={"count": 1}).status_code == 404


def test_a_vhost_that_is_made_anew_is_served_at_once(api: httpx.Client) -> None:
    """Sessions of earlier requests in the deleted vhost cost no request."""
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    for _ in range(2):
        assert api.put("vhosts/anew").status_code == 201
        assert api.put("permissions/anew/guest", json=everything).is_success
        assert api.get("warren/groups/anew").status_code == 200
        assert api.get("warren/groups/anew/missing").status_code == 404
        assert api.get("warren/groups/anew").status_code == 200
        assert api.delete("vhosts/anew").status_code == 204
    assert api.get("warren/groups/anew").status_code == 404
