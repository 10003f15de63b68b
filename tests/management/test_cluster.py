"""Any node's API shows and changes what is on the other nodes of its cluster.

The tests share a cluster of three nodes, which each of them leaves running.
"""

import signal
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.management.clusters import Cluster, running_cluster
from tests.support.awaiting import eventually
from tests.support.cluster.trio import ClusterNode, channels
from tests.support.etcd import EtcdServer

pytestmark = pytest.mark.slow

NAMES = ("n1", "n2", "n3")
LISTS = ("connections", "channels", "consumers", "nodes", "queues", "exchanges", "vhosts")
MIRRORED = '{"ha-mode":"all","ha-sync-mode":"automatic"}'


@pytest.fixture(scope="module")
def cluster(etcd: EtcdServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), etcd.url, NAMES, "api") as found:
        assert found.nodes[0].ctl("set_policy", "mirrored", "^m", MIRRORED).code == 0
        yield found


@pytest.fixture
def at(cluster: Cluster) -> Iterator[list[BlockingChannel]]:
    """A channel at each node; the queues of the test are deleted at its end."""
    with channels(cluster.nodes) as opened:
        yield opened
    (client,) = cluster.clients()[:1]
    for queue in get(client, "queues/%2F?columns=name"):
        client.delete(f"queues/%2F/{queue['name']}")


def get(client: httpx.Client, path: str) -> Any:
    reply = client.get(path)
    assert reply.status_code == 200, (path, reply.status_code, reply.text)
    return reply.json()


def queue_of(client: httpx.Client, name: str) -> Any:
    return get(client, f"queues/%2F/{name}")


def publish(channel: BlockingChannel, queue: str, count: int) -> None:
    for number in range(count):
        channel.basic_publish("", queue, b"%d" % number, pika.BasicProperties(delivery_mode=2))


def published(client: httpx.Client, *queues: str) -> list[int]:
    """What clients have published to the queues, as the statistics say."""
    return [queue_of(client, queue)["message_stats"].get("publish", 0) for queue in queues]


def runs(client: httpx.Client, node: ClusterNode) -> bool:
    return get(client, f"nodes/{node.name}")["running"] is True


def on_all(clients: list[httpx.Client], is_so: Callable[[httpx.Client], bool], what: str) -> None:
    """Return when `is_so` for each of the clients."""
    for client in clients:
        eventually(partial(is_so, client), what)


def await_mirrors(client: httpx.Client, queue: str, count: int) -> None:
    def mirrors() -> int:
        return len(queue_of(client, queue).get("synchronised_slave_nodes", ()))

    eventually(lambda: mirrors() == count, f"{queue} has {count} mirrors in sync")


def test_each_node_shows_all_nodes(cluster: Cluster) -> None:
    for client in cluster.clients():
        rows = get(client, "nodes")
        assert [row["name"] for row in rows] == cluster.names
        for row in rows:
            assert row["running"] and row["partitions"] == []
            assert row["mem_used"] > 0 and row["disk_free"] > 0 and row["fd_used"] > 0
            memory = get(client, f"nodes/{row['name']}/memory")["memory"]
            assert memory["total"]["rss"] > 0
        overview = get(client, "overview")
        listeners = {(each["node"], each["port"]) for each in overview["listeners"]}
        assert listeners >= {(node.name, node.port) for node in cluster.nodes}


def test_each_node_shows_the_queues_and_clients_of_all(
    cluster: Cluster, at: list[BlockingChannel]
) -> None:
    for channel, node in zip(at, NAMES, strict=True):
        channel.queue_declare(f"q-{node}", durable=True)
        channel.basic_consume(f"q-{node}", lambda *_: None, consumer_tag=f"tag-{node}")
    for client in cluster.clients():
        shown = {row["name"]: row["node"] for row in get(client, "queues?columns=name,node")}
        assert shown == dict(zip(["q-n1", "q-n2", "q-n3"], cluster.names, strict=True))
        for path in LISTS[:2]:
            found = {row["node"] for row in get(client, path)}
            assert found == set(cluster.names), path
        consumers = {row["consumer_tag"]: row for row in get(client, "consumers")}
        for short, full in zip(NAMES, cluster.names, strict=True):
            assert consumers[f"tag-{short}"]["channel_details"]["node"] == full
            (own,) = queue_of(client, f"q-{short}")["consumer_details"]
            assert own["consumer_tag"] == f"tag-{short}"
        totals = get(client, "overview")["object_totals"]
        assert (totals["queues"], totals["consumers"], totals["connections"]) == (3, 3, 3)


