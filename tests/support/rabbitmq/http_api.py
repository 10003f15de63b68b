"""A private RabbitMQ node with the HTTP API of its management plug-in."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from bench.brokers import RabbitmqBroker, rabbitmq_server
from bench.ports import held_port
from tests.support.awaiting import eventually

# Plug-ins whose parameters and routes tests compare, and how often (ms) connections are listed.
PLUGINS = (
    "rabbitmq_federation", "rabbitmq_federation_management",
    "rabbitmq_shovel", "rabbitmq_shovel_management",
)  # fmt: skip
SETTINGS = ("collect_statistics_interval = 1000",)
ADMINISTRATOR = ("guest", "guest")


@dataclass(frozen=True)
class RabbitmqApi:
    """A running node; `address` is that of its API, with `/api/` at the end."""

    broker: RabbitmqBroker
    address: str

    @property
    def amqp_port(self) -> int:
        """The port of its listener for AMQP."""
        return self.broker.port


@contextlib.contextmanager
def rabbitmq_api(
    directory: Path, plugins: tuple[str, ...] = (), settings: tuple[str, ...] = ()
) -> Iterator[RabbitmqApi]:
    """Run a node with more `plugins` and lines of rabbitmq.conf; skips if none is installed."""
    if rabbitmq_server() is None:
        pytest.skip("rabbitmq-server is not installed")
    broker = RabbitmqBroker(directory, set(), settings)
    port = held_port(broker)
    with (directory / "rabbitmq.conf").open("a") as lines:
        lines.write(f"management.tcp.port = {port}\nmanagement.tcp.ip = 127.0.0.1\n")
    enabled = ",".join(["rabbitmq_management", *plugins])
    (directory / "enabled_plugins").write_text(f"[{enabled}].\n")
    broker.start()
    address = f"http://127.0.0.1:{port}/api/"
    eventually(lambda: _answers(address), "RabbitMQ's API answers")
    yield RabbitmqApi(broker, address)
    broker.kill()
    # End its epmd, which runs beside the node.
    broker.stop()


def _answers(address: str) -> bool:
    try:
        return httpx.get(address + "whoami", auth=ADMINISTRATOR).status_code == 200
    except httpx.TransportError:
        return False
