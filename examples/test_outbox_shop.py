"""The tests of `outbox_shop.py`: every process is killed in the middle, and the broker, too."""

import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import outbox_shop
import pytest

from warrenmq.testing.broker import WarrenBroker
from warrenmq.testing.vhost import WarrenVhost

ORDERS = 600
TIMEOUT_S = 120


class Role:
    """One of the example's processes, which can be killed and started again."""

    def __init__(self, *arguments: object) -> None:
        self._command = [sys.executable, outbox_shop.__file__, *map(str, arguments)]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def eventually(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_each_order_arrives_once_whatever_is_killed(
    warren_broker: WarrenBroker, tmp_path: Path
) -> None:
    shop_path, stock_path = str(tmp_path / "shop.sqlite"), str(tmp_path / "stock.sqlite")
    with (
        closing(outbox_shop.database(shop_path, outbox_shop.SHOP)) as shop,
        closing(outbox_shop.database(stock_path, outbox_shop.STORE_HOUSE)) as stock,
    ):

        def count(database: sqlite3.Connection, table: str) -> int:
            (found,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()
            return int(found)

        def await_parcels(share: float) -> None:
            eventually(lambda: count(stock, "parcels") >= share * ORDERS)

        placing = Role("shop", shop_path, ORDERS)
        relay = Role("relay", shop_path, warren_broker.url)
        work = Role("work", stock_path, warren_broker.url)
        roles = [placing, relay, work]
        try:
            for share, role in ((0.1, placing), (0.2, relay), (0.4, work), (0.6, relay)):
                await_parcels(share)
                role.kill()
                role.start()
            await_parcels(0.8)
            warren_broker.kill()
            warren_broker.start()
            eventually(lambda: count(shop, "orders") == ORDERS and count(shop, "outbox") == 0)
            await_parcels(1)
        finally:
            for role in roles:
                role.kill()
        placed = shop.execute("SELECT number, article FROM orders ORDER BY number").fetchall()
        stored = stock.execute("SELECT number, article FROM parcels ORDER BY number").fetchall()
    assert len(placed) == ORDERS
    assert stored == placed


def test_a_batch_that_is_published_twice_is_stored_once(
    warren_vhost: WarrenVhost, tmp_path: Path
) -> None:
    """The relay dies between the confirm and its own commit."""
    with (
        closing(outbox_shop.database(str(tmp_path / "a"), outbox_shop.SHOP)) as shop,
        closing(outbox_shop.database(str(tmp_path / "b"), outbox_shop.STORE_HOUSE)) as stock,
    ):
        for number in range(3):
            outbox_shop.order(shop, number, "saw")
        channel = outbox_shop.declare(warren_vhost.url)
        # What a crash takes: the statement that deletes the messages.
        shop.execute("BEGIN")
        assert outbox_shop.relay_batch(shop, channel) == 3
        shop.execute("ROLLBACK")
        assert outbox_shop.relay_batch(shop, channel) == 3
        assert outbox_shop.relay_batch(shop, channel) == 0
        were_first = []
        for _ in range(6):
            _, properties, body = channel.basic_get(outbox_shop.QUEUE, auto_ack=True)
            were_first.append(outbox_shop.store(stock, properties.message_id, body))
        assert were_first == [True] * 3 + [False] * 3
        assert stock.execute("SELECT count(*) FROM parcels").fetchone() == (3,)


def test_an_order_that_fails_leaves_no_message(tmp_path: Path) -> None:
    with closing(outbox_shop.database(str(tmp_path / "a"), outbox_shop.SHOP)) as shop:
        outbox_shop.order(shop, 1, "saw")
        with pytest.raises(sqlite3.IntegrityError):
            outbox_shop.order(shop, 1, "saw")
        assert shop.execute("SELECT count(*) FROM outbox").fetchone() == (1,)
