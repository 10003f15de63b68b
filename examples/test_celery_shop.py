"""The tests of `celery_shop.py`: a real worker in its own process, on a broker of this module."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery_shop import FAILED, TASKS, app, charge, send

from warrenmq.testing.broker import WarrenBroker

TIMEOUT_S = 60

# The queue of failed tasks has no worker, so it is part of the broker's definitions.
pytestmark = pytest.mark.warren(
    definitions={
        "queues": [
            {"name": FAILED, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
        ]
    }
)


@pytest.fixture(scope="module", autouse=True)
def worker(
    warren_broker_module: WarrenBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """A worker of the application, as in production but for its pool of one thread."""
    app.conf.broker_url = warren_broker_module.url
    log_path = tmp_path_factory.mktemp("worker") / "log"
    with log_path.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "celery_shop", "worker", "--pool", "threads"],
            cwd=Path(__file__).parent,
            env=os.environ | {"SHOP_BROKER": warren_broker_module.url},
            stdout=log,
            stderr=log,
        )
    try:
        while not app.control.ping(timeout=1.0):
            assert process.poll() is None, log_path.read_text()
        yield
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


def test_charging_is_retried_while_the_bank_is_away() -> None:
    result = charge.delay(amount=100, failures=2)
    assert result.get(timeout=TIMEOUT_S) == {"charged": 100, "retries": 2}


def test_a_parcel_without_an_address_is_set_aside() -> None:
    good, bad = send.delay({"address": "Warren 1"}), send.delay({"for": "nobody"})
    assert good.get(timeout=TIMEOUT_S) == "sent to Warren 1"
    with app.connection_for_read() as connection:
        failed = connection.SimpleQueue(FAILED)
        letter = failed.get(timeout=TIMEOUT_S)
        letter.ack()
    assert letter.headers["id"] == bad.id
    assert letter.headers["x-death"][0]["queue"] == TASKS
    assert json.loads(letter.body)[0] == [{"for": "nobody"}]
