"""The management process beside its node: it ends and comes back without it, and never alone."""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.http_api import HttpNode
from tests.support.brokers.process import BrokerProcess
from warrenmq.management.serving.sites import SiteServer
from warrenmq.server.config.options.http_listeners import (
    OFF,
    ManagementOptions,
    MetricsOptions,
    SiteOptions,
)
from warrenmq.server.management_process import ManagementProcess


@pytest.fixture
def node(tmp_path: Path) -> Iterator[HttpNode]:
    node = HttpNode(tmp_path)
    node.start()
    yield node
    node.stop()


def children(pid: int) -> list[int]:
    """The living child processes of a process."""
    texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for text in texts for child in text.split()]


def is_running(pid: int) -> bool:
    """Whether the process runs; one that has ended may still be listed."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_killed_process_comes_back_and_goes_with_its_node(node: HttpNode) -> None:
    (first,) = children(node.pid)
    os.kill(first, signal.SIGKILL)
    node.await_start(1)
    (second,) = children(node.pid)
    assert node.client().get("whoami").json()["name"] == "guest"
    node.node.kill()
    eventually(lambda: not is_running(second), "the process of a killed node ends")
    # The sessions of the first node are of no use to the next one.
    node.start()
    assert node.client().get("whoami").status_code == 200
    (third,) = children(node.pid)
    assert node.node.stop() == 0 and not is_running(third)


def test_a_hanging_process_is_killed_and_comes_back(
    node: HttpNode, caplog: pytest.LogCaptureFixture
) -> None:
    options = SiteOptions(ManagementOptions(listen=("127.0.0.1", 0)), MetricsOptions(listen=OFF))
    process = ManagementProcess(node.node.directory / "data", options, silence_s=3)
    before = children(os.getpid())

    def child(start: int) -> int:
        """The process, once its API has become ready for the time number `start`."""
        eventually(lambda: caplog.text.count("the HTTP API is ready") == start, "it is ready")
        return next(pid for pid in children(os.getpid()) if pid not in before)

    with caplog.at_level(logging.INFO, "warren.management"):
        process.start()
        first = child(1)
        os.kill(first, signal.SIGSTOP)
        second = child(2)
        assert not is_running(first) and caplog.text.count("does not answer") == 1
        # A node that stops ends a process that hangs as well.
        os.kill(second, signal.SIGSTOP)
        process.stop()
    assert not is_running(second)


def test_a_process_that_serves_less_than_it_should_ends() -> None:
    """Then its node starts it again."""

    def fail() -> None:
        raise RuntimeError("no beat")

    async def serve() -> None:
        await SiteServer(print, fail).serve([])

    with pytest.raises(RuntimeError, match="no beat"):
        asyncio.run(serve())


def test_a_busy_port_costs_the_node_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        node = BrokerProcess(tmp_path)
        node.management = f"127.0.0.1:{taken.getsockname()[1]}"
        node.start()
        eventually(lambda: "[WARNING]" in node.log_path.read_text(), "the warning")
        assert node.stop() == 0
    warnings = [line for line in node.log_path.read_text().splitlines() if "[WARNING]" in line]
    assert len(warnings) == 1 and node.management in warnings[0]


def test_a_node_that_does_not_answer_is_a_503(node: HttpNode) -> None:
    """A process alone serves a node elsewhere, and says so while there is none."""
    command = [sys.executable, "-m", "warrenmq", "management", "--listen", "127.0.0.1:0"]
    command += ["--uri", f"amqp://127.0.0.1:{node.node.port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as alone:
        assert alone.stdout is not None
        url = alone.stdout.readline().rpartition(" ")[2].strip()
        client = httpx.Client(base_url=url, auth=("guest", "guest"), timeout=30)
        assert client.get("vhosts").status_code == 200
        node.node.stop()
        reply = client.get("vhosts")
        assert (reply.status_code, reply.json()["error"]) == (503, "service_unavailable")
        alone.terminate()
        assert alone.wait(30) in (0, -signal.SIGTERM)
        client.close()
