"""Fixtures: the data directory of a node that was killed, from which tables are read."""

from tests.support.stores.stopped_node_fixtures import data, original, store

__all__ = ["data", "original", "store"]
