"""kombu's manager of a broker, and Celery Flower with the queues of an application."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pyrabbit2
import pytest
from kombu.connection import Connection
from kombu.entity import Exchange, Queue

from bench.ports import held_port
from tests.support.awaiting import eventually
from tests.support.brokers.http_api import HttpNode

pytestmark = pytest.mark.interop

QUEUE = "flower"


@pytest.fixture
def bound(http_node: HttpNode) -> Iterator[tuple[Connection, Queue]]:
    """A connection that knows where the API is, with a bound queue of one message."""
    port = urlsplit(http_node.url).port
    with Connection(http_node.node.uri, transport_options={"manager_port": port}) as connection:
        queue = Queue("tasks", Exchange("tasks", "topic"), routing_key="tasks.#")
        connection.Producer().publish(
            "one", exchange=queue.exchange, routing_key="tasks.a", declare=[queue]
        )
        yield connection, queue
        queue(connection.default_channel).delete()


def test_the_manager_of_a_connection(
    bound: tuple[Connection, Queue], monkeypatch: pytest.MonkeyPatch
) -> None:
    # kombu imports the manager under the name of the package that pyrabbit2 continues.
    monkeypatch.setitem(sys.modules, "pyrabbit", pyrabbit2)
    connection, queue = bound
    manager: Any = connection.get_manager()
    assert manager.is_alive() is True
    assert manager.get_overview()["node"]
    eventually(lambda: len(manager.get_channels()) == 1, "the channel is listed")
    eventually(lambda: len(manager.get_connections()) == 1, "its connection alone is listed")
    (row,) = manager.get_connections()
    assert row["client_properties"]["product"] == "py-amqp"
    (binding,) = [each for each in manager.get_bindings() if each["source"] == "tasks"]
    assert (binding["destination"], binding["routing_key"]) == ("tasks", "tasks.#")
    eventually(lambda: manager.get_queue("/", "tasks").get("messages") == 1, "one message")
    assert [each["payload"] for each in manager.get_messages("/", queue.name)] == ["one"]


class Flower:
    """A process `celery flower` of an application with one queue; `port` is its page's."""

    def __init__(self, http_node: HttpNode, directory: Path) -> None:
        self.port = held_port(self)
        (directory / "shop.py").write_text(
            "from celery import Celery\n"
            f"app = Celery('shop', broker={http_node.node.uri!r})\n"
            f"app.conf.task_default_queue = {QUEUE!r}\n"
        )
        self.log_path = directory / "flower.log"
        with self.log_path.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "shop", "flower",
                 "--address=127.0.0.1", f"--port={self.port}",
                 f"--broker-api={http_node.url.replace('//', '//guest:guest@')}api/"],
                cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=os.environ
                | {"PYTHONPATH": str(directory), "FLOWER_UNAUTHENTICATED_API": "true"},
            )  # fmt: skip

    def get(self, path: str) -> str:
        """A page, empty while the process does not answer."""
        assert self.process.poll() is None, self.log_path.read_text()
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/{path}", timeout=30).text
        except httpx.TransportError:
            return ""

    def rows(self) -> dict[str, list[str]]:
        """The texts in Flower's table of queues, by the name of the queue."""
        found = re.findall(r"<tr id=.*?</tr>", self.get("broker"), re.DOTALL)
        cells = [re.findall(r"<td[^>]*>\s*(.*?)\s*</td>", row, re.DOTALL) for row in found]
        return {name: rest for name, *rest in cells}

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def flower(http_node: HttpNode, tmp_path: Path) -> Iterator[Flower]:
    flower = Flower(http_node, tmp_path)
    yield flower
    flower.stop()


def test_flower_shows_the_messages_of_a_queue(http_node: HttpNode, flower: Flower) -> None:
    with Connection(http_node.node.uri) as connection:
        queue = Queue(QUEUE, durable=True)
        producer = connection.Producer()
        for number in range(3):
            producer.publish(number, routing_key=QUEUE, declare=[queue])
        # Messages, unacked, ready, consumers.
        counts = ["3", "0", "3", "0"]
        eventually(lambda: flower.rows().get(QUEUE, [])[:4] == counts, "Flower shows the messages")
        (row,) = json.loads(flower.get("api/queues/length"))["active_queues"]
        assert (row["name"], row["messages"]) == (QUEUE, 3)
        queue(connection.default_channel).delete()
