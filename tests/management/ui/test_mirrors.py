"""The pages of mirrors, links and etcd, of a cluster of two nodes."""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pika
import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.http_api import HttpNode
from tests.support.cluster.trio import ClusterNode, ClusterNodes, channels
from tests.support.etcd import EtcdServer

pytestmark = pytest.mark.slow


@dataclass
class Cluster:
    """Two nodes; the pages and the API of the first one."""

    nodes: list[ClusterNode]
    api: httpx.Client
    pages: httpx.Client

    def shown(self, path: str) -> str:
        """The text of a page."""
        reply = self.pages.get(path)
        assert reply.status_code == 200, reply.text
        return html.unescape(" ".join(re.sub("<[^>]*>", " ", reply.text).split()))

    def status(self) -> Any:
        """The copies of the queue `m`."""
        return self.api.get("warren/mirrors/%2F/m").json()


@pytest.fixture(scope="module")
def cluster(etcd: EtcdServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The nodes have a queue `m` of 3 messages, with a mirror that has not got them."""
    nodes = ClusterNodes(tmp_path_factory.mktemp("cluster"), etcd.url, "n1", "n2", cluster="ui")
    http = HttpNode(nodes.nodes[0].directory, nodes.nodes[0])
    with nodes:
        http.await_start(0)
        api = http.client()
        with channels(nodes.nodes[:1]) as (channel,):
            channel.queue_declare("m", durable=True)
            for _ in range(3):
                channel.basic_publish("", "m", b"m", pika.BasicProperties(delivery_mode=2))
        defined = {"ha-mode": "all", "ha-sync-mode": "manual"}
        body = {"pattern": "^m", "definition": defined, "apply-to": "queues"}
        assert api.put("policies/%2F/mirrored", json=body).status_code == 201
        eventually(lambda: len(api.get("warren/mirrors").json()) == 1, "the queue is mirrored")
        with httpx.Client(base_url=http.url, follow_redirects=True, timeout=30) as pages:
            pages.post("login", data={"user": "guest", "password": "guest"})
            found = Cluster(nodes.nodes, api, pages)
            eventually(lambda: len(found.status()["mirrors"]) == 1, "there is a mirror")
            yield found
    http.close()


def test_a_mirror_is_synchronised(cluster: Cluster) -> None:
    first, second = [node.name for node in cluster.nodes]
    listed = cluster.shown("mirrors")
    assert f"{second}: not in sync" in listed
    assert "no other copy in sync: 1" in listed
    page = cluster.pages.get("mirrors/%2F/m").text
    ring = f"Ring: {first} master running, {second} mirror not in sync"
    assert f'aria-label="{ring}"' in page
    status = cluster.status()
    words = cluster.shown("mirrors/%2F/m")
    assert f"epoch {status['epoch']}, view {status['version']}" in words
    for node, loss in status["lost_if_stops"].items():
        assert f"{node} {loss['messages']} {loss['text']}" in words
    (mirror,) = status["mirrors"]
    assert f"not in sync {mirror['lag_messages']} " in words
    assert cluster.pages.post("mirrors/%2F/m/do", data={"action": "drop"}).status_code == 400
    assert (
        "being synchronised" in cluster.pages.post("mirrors/%2F/m/do", data={"action": "sync"}).text
    )

    def is_synchronised() -> bool:
        return bool(cluster.status()["synchronised_slave_nodes"] == [second])

    eventually(is_synchronised, "the mirror is synchronised")
    assert f"{second} mirror in sync" in cluster.pages.get("mirrors/%2F/m").text
    assert "nothing is lost: mirrors in sync take over" in cluster.shown("mirrors")


def test_the_list_of_queues_has_policy_and_mirrors(cluster: Cluster) -> None:
    """A badge counts the mirrors, those that lack messages included."""
    page = cluster.pages.get("queues").text
    assert '<abbr class="badge" title="policy">mirrored</abbr>' in page
    assert ">+1<" in page


def test_masters_are_spread_after_a_look_at_the_moves(cluster: Cluster) -> None:
    first, second = [node.name for node in cluster.nodes]
    assert "Nothing moves" in cluster.shown("mirrors/rebalance")
    with channels(cluster.nodes[:1]) as (channel,):
        channel.queue_declare("m2", durable=True)

    def moves() -> Any:
        return cluster.api.get("warren/rebalance").json()["moves"]

    eventually(lambda: len(moves()) == 1, "the new mirror is in sync")
    (move,) = moves()
    page = cluster.shown("mirrors/rebalance")
    assert f"{first} 2 1 {second} 0 1" in page
    assert f"{move['name']} / {first} {second}" in page
    assert "spread over the nodes" in cluster.pages.post("mirrors/rebalance").text
    found = {row["name"]: row["leader"] for row in cluster.api.get("warren/mirrors").json()}
    assert found == {"m": first, "m2": first} | {move["name"]: second}


def test_maintenance_says_first_what_it_does(cluster: Cluster) -> None:
    """The node that is asked, and another one."""

    for node, other in (cluster.nodes, cluster.nodes[::-1]):
        path = f"nodes/{node.name}"

        def may_all_move(target: str = other.name) -> bool:
            rows = cluster.api.get("warren/mirrors").json()
            return all(target in [row["leader"], *row["synchronised_slave_nodes"]] for row in rows)

        with channels([node]) as (channel,):
            channel.queue_declare("alone", durable=True)
            eventually(may_all_move, "the mirrors are in sync again")
            plan = cluster.api.get(f"warren/{path}/drain").json()
            assert [each["target"] for each in plan["moves"]] == [other.name] * len(plan["moves"])
            page = cluster.shown(f"{path}/drain")
            assert f"Masters that move to {other.name} {len(plan['moves'])}" in page
            assert "alone / no mirrors" in page and "will be closed" in page
            for client in plan["connections"]:
                assert f"{client['name']} guest /" in page
            refused = cluster.pages.post(f"{path}/drain", data={"confirmed": "wrong"})
            assert "Type " in refused.text and channel.is_open
            done = cluster.pages.post(f"{path}/drain", data={"confirmed": node.name})
            assert f"Node {node.name} is in maintenance mode." in done.text
            with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="maintenance"):
                channel.connection.process_data_events(10)
        for shown in ("nodes", "overview"):
            assert f"{node.name} in maintenance" in cluster.shown(shown)
        assert "and the end of the maintenance" in cluster.shown(path)

        def has_no_master(name: str = node.name) -> bool:
            leaders = [row["leader"] for row in cluster.api.get("warren/mirrors").json()]
            return name not in leaders

        eventually(has_no_master, "the masters are gone")
        assert "clients and movable masters are gone" in cluster.shown(f"{path}/drain")
        assert "takes clients again" in cluster.pages.post(f"{path}/revive").text
        assert f"{node.name} running" in cluster.shown("nodes")
        cluster.api.delete("queues/%2F/alone")


def test_links_and_etcd(cluster: Cluster) -> None:
    first, second = [node.name for node in cluster.nodes]
    known = cluster.api.get("warren/cluster").json()
    page = cluster.shown("nodes?tab=cluster")
    assert f"{first} {second} up" in page and f"{second} {first} up" in page
    assert f"Version {known['etcd']['version']}" in page and "State answers" in page
    assert f"{second} up for" in cluster.shown(f"nodes/{first}")


def test_a_node_that_is_down(cluster: Cluster) -> None:
    second = cluster.nodes[1]
    second.stop()

    def is_down() -> bool:
        return cluster.api.get(f"nodes/{second.name}").json()["running"] is False

    eventually(is_down, "the other node is missed")
    assert "What to do: Start it again" in cluster.shown(f"nodes/{second.name}")
    assert f"{second.name} down" in cluster.shown("nodes")
    assert f"Not running {second.name}" in cluster.shown("nodes?tab=cluster")
