"""Definitions go to RabbitMQ and come back: both brokers have the same afterwards."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.brokers import RabbitmqBroker, rabbitmq_server
from tests.support.brokers.administered_broker import AdministeredBroker

GOLDEN = Path(__file__).parent.parent / "admin/definitions/golden/management.json"


def what_rabbitmq_keeps(exported: bytes) -> dict[str, Any]:
    """An export without what RabbitMQ's import and `rabbitmqctl export_definitions` forget."""
    found: dict[str, Any] = json.loads(exported)
    gone = {row["name"] for row in found["exchanges"] if row["internal"]}
    found["exchanges"] = [row for row in found["exchanges"] if row["name"] not in gone]
    found["bindings"] = [row for row in found["bindings"] if row["destination"] not in gone]
    # Its import skips queues with names that only a broker gives.
    found["queues"] = [row for row in found["queues"] if not row["name"].startswith("amq.")]
    # It writes objects in global parameters as lists of pairs, and not all of the parameters.
    del found["global_parameters"]
    return found


@pytest.mark.skipif(rabbitmq_server() is None, reason="rabbitmq-server is not installed")
def test_an_export_goes_through_rabbitmq_unchanged(tmp_path: Path) -> None:
    """RabbitMQ starts with warren's export; warren imports what RabbitMQ exports of it."""
    ours = AdministeredBroker()
    ours.imported(GOLDEN.read_bytes())
    path = tmp_path / "ours.json"
    path.write_bytes(ours.exported())
    rabbitmq = RabbitmqBroker(tmp_path, set(), (f"load_definitions = {path}",))
    rabbitmq.start()
    try:
        rabbitmq.control("export_definitions", str(tmp_path / "theirs.json"))
    finally:
        rabbitmq.stop()
    again = AdministeredBroker()
    again.imported((tmp_path / "theirs.json").read_bytes())
    found, expected = (what_rabbitmq_keeps(each.exported()) for each in (again, ours))
    for section in expected:
        assert found[section] == expected[section], section
