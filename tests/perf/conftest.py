"""The broker that these tests put load on."""

from tests.support.broker_fixtures import broker_uri

__all__ = ["broker_uri"]
