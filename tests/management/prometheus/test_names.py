"""The metrics that exist, those of RabbitMQ that the page names as missing, and those in use.

`rabbitmq_names.txt` has the samples of `/metrics` of RabbitMQ 3.10.8, except of Erlang itself, and
those that its newer dashboard RabbitMQ-Overview asks for.
"""

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.management.prometheus.scraped import PER_OBJECT, scrape
from tests.support.brokers.node_thread import NodeThread
from warrenmq.management.prometheus.scrape import FAMILIES, Page

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGE = DOCS / "operations" / "prometheus" / "index.md"
NAMES = Path(__file__).with_name("rabbitmq_names.txt")
_METRIC = re.compile(r"\b(?:rabbitmq|warren)_\w+")


@pytest.fixture(scope="module")
def existing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[set[str]]:
    """The names of all samples, and of metrics that have no sample yet."""
    node = NodeThread(tmp_path_factory.mktemp("node"))
    peer = node.peer()
    peer.open()
    peer.channel().declare(b"q")
    names: set[str] = set()
    for page in (
        Page(PER_OBJECT.families, True),
        PER_OBJECT,
        Page(frozenset(FAMILIES), False, "detailed_"),
    ):
        found = scrape(node, page)
        names |= found.names
        for family in found.families:
            names.add(f"{family.name}_total" if family.type == "counter" else family.name)
    peer.close()
    node.stop()
    yield names


def test_each_metric_of_rabbitmq_exists_or_is_named_as_missing(existing: set[str]) -> None:
    missing = PAGE.read_text().partition("\n## Missing\n")[2]
    patterns = re.findall(r"`(rabbitmq_[\w*]+)`", missing)
    names = NAMES.read_text().split()
    unnamed = [
        name
        for name in names
        if name not in existing and not any(fnmatchcase(name, each) for each in patterns)
    ]
    assert unnamed == []
    stale = [each for each in patterns if not any(fnmatchcase(name, each) for name in names)]
    assert stale == []
    assert [each for each in patterns if each in existing] == []


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


def test_each_alert_links_to_what_to_do() -> None:
    text = (PAGE.parent / "warren-alerts.yml").read_text()
    links = re.findall(r"runbook: (\S+)#(\S+)", text)
    assert len(links) == text.count("- alert:")
    for path, anchor in links:
        headings = re.findall(r"^#+ (.+)$", (DOCS / path).read_text(), re.MULTILINE)
        assert anchor in [heading.lower().replace(" ", "-") for heading in headings], (path, anchor)
