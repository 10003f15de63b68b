"""Fixtures of the client tests: a broker process (`tests/support/brokers/fixtures.py`), a name."""

import random

import pytest

from tests.support.brokers.fixtures import broker_uri

__all__ = ["broker_uri"]


@pytest.fixture
def name() -> str:
    """A unique name for queues and exchanges of one test."""
    return f"interop-{random.getrandbits(48):012x}"
