"""A node whose metrics a test scrapes."""

from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families

from tests.support.brokers.node_thread import NodeThread
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.management.prometheus.scrape import USUAL_FAMILIES, Page
from warrenmq.management.prometheus.scrape import scrape as families_of
from warrenmq.management.prometheus.text import encode

AGGREGATED = Page(frozenset(USUAL_FAMILIES), True)
PER_OBJECT = Page(frozenset(USUAL_FAMILIES), False)


class Scraped:
    """The samples of a page: values by the name and the labels of each."""

    def __init__(self, text: str) -> None:
        self.families = list(text_string_to_metric_families(text))
        self.values = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in self.families
            for sample in family.samples
        }
        self.names = {name for name, _ in self.values}

    def __call__(self, name: str, **labels: str) -> float:
        """The value of the sample with exactly these labels."""
        return self.values[name, tuple(sorted(labels.items()))]

    def labelled(self, name: str) -> Iterator[dict[str, str]]:
        """The labels of each sample called `name`."""
        return (dict(labels) for found, labels in self.values if found == name)


def scrape(node: NodeThread, page: Page = AGGREGATED, accept: str = "") -> Scraped:
    """Scrape `page` of `node`, in a session without a vhost."""
    address = NodeAddress(node.uri)
    address.vhost = ""
    with AdminClient(address) as client:
        return Scraped(b"".join(encode(families_of(client, page), accept)).decode())
