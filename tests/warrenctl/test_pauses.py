"""`pause_queue` and `resume_queue`: a pause outlives a crash."""

from pathlib import Path

import pika
import pytest

from tests.support.brokers.process import BrokerProcess
from warrenmq.cli.control import main


def test_a_pause_outlives_a_crash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = BrokerProcess(tmp_path)
    node.start()
    data = ("--data-dir", str(node.directory / "data"))
    with pika.BlockingConnection(pika.URLParameters(node.uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"m", pika.BasicProperties(delivery_mode=2))
    assert main([*data, "-q", "pause_queue", "q"]) == 0
    assert main([*data, "pause_queue", "none"]) != 0
    assert capsys.readouterr().err.endswith("Error:\nnot_found\n")
    node.kill()
    node.start()
    assert main([*data, "-s", "list_queues", "name", "state", "messages"]) == 0
    assert capsys.readouterr().out.split() == ["q", "paused", "1"]
    assert main([*data, "-s", "list_parameters"]) == 0
    assert main([*data, "export_definitions", "-"]) == 0
    assert "queue-pause" not in capsys.readouterr().out
    with pika.BlockingConnection(pika.URLParameters(node.uri)) as connection:
        channel = connection.channel()
        assert channel.basic_get("q", auto_ack=True)[0] is None
        assert main([*data, "-q", "resume_queue", "q"]) == 0
        assert channel.basic_get("q", auto_ack=True)[2] == b"m"
    node.stop()
