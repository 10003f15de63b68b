"""While a node pages, compacts, synchronises and dies, the pages show the API's figures.

A figure that moves all the time lies between what the API says before the page and after it. Others
are the same once nothing has changed in between.
"""

import html
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pika
import pytest

from tests.management.clusters import Cluster, running_cluster
from tests.support.awaiting import eventually
from tests.support.brokers.http_api import HttpNode
from tests.support.etcd import EtcdServer
from warrenmq.admin.protocol.control import SetMemoryLimit
from warrenmq.management.ui import figures

pytestmark = pytest.mark.slow

PERSISTENT = pika.BasicProperties(delivery_mode=2)
BODY = bytes(8000)
COUNT = 4000
# Beyond half of its limit a node pages; these messages bring it near the alarm at most.
ROOM_BYTES = 64 << 20
# Of so many messages every fourth is acked: the files of their bodies have garbage.
ACKED_OF = 1000
STORAGE = "warren/queues/%2F/m/storage"
MIRRORS = "warren/mirrors/%2F/m"


class Seen:
    """The pages of a node, and its API."""

    def __init__(self, node: HttpNode) -> None:
        self.pages = httpx.Client(base_url=node.url, follow_redirects=True, timeout=60)
        self.pages.post("login", data={"user": "guest", "password": "guest"})
        self._api = node.client()

    def api(self, path: str) -> Any:
        reply = self._api.get(path)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def put(self, path: str, body: Any) -> None:
        assert self._api.put(path, json=body).status_code == 201

    def page(self, path: str) -> str:
        reply = self.pages.get(path)
        assert reply.status_code == 200, reply.text
        return reply.text

    def between(
        self, page: str, pattern: str, api: str, figure: Callable[[Any], int | None]
    ) -> bool:
        """Whether the page has a figure: then it is one of the API's of that moment.

        `pattern` finds it in the text. A figure that has fallen, as that of a synchronisation which
        begins anew, tells nothing.
        """
        before = figure(self.api(api))
        found = re.search(pattern, text(self.page(page)))
        after = figure(self.api(api))
        if found is None or before is None or after is None or after < before:
            return False
        assert before <= int(found[1].replace(",", "")) <= after
        return True

    def is_same(self, page: str, api: str, words: Callable[[Any], list[str]]) -> None:
        """Return when the page has the `words` that the API's reply at this moment makes."""

        def are_there() -> bool:
            wanted = words(self.api(api))
            shown = text(self.page(page))
            return wanted == words(self.api(api)) and all([each in shown for each in wanted])

        eventually(are_there, f"page and API of {page} are of one moment")


def text(page: str) -> str:
    """The text of a page, without its tags."""
    return html.unescape(" ".join(re.sub("<[^>]*>", " ", page).split()))


