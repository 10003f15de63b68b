"""A broker that strangers may talk to; its memory is watched."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.watched_broker import WatchedBroker


@pytest.fixture
def node_settings() -> tuple[str, ...]:
    """What the broker is started with; a module may have its own."""
    return ()


@pytest.fixture
def broker(tmp_path: Path, node_settings: tuple[str, ...]) -> Iterator[WatchedBroker]:
    """A running broker; no bug of its own may show in its log."""
    node = BrokerProcess(tmp_path, *node_settings)
    node.start()
    watched = WatchedBroker(node)
    yield watched
    watched.check_service()
    assert node.stop() == 0
    log = node.log_path.read_text()
    assert "Traceback" not in log, log[-4000:]
    assert "internal error" not in log, log[-4000:]