def test_a_connection_of_another_node_is_closed_with_the_reason(
    cluster: Cluster, at: list[BlockingChannel]
) -> None:
    (connection,) = [
        row for row in get(cluster.clients()[0], "connections") if row["node"] == cluster.names[1]
    ]
    reply = cluster.clients()[2].delete(
        f"connections/{connection['name']}", headers={"X-Reason": "go away"}
    )
    assert reply.status_code == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="go away"):
        at[1].queue_declare("q")


def test_the_messages_of_a_queue_are_reached_from_another_node(
    cluster: Cluster, at: list[BlockingChannel]
) -> None:
    at[0].queue_declare("q", durable=True)
    at[0].queue_declare("to", durable=True)
    client = cluster.clients()[1]
    body = {"properties": {}, "routing_key": "q", "payload_encoding": "string"}
    for number in range(4):
        reply = client.post(
            "exchanges/%2F/amq.default/publish", json=body | {"payload": f"m{number}"}
        )
        assert reply.json() == {"routed": True}
    asked = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    (message,) = client.post("queues/%2F/q/get", json=asked).json()
    assert (message["payload"], message["message_count"]) == ("m0", 3)
    peeked = client.post("warren/queues/%2F/q/peek", json={"count": 10}).json()
    assert [each["payload"] for each in peeked["messages"]] == ["m1", "m2", "m3"]
    moved = client.post("warren/queues/%2F/q/move", json={"count": 1, "destination": "to"})
    assert moved.json() == {"moved": 1, "messages_left": 2, "refused": False}
    eventually(lambda: queue_of(client, "to")["messages"] == 1, "the message is moved")
    assert get(client, "warren/queues/%2F/q/storage")["name"] == "q"
    assert client.delete("queues/%2F/q/contents").status_code == 204
    assert queue_of(client, "q")["messages"] == 0
    assert client.delete("queues/%2F/q?if-unused=true").status_code == 204
    assert client.get("queues/%2F/q").status_code == 404


def test_the_figures_of_other_nodes_have_rates(cluster: Cluster, at: list[BlockingChannel]) -> None:
    at[0].queue_declare("q", durable=True)
    publish(at[0], "q", 10)
    clients = cluster.clients()
    on_all(clients, lambda each: published(each, "q") == [10], "publishes are told")

    def has_samples(client: httpx.Client) -> bool:
        row = queue_of(client, "q?lengths_age=60&lengths_incr=1")
        return [each["sample"] for each in row["messages_details"]["samples"][:1]] == [10]

    on_all(clients, has_samples, "lengths are told")
    for client in clients:
        overview = get(client, "overview")
        assert overview["queue_totals"]["messages"] == 10
        assert overview["message_stats"]["publish"] >= 10


