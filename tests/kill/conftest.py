"""Each test has a broker process, which it may kill."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.process import BrokerProcess


@pytest.fixture
def node(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker process that has not been started yet."""
    process = BrokerProcess(tmp_path)
    yield process
    process.kill()
    log = process.log_path.read_text() if process.log_path.exists() else ""
    assert "Traceback" not in log, log[-4000:]
    assert "internal error" not in log, log[-4000:]
