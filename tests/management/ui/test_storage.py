"""The pages of storage have the API's figures, of a node that pages and of one that compacts."""

import html
import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pika
import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.http_api import HttpNode
from warrenmq.admin.protocol.control import SetMemoryLimit
from warrenmq.management.ui import figures
from warrenmq.management.ui.elements.spreads import nanoseconds, quantile, shown_quantile

LARGE = "large"
DEEP = "deep & <b>wide</b>"
PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture(scope="module")
def begun_ms() -> int:
    """When the tests of this file began (Unix ms): the vhost of the shared node is new then."""
    return int(time.time() * 1000)


@pytest.fixture(scope="module")
def api(http_node: HttpNode, begun_ms: int) -> Iterator[httpx.Client]:
    """The API of a node whose queue DEEP has paged, and whose queue LARGE has made garbage."""
    api = http_node.client()
    with pika.BlockingConnection(pika.URLParameters(http_node.node.uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for name in (LARGE, DEEP):
            channel.queue_declare(name, durable=True)
        for _ in range(40):
            channel.basic_publish("", LARGE, bytes(1 << 20), PERSISTENT)
        for number in range(40):
            method, _, _ = channel.basic_get(LARGE)
            assert method is not None
            if number % 4 == 0:
                channel.basic_ack(method.delivery_tag)
        for _ in range(200):
            channel.basic_publish("", DEEP, bytes(5000), PERSISTENT)
    http_node.control(SetMemoryLimit(absolute=1))

    def has_paged() -> bool:
        deep = api.get(f"warren/queues/%2F/{quote(DEEP, safe='')}/storage").json()
        return bool(deep["alpha"]["count"] == 0 and deep["target_ram_count"] == 0)

    def has_garbage() -> bool:
        contents = api.get("warren/storage/%2F").json()["persistent"]
        return bool(contents["garbage_bytes"] > 8 << 20)

    eventually(has_paged, "the messages are paged out")
    eventually(has_garbage, "the acks are counted")
    yield api
    http_node.control(SetMemoryLimit(relative=0.6))


@pytest.fixture(scope="module")
def pages(http_node: HttpNode, api: httpx.Client) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=http_node.url, follow_redirects=True, timeout=30) as client:
        client.post("login", data={"user": "guest", "password": "guest"})
        yield client


def shown(pages: httpx.Client, path: str) -> str:
    """The text of a page."""
    reply = pages.get(path)
    assert reply.status_code == 200, reply.text
    assert "<b>wide" not in reply.text
    return html.unescape(" ".join(re.sub("<[^>]*>", " ", reply.text).split()))


def test_stores(pages: httpx.Client, api: httpx.Client) -> None:
    page = shown(pages, "storage")
    node = api.get("warren/storage").json()
    store = node["vhosts"][0]
    contents = store["persistent"]
    garbage = figures.percent(contents["garbage_bytes"], contents["total_bytes"])
    for text in (
        f"{figures.size(store['disk_bytes'])} on disk",
        f"{figures.size(store['live_bytes'])} needed by queues",
        f"{garbage} of large messages are garbage",
        f"Garbage {figures.size(contents['garbage_bytes'])} ({garbage})",
        f"Journal {figures.size(store['journal']['bytes'])}",
        f"paging begins {figures.size(node['paging_limit_bytes'])}",
        f"Write amplification {store['writes']['amplification']:.2f}",
        f"Checkpoints {store['checkpoints']}",
    ):
        assert text in page, text


def test_files_are_cells_and_rows(pages: httpx.Client, api: httpx.Client) -> None:
    files = api.get("warren/storage/%2F/files").json()["persistent"]
    page = pages.get("storage?tab=files").text
    cells = re.search(r'<path class="cell" d="([^"]*)"', page)
    assert cells is not None and cells[1].count("M") == len(files)
    text = shown(pages, "storage?tab=files&vhost=%2F")
    assert f"As a table: {len(files)} of {len(files)} files" in text
    for number, size, valid, *_ in files:
        sizes = [figures.size(each) for each in (size, valid, size - valid)]
        assert f"{number} {' '.join(sizes)} {figures.percent(size - valid, size)}" in text
    assert "no such store" in shown(pages, "storage?tab=files&vhost=none")


def test_the_queue_that_fills_the_disk_is_first(pages: httpx.Client) -> None:
    page = shown(pages, "storage?tab=queues")
    assert re.search(rf"Virtual host {LARGE} no consumers 30\.0 MiB 30\.0 MiB", page), page
    assert page.index(LARGE) < page.index(DEEP)
    turned = shown(pages, "storage?tab=queues&sort=message_bytes&sort_reverse=false")
    assert turned.index(DEEP) < turned.index(LARGE)


def test_durations(pages: httpx.Client, api: httpx.Client) -> None:
    page = shown(pages, "storage?tab=durations")
    confirms = api.get("warren/latencies").json()["confirms"]
    p99 = shown_quantile(confirms, 0.99, nanoseconds)
    count = figures.count(sum(confirms["counts"]))
    assert re.search(rf"its confirm .*Count {count} mean .* p99 {p99} As a table", page)


@pytest.mark.parametrize(
    ("counts", "half", "most"),
    [([0, 0, 0], None, None), ([5, 5, 0], 1.0, 2.0), ([0, 1, 99], float("inf"), float("inf"))],
)
def test_quantiles_are_bounds(counts: list[int], half: float | None, most: float | None) -> None:
    spread = {"bounds": [1, 2], "counts": counts, "total": 0}
    assert (quantile(spread, 0.5), quantile(spread, 0.99)) == (half, most)


def test_a_queue_that_has_paged(pages: httpx.Client, api: httpx.Client) -> None:
    name = quote(DEEP, safe="")
    page = pages.get(f"queues/%2F/{name}?tab=storage").text
    storage = api.get(f"warren/queues/%2F/{name}/storage").json()
    parts = ", ".join([f"{part} {count}" for part, count in storage["parts"].items()])
    assert f'aria-label="Parts of the queue: {parts}"' in page
    text = html.unescape(" ".join(re.sub("<[^>]*>", " ", page).split()))
    for form in ("alpha", "beta", "gamma", "delta"):
        known = storage[form]
        assert f"{figures.count(known['count'])} messages, {figures.size(known['bytes'])}" in text
    assert f"May be in memory {storage['target_ram_count']}" in text
    assert f"target {storage['target_ram_count']}" in text


def test_garbage_is_freed_on_demand(pages: httpx.Client, api: httpx.Client) -> None:
    def contents() -> dict[str, Any]:
        row: dict[str, Any] = api.get("warren/storage/%2F").json()["persistent"]
        return row

    begun = pages.post("storage/compact", data={"of": "/"})
    assert re.search(r"[1-9] files are copied, with [0-9.]+ MiB of garbage", begun.text)
    eventually(lambda: not contents()["wanted_files"], "the files are copied")
    assert f"{contents()['compactions']} compactions" in shown(pages, "storage")


def test_compactions_are_on_a_line_of_time(pages: httpx.Client, api: httpx.Client) -> None:
    """Those that `test_garbage_is_freed_on_demand` has asked for."""
    runs = api.get("warren/storage/%2F/compactions").json()["runs"]
    assert runs
    page = pages.get("storage?tab=files").text
    assert page.count('class="hollow c3" d=') == len(runs)
    text = shown(pages, "storage?tab=files")
    assert f"As a table: {len(runs)} of {len(runs)} compactions" in text
    for run in runs:
        files = ", ".join([str(number) for number in run["files"]])
        took = figures.duration(run["ended_ms"] - run["began_ms"])
        sizes = f"{figures.size(run['size_bytes'])} {figures.size(run['freed_bytes'])}"
        began = figures.moment(run["began_ms"])
        assert f"{began} {took} persistent {files} {run['target']} {sizes} asked" in text


def test_segments_are_cells_and_rows(pages: httpx.Client, api: httpx.Client) -> None:
    name = quote(DEEP, safe="")
    path = f"queues/%2F/{name}"
    found = api.get(f"warren/{path}/storage/segments").json()
    ((level, number, messages, acked, pending, size, state),) = found["items"]
    assert (level, messages, acked, pending, state) == (
        0,
        200 - found["unindexed"],
        0,
        messages,
        "part",
    )
    text = shown(pages, f"{path}?tab=storage")
    row = f"{number} 0 {messages} 0 {messages} {figures.size(size)} is written to"
    assert row in text and f"in no segment yet {found['unindexed']}" in text
    assert row in shown(pages, f"{path}?tab=storage&segments=7"), "there is one page alone"


def test_forms_over_time(pages: httpx.Client, api: httpx.Client) -> None:
    path = f"queues/%2F/{quote(DEEP, safe='')}"
    asked = {"lengths_age": 600, "lengths_incr": 5}

    def newest() -> dict[str, Any]:
        history = api.get(f"warren/{path}/storage", params=asked).json()["history"]
        return dict(history[0]) if history else {}

    eventually(lambda: newest().get("target_ram_count") == 0, "a tick tells the target")
    known = newest()
    assert known["alpha"] == 0 and known["beta"] + known["gamma"] + known["delta"] == 200
    page = pages.get(f"{path}?tab=storage").text
    chart = page.partition("Ready messages by form over time")[2].partition("</figure>")[0]
    for form in ("alpha", "beta", "gamma", "delta"):
        assert f"{form} <b>{figures.count(known[form])}</b>" in chart
    assert "target in memory <b>0</b>" in chart


def test_syncs_writes_and_memory_over_time(
    pages: httpx.Client, api: httpx.Client, begun_ms: int
) -> None:
    asked = {"node_stats_age": 600, "node_stats_incr": 5}

    def history() -> list[dict[str, Any]]:
        return list(api.get("warren/storage", params=asked).json()["history"])

    def told() -> tuple[str, str, str, str]:
        known = history()
        busy = [each for each in known if any(each["syncs"])]
        memory = known[0]["memory"]
        return (
            f"all <b>{figures.count(sum([sum(each['syncs']) for each in busy]))}</b>",
            f"of {len(busy)} intervals with syncs",
            f"paging begins <b>{figures.size(memory['mem_paging'])}</b>",
            f"alarm <b>{figures.size(memory['mem_limit'])}</b>",
        )

    eventually(lambda: len(history()) > 1, "a few ticks")
    before = told()
    page = pages.get("storage?tab=durations").text + pages.get("storage").text
    for text, later in zip(before, told(), strict=True):
        assert text in page or later in page, text
    assert "Heat map: Syncs of the journals over time" in page
    known = history()
    assert sum([each["writes"]["content_bytes"] for each in known]) > 0
    # Earlier intervals have what other files of tests have written, too.
    own = [each for each in known if each["timestamp"] - each["length_ms"] >= begun_ms]
    store = api.get("warren/storage/%2F").json()["writes"]
    assert sum([each["writes"]["content_bytes"] for each in own]) <= store["content_bytes"]


def test_who_is_no_monitor_sees_no_stores(http_node: HttpNode, api: httpx.Client) -> None:
    http_node.add_user("manager", "management")
    with httpx.Client(base_url=http_node.url, follow_redirects=True, timeout=30) as client:
        client.post("login", data={"user": "manager", "password": "manager"})
        assert client.get("storage").status_code == 401
        assert client.post("storage/compact", data={}).status_code == 401
