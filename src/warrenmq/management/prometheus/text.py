"""Metrics as text: Prometheus' format 0.0.4, or OpenMetrics for clients that ask for it."""

from collections.abc import Iterable

from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from warrenmq.management.prometheus.metrics import Family


class _Collected(Collector):
    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


def encode(families: Iterable[Family], accept: str) -> tuple[bytes, str]:
    """The text of the metrics and its content type, for a request that accepts `accept`."""
    encoder, content_type = choose_encoder(accept)
    return encoder(_Collected(families)), content_type
