"""The broker that these tests put load on."""

from tests.support.brokers.fixtures import broker_uri

__all__ = ["broker_uri"]
