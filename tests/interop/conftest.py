"""Other people's clients against a broker process; see `tests/support/brokers/fixtures.py`."""

import random

import pytest

from tests.support.brokers.fixtures import broker_uri

__all__ = ["broker_uri"]


@pytest.fixture
def name() -> str:
    """A name nobody else uses."""
    return f"interop-{random.getrandbits(48):012x}"
