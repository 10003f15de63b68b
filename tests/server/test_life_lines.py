"""The log of a node's life: one line when it starts, two when it stops, and stamped times."""

import re
from datetime import datetime
from pathlib import Path

from tests.support.brokers.process import BrokerProcess
from tests.support.cluster.trio import warrenctl
from warrenmq import __version__


def lines_of(broker: BrokerProcess) -> list[str]:
    """The lines of the node about itself, without time and level."""
    logged = broker.log_path.read_text().splitlines()
    return [line.partition(" warren.node: ")[2] for line in logged if " warren.node: " in line]


def test_a_node_logs_its_start_and_why_it_stops(tmp_path: Path) -> None:
    file = tmp_path / "shop.conf"
    file.write_text("heartbeat = 30\n")
    broker = BrokerProcess(tmp_path)
    broker.wrapper = ("env", f"RABBITMQ_CONFIG_FILE={file}")
    broker.start()
    assert broker.process is not None
    pid = broker.process.pid
    assert broker.stop() == 0
    start, stopping, stopped = lines_of(broker)
    assert re.fullmatch(
        rf"starting warren {re.escape(__version__)}: node \S+, pid {pid}, data directory "
        rf"{re.escape(str(tmp_path / 'data'))}, configuration files {re.escape(str(file))}, "
        rf"listeners amqp=127\.0\.0\.1:{broker.port}",
        start,
    )
    assert stopping == "stopping: SIGTERM"
    assert re.fullmatch(r"stopped after \d:\d\d:\d\d: SIGTERM", stopped)

    broker.wrapper = ()
    broker.start()
    assert warrenctl(tmp_path / "data", "stop").code == 0
    start, stopping, stopped = lines_of(broker)[3:]
    assert ", configuration files none, " in start
    assert stopping == "stopping: warrenctl stop" and stopped.endswith(": warrenctl stop")


def test_times_have_microseconds_and_the_zone(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.wrapper = ("env", "TZ=EST+5")
    broker.start()
    broker.stop()
    for line in broker.log_path.read_text().splitlines():
        stamp = line.partition(" [")[0]
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}-05:00", stamp), line
        datetime.fromisoformat(stamp)
