"""A broker for hostile clients; its memory is measured."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.watched_broker import WatchedBroker


@pytest.fixture
def node_settings() -> tuple[str, ...]:
    """Settings of the broker; a module may override this fixture."""
    return ()


@pytest.fixture
def broker(tmp_path: Path, node_settings: tuple[str, ...]) -> Iterator[WatchedBroker]:
    """A running broker, which must stop cleanly, without a traceback or internal error logged."""
    node = BrokerProcess(tmp_path, *node_settings)
    node.start()
    watched = WatchedBroker(node)
    yield watched
    watched.check_service()
    assert node.stop() == 0
    log = node.log_path.read_text()
    assert "Traceback" not in log, log[-4000:]
    assert "internal error" not in log, log[-4000:]
