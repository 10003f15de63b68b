"""Fixtures of the topology tests: a broker process (`tests/support/brokers/fixtures.py`), a name,
and pika connections.
"""

import random
from collections.abc import Iterator

import pika
import pytest

from tests.support.brokers.fixtures import broker_uri

__all__ = ["broker_uri"]


@pytest.fixture
def name() -> str:
    """A unique name, to begin the names of one test with."""
    return f"topology-{random.getrandbits(48):012x}"


@pytest.fixture
def connection(broker_uri: str) -> Iterator[pika.BlockingConnection]:
    """An open connection of pika."""
    connection = pika.BlockingConnection(pika.URLParameters(broker_uri))
    yield connection
    if connection.is_open:
        connection.close()