def test_policies_and_definitions_are_those_of_the_cluster(
    cluster: Cluster, at: list[BlockingChannel]
) -> None:
    first, second, third = cluster.clients()
    at[0].queue_declare("p", durable=True)
    body = {"pattern": "^p$", "definition": {"max-length": 7}, "apply-to": "queues"}
    assert second.put("policies/%2F/short", json=body).status_code == 201

    def effective() -> Any:
        return queue_of(third, "p")["effective_policy_definition"]

    eventually(lambda: effective() == {"max-length": 7}, "the policy applies")
    definitions = get(third, "definitions")
    assert "p" in [queue["name"] for queue in definitions["queues"]]
    assert third.delete("policies/%2F/short").status_code == 204
    definitions["queues"] = [
        {"name": "imported", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    ]
    assert second.post("definitions", json=definitions).status_code == 204
    assert queue_of(first, "imported")["state"] in ("running", "idle")
    assert first.delete("policies/%2F/short").status_code == 204


def test_mirrors_are_shown_and_synchronised_from_any_node(
    cluster: Cluster, at: list[BlockingChannel]
) -> None:
    at[0].queue_declare("m", durable=True)
    others = sorted(cluster.names[1:])
    for client in cluster.clients():
        await_mirrors(client, "m", 2)
        row = queue_of(client, "m")
        assert row["node"] == cluster.names[0]
        for column in ("slave_nodes", "synchronised_slave_nodes"):
            assert sorted(row[column]) == others
        assert sorted(row["recoverable_slaves"]) == cluster.names
        (mirrored,) = get(client, "warren/mirrors")
        assert mirrored["leader"] == cluster.names[0]
        status = get(client, "warren/mirrors/%2F/m")
        assert sorted(copy["node"] for copy in status["mirrors"]) == others
        assert client.get("health/checks/node-is-mirror-sync-critical").status_code == 200


def test_mirrors_are_synchronised_from_another_node(
    cluster: Cluster, at: list[BlockingChannel]
) -> None:
    first, second, _third = cluster.clients()
    at[0].queue_declare("late", durable=True)
    publish(at[0], "late", 3)
    body = {"pattern": "^late$", "definition": {"ha-mode": "all", "ha-sync-mode": "manual"}}
    assert second.put("policies/%2F/late", json=body).status_code == 201
    eventually(lambda: len(queue_of(second, "late").get("slave_nodes", ())) == 2, "it has mirrors")
    await_mirrors(second, "late", 0)
    check = "health/checks/node-is-mirror-sync-critical"
    failed = first.get(check)
    assert failed.status_code == 503 and failed.json()["queues"][0]["name"] == "late"
    # The master of no such queue.
    assert second.get(check).status_code == 200
    for action in ("cancel_sync", "sync"):
        reply = second.post("queues/%2F/late/actions", json={"action": action})
        assert reply.status_code == 204, reply.text
    await_mirrors(second, "late", 2)
    assert first.get(check).status_code == 200
    assert second.delete("policies/%2F/late").status_code == 204


def test_counters_stay_when_masters_are_spread(cluster: Cluster, at: list[BlockingChannel]) -> None:
    queues = ["m1", "m2", "m3"]
    clients = cluster.clients()
    for queue in queues:
        at[0].queue_declare(queue, durable=True)
        publish(at[0], queue, 5)

    for queue in queues:
        await_mirrors(clients[0], queue, 2)
    on_all(clients, lambda each: published(each, *queues) == [5, 5, 5], "publishes are told")
    assert clients[1].post("rebalance/queues").status_code == 204
    masters = {row["node"] for row in get(clients[2], "queues?columns=node")}
    assert masters == set(cluster.names)
    for queue in queues:
        publish(at[0], queue, 1)
    on_all(clients, lambda each: published(each, *queues) == [6, 6, 6], "the new masters go on")


def test_metrics_are_those_of_the_own_objects(cluster: Cluster, at: list[BlockingChannel]) -> None:
    for channel, node in zip(at, NAMES, strict=True):
        channel.queue_declare(f"q-{node}", durable=True)
    for api, node, full in zip(cluster.apis, NAMES, cluster.names, strict=True):
        page = httpx.get(f"{api.metrics_url}/per-object").text
        lines = [line for line in page.splitlines() if line.startswith("rabbitmq_queue_messages{")]
        assert [f'queue="q-{node}"' in line for line in lines] == [True]
        aggregated = httpx.get(api.metrics_url).text.splitlines()
        labels = f'rabbitmq_cluster="api",rabbitmq_endpoint="aggregated",rabbitmq_node="{full}"'
        assert f"rabbitmq_identity_info{{{labels}}} 1.0" in aggregated
        assert "rabbitmq_queues 1.0" in aggregated and "rabbitmq_connections 1.0" in aggregated


def test_configuration_and_log_of_another_node(cluster: Cluster) -> None:
    first, other = cluster.clients()[0], cluster.nodes[1]
    for path in ("warren/config", "warren/log"):
        assert get(first, path)["node"] == cluster.names[0]
        assert get(first, f"{path}?node={other.name}")["node"] == other.name
        assert first.get(f"{path}?node=nobody@nowhere").status_code == 404
    keys = {each["key"]: each for each in get(first, f"warren/config?node={other.name}")["keys"]}
    assert keys["node_name"]["value"] == other.name
    found = get(first, f"warren/log?node={other.name}&text=starting%20warren")
    assert f"node {other.name}," in found["entries"][0]["msg"]
    assert other.process is not None
    other.process.send_signal(signal.SIGSTOP)
    try:
        for path in ("warren/config", "warren/log"):
            assert first.get(f"{path}?node={other.name}").status_code == 503
    finally:
        other.process.send_signal(signal.SIGCONT)
    on_all(cluster.clients(), lambda each: runs(each, other), "the node runs on")


def test_a_dead_node_is_shown_and_its_queues_have_new_masters(cluster: Cluster) -> None:
    dead = cluster.nodes[0]
    starts = cluster.apis[0].starts
    with channels([dead]) as (channel,):
        for queue in ("m", "alone"):
            channel.queue_declare(queue, durable=True)
            publish(channel, queue, 10)
    others = cluster.clients()[1:]
    await_mirrors(others[0], "m", 2)
    on_all(others, lambda each: published(each, "m") == [10], "publishes are told")

    dead.kill()
    for client in others:
        for path in (*LISTS, "overview", "warren/groups/%2F", "warren/sinks/%2F"):
            get(client, path)
    on_all(others, lambda each: not runs(each, dead), "the node is known to be dead")

    def is_promoted(client: httpx.Client) -> bool:
        row = queue_of(client, "m")
        return row["node"] != dead.name and row["state"] in ("running", "idle")

    on_all(others, is_promoted, "a mirror is the master")
    for client in others:
        row = queue_of(client, "alone")
        assert (row["state"], row["node"], row["messages"]) == ("down", dead.name, 0)
        asked = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
        assert client.post("queues/%2F/alone/get", json=asked).status_code == 404
        assert [each["name"] for each in get(client, "warren/mirrors")] == ["m"]
    with channels(cluster.nodes[1:2]) as (channel,):
        publish(channel, "m", 5)
    on_all(others, lambda each: published(each, "m") == [15], "the new master goes on")

    dead.start()
    on_all(others, lambda each: runs(each, dead), "the node runs again")
    cluster.apis[0].await_start(starts)
    for client in others:
        await_mirrors(client, "m", 2)
        assert queue_of(client, "alone")["messages"] == 10
        assert published(client, "m") == [15]


def test_one_node_runs_a_schedule_and_another_one_goes_on(cluster: Cluster) -> None:
    clients = cluster.clients()
    path = "warren/schedules/%2F/often"
    first, second, _ = cluster.names
    for api in cluster.apis:
        (api.jobs_directory / "empty").mkdir(parents=True)
    schedule = {"job": "verify", "arguments": {"directory": "empty"}, "interval": 1}

    def ran_at(client: httpx.Client, node: str) -> bool:
        last = get(client, path)["last"]
        return last is not None and (last["node"], last["state"]) == (node, "failed")

    assert clients[0].put(path, json={**schedule, "node": second}).status_code == 201
    on_all(clients, lambda client: ran_at(client, second), "the named node runs it")
    assert clients[1].put(path, json=schedule).status_code == 204
    on_all(clients, lambda client: ran_at(client, first), "the first node runs it")
    node = cluster.nodes[0]
    starts = cluster.apis[0].starts
    node.stop()
    on_all(clients[1:], lambda client: ran_at(client, second), "the next node runs it")
    node.start()
    cluster.apis[0].await_start(starts)
    assert clients[1].delete(path).status_code == 204
    times = [
        row["due"]
        for api in cluster.apis
        for row in get(api.client(), "warren/jobs")
        if row["schedule"] == "often"
    ]
    assert len(set(times)) == len(times)
