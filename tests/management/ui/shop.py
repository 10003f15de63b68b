"""A cluster with the traffic of a shop, to photograph: clients publish and consume until it ends.

Queues that begin with `order` are mirrored on all nodes. `clicks` has no consumer and pages. Each
tenth mail is rejected and becomes a dead letter. A reader group has a part of `archive`.
"""

import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pika
from pika.adapters.blocking_connection import BlockingChannel

from tests.management.clusters import Cluster, running_cluster
from tests.support.awaiting import eventually
from tests.support.etcd import running_etcd
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.control import SetMemoryLimit, SetPolicy
from warrenmq.admin.protocol.requests import GroupOpened, OpenGroup, Reserve, Reserved
from warrenmq.admin.protocol.sinks import OpenStage, StageOpened

NODES: Final = ("alpha", "beta", "gamma")
EXCHANGE: Final = "shop"
# Queue, binding, and milliseconds that its consumer takes for a message; 0: no consumer.
QUEUES: Final = (
    ("orders", "order.*", 4),
    ("orders.invoices", "order.paid", 9),
    ("mails", "order.paid", 7),
    ("stock", "order.new", 5),
    ("archive", "order.#", 0),
    ("clicks", "click", 0),
)
DEAD: Final = "mails.dead"
CLICKS: Final = 24_000
CLICK_BYTES: Final = 8_000
# Paging begins at half of it: some of the clicks stay in memory.
MEMORY_LIMIT: Final = 320 << 20
PERSISTENT: Final = pika.BasicProperties(
    delivery_mode=2, content_type="application/json", headers={"shop": "Vienna"}
)
# Orders a second at a node on average, and how long a wave of them lasts (s).
RATE: Final = 30
WAVE_S: Final = 25


class Shop:
    """The clients of a cluster: `declare` first, then `run`."""

    def __init__(self, cluster: Cluster) -> None:
        self._nodes = cluster.nodes
        self._first = cluster.apis[0]
        self._ends = threading.Event()

    @property
    def url(self) -> str:
        """The address of the pages, of the first node."""
        return self._first.url

    @property
    def uri(self) -> str:
        """Where clients of the first node connect."""
        return self._nodes[0].uri

    def declare(self) -> None:
        """Declare the queues, and fill `clicks` until it pages."""
        mirrored = json.dumps({"ha-mode": "all", "ha-sync-mode": "automatic"})
        letters = json.dumps({"dead-letter-exchange": "", "dead-letter-routing-key": DEAD})
        self._first.control(
            SetPolicy(vhost="/", name="mirrors", pattern="^order", definition=mirrored),
            SetPolicy(vhost="/", name="dead-letters", pattern="^mails$", definition=letters),
            SetMemoryLimit(absolute=MEMORY_LIMIT),
        )
        with self._channel(0) as channel:
            channel.confirm_delivery()
            channel.exchange_declare(EXCHANGE, "topic", durable=True)
            channel.queue_declare(DEAD, durable=True)
            for queue, binding, _ in QUEUES:
                channel.queue_declare(queue, durable=True)
                channel.queue_bind(queue, EXCHANGE, binding)
        with self._channel(0) as channel:
            for _ in range(CLICKS):
                channel.basic_publish(EXCHANGE, "click", bytes(CLICK_BYTES), PERSISTENT)

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        """Publish and consume, a group and a sink included, until the end."""
        work: list[Callable[[], None]] = [partial(self._sell, node) for node in range(3)]
        for number, (queue, _, pause_ms) in enumerate(QUEUES):
            if pause_ms:
                work.append(partial(self._consume, queue, number % 3, pause_ms))
        threads = [threading.Thread(target=each) for each in work]
        with AdminClient(NodeAddress(self._nodes[0].uri)) as reader:
            for thread in threads:
                thread.start()
            try:
                opened = reader.request(OpenGroup("archive-to-parquet", [b"archive"]), GroupOpened)
                reader.request(
                    Reserve(
                        "archive-to-parquet",
                        opened.epoch,
                        {},
                        max_messages=100,
                        max_bytes=1 << 20,
                        min_messages=100,
                        max_delay_ms=60_000,
                        wait_ms=60_000,
                    ),
                    Reserved,
                )
                reader.request(OpenStage("prices", 7), StageOpened)
                yield
            finally:
                self._ends.set()
                for thread in threads:
                    thread.join()

    @contextlib.contextmanager
    def _channel(self, node: int) -> Iterator[BlockingChannel]:
        parameters = pika.URLParameters(self._nodes[node].uri)
        with pika.BlockingConnection(parameters) as connection:
            yield connection.channel()

    def _sell(self, node: int) -> None:
        with self._channel(node) as channel:
            channel.confirm_delivery()
            number = 0
            while not self._ends.is_set():
                number += 1
                order = {"order": 40_000 + number, "item": f"shoe-{number % 90}", "pieces": 1}
                for key in ("order.new", "order.paid"):
                    channel.basic_publish(EXCHANGE, key, json.dumps(order).encode(), PERSISTENT)
                wave = 1 + 0.6 * math.sin(2 * math.pi * time.monotonic() / WAVE_S)
                time.sleep(1 / (RATE * wave))

    def _consume(self, queue: str, node: int, pause_ms: int) -> None:
        with self._channel(node) as channel:
            channel.basic_qos(prefetch_count=20)
            for number, (method, _, _) in enumerate(channel.consume(queue, inactivity_timeout=0.2)):
                if self._ends.is_set():
                    return
                if method is None:
                    continue
                time.sleep(pause_ms / 1000)
                if queue == "mails" and number % 10 == 0:
                    channel.basic_nack(method.delivery_tag, requeue=False)
                else:
                    channel.basic_ack(method.delivery_tag)


@contextlib.contextmanager
def running_shop(directory: Path) -> Iterator[Shop]:
    """Three nodes with their queues and traffic."""
    with (
        running_etcd(directory / "etcd") as etcd,
        running_cluster(directory, etcd.url, NODES, "shop") as cluster,
    ):
        shop = Shop(cluster)
        shop.declare()
        api = cluster.apis[0].client()
        eventually(lambda: len(api.get("warren/mirrors").json()) == 2, "orders are mirrored")
        with shop.run():
            yield shop
