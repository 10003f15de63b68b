"""Fixtures of the tests of tools that read the data directory of a killed node."""

from tests.support.stores.stopped_node_fixtures import data, original, store

__all__ = ["data", "original", "store"]
