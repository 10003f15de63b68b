"""The metrics that exist, beside RabbitMQ's, and those that pages and dashboards use.

`rabbitmq_metrics.txt` has the metrics of RabbitMQ 3.10.8, except of Erlang itself: name, type, and
the labels of `/metrics` and of `/metrics/per-object` (`-`: no labels, `none`: not on that page).
`rabbitmq_overview.txt` has the names that its dashboard RabbitMQ-Overview uses, in 3.10 and later.
"""

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.management.prometheus.scraped import AGGREGATED, PER_OBJECT, Scraped, scrape
from tests.support.brokers.node_thread import NodeThread
from warrenmq.management.prometheus.scrape import FAMILIES, Page

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGE = DOCS / "operations" / "prometheus" / "index.md"
_RABBITMQ = Path(__file__).with_name("rabbitmq_metrics.txt")
_OVERVIEW = Path(__file__).with_name("rabbitmq_overview.txt")
# Metrics whose labels differ, as the page of metrics says.
_OTHER_LABELS = ("rabbitmq_connection_*", "rabbitmq_build_info", "rabbitmq_identity_info")
_METRIC = re.compile(r"\b(?:rabbitmq|warren)_\w+")


class Recorded(NamedTuple):
    """A metric of RabbitMQ; see `rabbitmq_metrics.txt`."""

    name: str
    type: str
    aggregated: str
    per_object: str


RABBITMQ = [Recorded(*line.split()) for line in _RABBITMQ.read_text().splitlines()]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Scraped]]:
    """The pages of a node with a queue and a client."""
    node = NodeThread(tmp_path_factory.mktemp("node"))
    peer = node.peer()
    peer.open()
    peer.channel().declare(b"q")
    yield {
        "aggregated": scrape(node, AGGREGATED),
        "per_object": scrape(node, PER_OBJECT),
        "detailed": scrape(node, Page(frozenset(FAMILIES), False, "detailed_")),
    }
    peer.close()
    node.stop()


@pytest.fixture(scope="module")
def existing(pages: dict[str, Scraped]) -> set[str]:
    """The names of all samples, and of metrics that have no sample yet."""
    names: set[str] = set()
    for found in pages.values():
        names |= found.names
        for family in found.families:
            names.add(f"{family.name}_total" if family.type == "counter" else family.name)
    return names


def test_each_metric_of_rabbitmq_exists_or_is_named_as_missing(existing: set[str]) -> None:
    missing = PAGE.read_text().partition("\n## Missing\n")[2]
    patterns = re.findall(r"`(rabbitmq_[\w*]+)`", missing)
    names = [each.name for each in RABBITMQ]
    unnamed = [
        name
        for name in names
        if name not in existing and not any(fnmatchcase(name, each) for each in patterns)
    ]
    assert unnamed == []
    stale = [each for each in patterns if not any(fnmatchcase(name, each) for name in names)]
    assert stale == ["rabbitmq_message_size_bytes"], "only newer versions of RabbitMQ have it"
    found = [each for each in existing if any(fnmatchcase(each, one) for one in patterns)]
    assert found == []


def test_types_and_labels_are_those_of_rabbitmq(pages: dict[str, Scraped]) -> None:
    for page, found in pages.items():
        if page == "detailed":
            continue
        types = {f"{each.name}_total" if each.type == "counter" else each.name: each.type
                 for each in found.families}  # fmt: skip
        for metric in RABBITMQ:
            if metric.name not in found.names or getattr(metric, page) == "none":
                continue
            if metric.type != "untyped":
                assert types[metric.name] == metric.type, metric
            if not any(fnmatchcase(metric.name, each) for each in _OTHER_LABELS):
                labels = {",".join(sorted(each)) or "-" for each in found.labelled(metric.name)}
                assert labels == {getattr(metric, page)}, metric


def test_a_sum_is_missing_only_of_what_is_no_sum(pages: dict[str, Scraped]) -> None:
    """Where RabbitMQ has a metric on both pages, both pages here have it or neither."""
    on_both = {each.name for each in RABBITMQ if "none" not in (each.aggregated, each.per_object)}
    alone = on_both & (pages["per_object"].names - pages["aggregated"].names)
    assert alone == {
        "rabbitmq_connection_incoming_packets_total",
        "rabbitmq_connection_outgoing_packets_total",
        "rabbitmq_queue_consumer_utilisation",
    }


def test_the_dashboard_of_rabbitmq_finds_all_its_metrics(pages: dict[str, Scraped]) -> None:
    assert set(_OVERVIEW.read_text().split()) - pages["aggregated"].names == set()


@pytest.mark.parametrize(
    "name", ["warren-storage.json", "warren-mirrors.json", "warren-alerts.yml"]
)
def test_dashboards_and_alerts_use_metrics_that_exist(existing: set[str], name: str) -> None:
    text = (PAGE.parent / name).read_text()
    if name.endswith(".json"):
        panels = json.loads(text)["panels"]
        expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    else:
        expressions = re.findall(r"expr: (?:>-\s+)?(.+(?:\n {10}\S.*)*)\n", text)
    assert len(expressions) > 5
    used = {each for expression in expressions for each in _METRIC.findall(expression)}
    assert used - existing == set()


def test_the_page_of_symptoms_names_metrics_that_exist(existing: set[str]) -> None:
    text = (PAGE.parents[1] / "monitoring.md").read_text()
    named = set(re.findall(r"`((?:rabbitmq|warren)_\w+)`", text))
    assert len(named) > 30
    assert named - existing - set(FAMILIES) == set()


def test_each_alert_links_to_what_to_do() -> None:
    text = (PAGE.parent / "warren-alerts.yml").read_text()
    links = re.findall(r"runbook: (\S+)#(\S+)", text)
    assert len(links) == text.count("- alert:")
    for path, anchor in links:
        headings = re.findall(r"^#+ (.+)$", (DOCS / path).read_text(), re.MULTILINE)
        assert anchor in [heading.lower().replace(" ", "-") for heading in headings], (path, anchor)