@pytest.fixture(scope="module")
def cluster(etcd: EtcdServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster")
    with running_cluster(directory, etcd.url, ("n1", "n2", "n3"), "same") as found:
        yield found


def test_pages_show_the_figures_of_the_api(cluster: Cluster) -> None:
    first, second = (Seen(api) for api in cluster.apis[:2])
    page_while_messages_come(cluster, first)
    compact(cluster, first)
    synchronise(first)
    kill_the_master(cluster, second)


def page_while_messages_come(cluster: Cluster, seen: Seen) -> None:
    (used,) = [row["mem_used"] for row in seen.api("nodes") if row["name"] == cluster.names[0]]
    cluster.apis[0].control(SetMemoryLimit(absolute=used + ROOM_BYTES))
    parameters = pika.URLParameters(cluster.nodes[0].uri)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare("m", durable=True)

        def publish() -> None:
            for _ in range(COUNT):
                channel.basic_publish("", "m", BODY, PERSISTENT)

        publisher = threading.Thread(target=publish)
        publisher.start()

        def has_paged() -> bool:
            position = r"Positions given ([\d,]+)"
            assert seen.between("queues/%2F/m?tab=storage", position, STORAGE, _positions)
            storage = seen.api(STORAGE)
            return bool(storage["alpha"]["count"] < sum(storage["parts"].values()))

        eventually(has_paged, "messages leave memory while others come")
        publisher.join()

    def count() -> int:
        return sum(seen.api(STORAGE)["parts"].values())

    eventually(lambda: count() == COUNT, "all messages are there")
    seen.is_same("queues/%2F/m?tab=storage", STORAGE, _storage_words)


def _positions(storage: Any) -> int:
    return int(storage["next_seq"])


def _storage_words(storage: Any) -> list[str]:
    forms = [storage[form] for form in ("alpha", "beta", "gamma", "delta")]
    counted = [
        f"{figures.count(each['count'])} messages, {figures.size(each['bytes'])}" for each in forms
    ]
    parts = [f"in part {name} {figures.count(each)}" for name, each in storage["parts"].items()]
    return [*counted, *parts]


def compact(cluster: Cluster, seen: Seen) -> None:
    with pika.BlockingConnection(pika.URLParameters(cluster.nodes[0].uri)) as connection:
        channel = connection.channel()
        for number in range(ACKED_OF):
            method, _, _ = channel.basic_get("m")
            assert method is not None
            if number % 4 == 0:
                channel.basic_ack(method.delivery_tag)

    def garbage() -> int:
        return int(seen.api("warren/storage/%2F")["persistent"]["garbage_bytes"])

    acked_bytes = ACKED_OF // 4 * len(BODY)
    eventually(lambda: garbage() >= acked_bytes, "what was acked is garbage")
    begun = seen.pages.post("storage/compact", data={"of": "/"})
    assert re.search(r"[1-9]\d* files are copied", text(begun.text))

    def is_done() -> bool:
        done = r"large messages .*? ([\d,]+) compactions since the start"
        assert seen.between("storage?vhost=%2F", done, "warren/storage/%2F", _compactions)
        return not seen.api("warren/storage/%2F")["persistent"]["wanted_files"]

    eventually(is_done, "the files are copied")
    seen.is_same(
        "storage?vhost=%2F",
        "warren/storage/%2F",
        _store_words,
    )


def _store_words(store: Any) -> list[str]:
    contents = store["persistent"]
    files = f"{figures.count(contents['files'])} files"
    garbage = f"{figures.size(contents['garbage_bytes'])} garbage"
    return [f"{files}, {garbage}", f"{figures.size(store['disk_bytes'])} on disk"]


def _compactions(store: Any) -> int:
    return int(store["persistent"]["compactions"])


def synchronise(seen: Seen) -> None:
    # Small batches take long enough to be looked at.
    definition = {"ha-mode": "all", "ha-sync-mode": "automatic", "ha-sync-batch-size": 50}
    body = {"pattern": "^m$", "definition": definition, "apply-to": "queues"}
    was_seen = False
    seen.put("policies/%2F/mirrored", body)

    def progress(status: Any) -> int | None:
        found = [each["sync_messages"] for each in status["mirrors"]]
        return found[0] if found else None

    def is_synchronised() -> bool:
        nonlocal was_seen
        shown = r"([\d,]+) of [\d,]+ messages [\d,.]+/s, [\d.]+ [KM]iB/s, [\w. ]+ left"
        was_seen = seen.between("mirrors/%2F/m", shown, MIRRORS, progress) or was_seen
        return len(seen.api(MIRRORS)["synchronised_slave_nodes"]) == 2

    eventually(lambda: bool(seen.api("warren/mirrors")), "the queue is mirrored")
    eventually(is_synchronised, "the mirrors are in sync")
    assert was_seen
    seen.is_same("mirrors/%2F/m", MIRRORS, _mirror_words)


def _mirror_words(status: Any) -> list[str]:
    mirrors = [
        f"{each['node']} in sync {figures.count(each['lag_messages'])} "
        f"{figures.size(each['lag_bytes'])} {figures.duration(each['lag_ms'])}"
        for each in status["mirrors"]
        if each["is_synchronised"] and each["is_online"]
    ]
    losses = [
        f"{node} {figures.count(loss['messages'])} {loss['text']}"
        for node, loss in status["lost_if_stops"].items()
    ]
    view = f"epoch {status['epoch']}, view {status['version']}"
    return [view, f"{figures.count(status['messages'])} messages", *mirrors, *losses]


def kill_the_master(cluster: Cluster, seen: Seen) -> None:
    dead = cluster.nodes[0]
    dead.kill()

    def is_promoted() -> bool:
        seen.is_same("mirrors/%2F/m", MIRRORS, lambda status: [f"{status['node']} master, "])
        status = seen.api(MIRRORS)
        return bool(status["node"] != dead.name and status["state"] == "running")

    eventually(is_promoted, "a mirror leads the queue")
    seen.is_same("mirrors/%2F/m", MIRRORS, _mirror_words)
    seen.is_same(
        "nodes",
        "nodes?columns=name,running",
        lambda nodes: [
            f"{each['name']} {'running' if each['running'] else 'down'}" for each in nodes
        ],
    )
