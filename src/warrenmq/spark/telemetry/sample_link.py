"""A Spark process's connection to the samples of all nodes: to any node, which asks the others.

The URI names one node. When it is down, another one is asked: those that it has told of.
"""

import os
from collections.abc import Mapping
from typing import Final

from warrenmq.admin.client.client import (
    AdminClient,
    AdminRefusedError,
    NodeAddress,
    NodeUnreachableError,
)
from warrenmq.admin.client.node_addresses import uri_at
from warrenmq.admin.protocol.homes import LocateQueues, QueuesLocated
from warrenmq.admin.protocol.samples import ReadSamples, Samples
from warrenmq.spark.nodes import Nodes, Place
from warrenmq.spark.retry import Retry, SourceError, is_transient
from warrenmq.vocabulary.error_codes import UNREACHABLE

_PURPOSE: Final = "Spark metrics"
_OPTION: Final = "retryTimeoutMs"


class NodeAwayError(Exception):
    """No link leads to the node whose samples are wanted."""


class SampleLink:
    """A connection that the first request opens; requests wait up to `retry_timeout_ms`."""

    def __init__(self, uri: str, retry_timeout_ms: int) -> None:
        self.nodes = Nodes(uri, _PURPOSE)
        self._uri = uri
        self._retry = Retry(NodeAddress(uri).where, retry_timeout_ms / 1000, _OPTION)
        self._client: AdminClient | None = None

    def request(self, request: ReadSamples) -> Samples:
        """The reply. Raises NodeAwayError, and SourceError for a refusal, or when all are away."""
        with self._retry as retry:
            while True:
                try:
                    if self._client is None:
                        retry.attempt()
                        self._client = self._connect()
                        retry.connected()
                    return self._client.request(request, Samples)
                except NodeUnreachableError as error:
                    self._client = None
                    retry.failed(error)
                except AdminRefusedError as error:
                    if error.code == UNREACHABLE:
                        raise NodeAwayError(error.text) from None
                    if not is_transient(error):
                        raise SourceError(error.text) from None
                    retry.failed(error)

    def _connect(self) -> AdminClient:
        """A connection to the first node that answers. Raises NodeUnreachableError if none does."""
        failure: NodeUnreachableError | None = None
        others = [uri_at(self._uri, each.host, each.port) for each in self.nodes.places.values()]
        for uri in (self._uri, *others):
            try:
                client = AdminClient(NodeAddress(uri), _PURPOSE)
                self.nodes.take(client.request(LocateQueues(), QueuesLocated).nodes)
            except NodeUnreachableError as error:
                failure = failure or error
            else:
                return client
        assert failure is not None
        raise failure


# The links by process, URI and timeout (ms); see `broker_link.link_to`.
_links: dict[tuple[int, str, int], SampleLink] = {}


def sample_link(uri: str, retry_timeout_ms: int, places: Mapping[str, Place]) -> SampleLink:
    """This process's link; the driver saw the nodes of the cluster at `places`."""
    key = (os.getpid(), uri, retry_timeout_ms)
    link = _links.get(key)
    if link is None:
        link = _links[key] = SampleLink(uri, retry_timeout_ms)
    link.nodes.hint(places)
    return link
