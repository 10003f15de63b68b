"""The states that a node tells to systemd."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.process import BrokerProcess
from warrenmq.server.service_manager import ServiceManager

PATIENCE_S = 60


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket that systemd listens on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(PATIENCE_S)
        yield listener


def heard(listener: socket.socket) -> dict[str, str]:
    """The next state, as variables and values."""
    return dict(line.split("=", 1) for line in listener.recv(4096).decode().split("\n"))


def test_a_node_tells_when_it_is_ready_reloads_and_stops(
    listener: socket.socket, tmp_path: Path
) -> None:
    broker = BrokerProcess(tmp_path)
    broker.wrapper = ("env", f"NOTIFY_SOCKET={listener.getsockname()}")
    broker.start()
    try:
        ready = {"READY": "1", "STATUS": "accepting clients"}
        assert heard(listener) == ready
        assert broker.process is not None
        broker.process.send_signal(signal.SIGHUP)
        reloading = heard(listener)
        assert reloading.pop("MONOTONIC_USEC").isdigit() and reloading == {"RELOADING": "1"}
        assert heard(listener) == ready
        assert broker.stop() == 0
        assert heard(listener) == {"STOPPING": "1", "STATUS": "stopping: SIGTERM"}
    finally:
        broker.kill()


def test_an_abstract_socket_is_told_and_processes_of_the_node_are_not_asked() -> None:
    name = f"warren-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}")
        environment = {"NOTIFY_SOCKET": f"@{name}", "HOME": "/"}
        ServiceManager(environment).stopping("Ctrl-C")
        listener.settimeout(PATIENCE_S)
        assert heard(listener)["STOPPING"] == "1"
    assert environment == {"HOME": "/"}


def test_a_manager_that_is_gone_costs_one_line(caplog: pytest.LogCaptureFixture) -> None:
    ServiceManager({"NOTIFY_SOCKET": "/nowhere/notify"}).ready()
    assert caplog.messages == ["systemd is not told READY=1: No such file or directory"]
    ServiceManager({}).ready()
    assert len(caplog.messages) == 1
