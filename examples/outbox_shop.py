"""A shop and its store house: each order reaches the store house once, whatever is killed.

The shop writes an order and the message about it in one transaction of its database: the message
waits in the table `outbox`. The relay publishes what waits there, and deletes it when the broker
has confirmed it. The store house notes the id of each message in the transaction that does its
work, so it does nothing when a message comes twice.

    python outbox_shop.py shop shop.sqlite 1000
    python outbox_shop.py relay shop.sqlite amqp://guest:guest@localhost
    python outbox_shop.py work stock.sqlite amqp://guest:guest@localhost
"""

import json
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pika
from pika.adapters.blocking_connection import BlockingChannel

QUEUE = "orders"
# Messages that the relay publishes before it deletes them from the outbox.
BATCH = 50
# How long the relay waits when the outbox is empty, and both wait for a broker that is away (s).
PAUSE_S = 0.05

SHOP = """
CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, article TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS outbox (
    message_id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL
);
"""
STORE_HOUSE = """
CREATE TABLE IF NOT EXISTS inbox (message_id TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS parcels (number INTEGER NOT NULL, article TEXT NOT NULL);
"""


def database(path: str, schema: str) -> sqlite3.Connection:
    """A database whose transactions begin with BEGIN and survive a loss of power."""
    connection = sqlite3.connect(path, timeout=60, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.executescript(schema)
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All statements of the block together, or none of them."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def declare(url: str) -> BlockingChannel:
    """A channel in confirm mode, on a connection of its own, with the queue declared."""
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.queue_declare(QUEUE, durable=True)
    channel.confirm_delivery()
    return channel


def order(shop: sqlite3.Connection, number: int, article: str) -> None:
    """Place an order; the order and its message are there together, or neither is."""
    body = json.dumps({"number": number, "article": article}).encode()
    with transaction(shop):
        shop.execute("INSERT INTO orders VALUES (?, ?)", (number, article))
        shop.execute("INSERT INTO outbox (body) VALUES (?)", (body,))


def relay_batch(shop: sqlite3.Connection, channel: BlockingChannel) -> int:
    """Publish the oldest messages of the outbox, then delete them; returns how many there were.

    A relay that dies in between publishes them again, with the same ids.
    """
    waiting = shop.execute(
        "SELECT message_id, body FROM outbox ORDER BY message_id LIMIT ?", (BATCH,)
    ).fetchall()
    for message_id, body in waiting:
        properties = pika.BasicProperties(delivery_mode=2, message_id=str(message_id))
        # Returns when the broker has the message on disk.
        channel.basic_publish("", QUEUE, body, properties, mandatory=True)
    if waiting:
        # One statement is a transaction of its own.
        marks = ", ".join("?" * len(waiting))
        shop.execute(
            f"DELETE FROM outbox WHERE message_id IN ({marks})", [row[0] for row in waiting]
        )
    return len(waiting)


def store(store_house: sqlite3.Connection, message_id: str, body: bytes) -> bool:
    """Do the work of a message, once; returns whether it was the first with its id."""
    with transaction(store_house):
        noted = store_house.execute("INSERT OR IGNORE INTO inbox VALUES (?)", (message_id,))
        if noted.rowcount == 0:
            return False
        placed = json.loads(body)
        store_house.execute(
            "INSERT INTO parcels VALUES (?, ?)", (placed["number"], placed["article"])
        )
    return True


def run_shop(path: str, count: int) -> None:
    """Place orders until there are `count` of them."""
    shop = database(path, SHOP)
    (last,) = shop.execute("SELECT coalesce(max(number), 0) FROM orders").fetchone()
    for number in range(last + 1, count + 1):
        order(shop, number, "hammer")


def run_relay(path: str, url: str) -> None:
    """Relay for ever, also over restarts of the broker."""
    shop = database(path, SHOP)
    while True:
        try:
            channel = declare(url)
            while True:
                if relay_batch(shop, channel) == 0:
                    # Also sends the connection's heartbeats.
                    channel.connection.sleep(PAUSE_S)
        except pika.exceptions.AMQPError:
            time.sleep(PAUSE_S)


def run_store_house(path: str, url: str) -> None:
    """Work for ever, also over restarts of the broker."""
    store_house = database(path, STORE_HOUSE)
    while True:
        try:
            channel = declare(url)
            channel.basic_qos(prefetch_count=100)
            for method, properties, body in channel.consume(QUEUE):
                store(store_house, properties.message_id, body)
                # After the commit: a message whose ack is lost comes again, and is known then.
                channel.basic_ack(method.delivery_tag)
        except pika.exceptions.AMQPError:
            time.sleep(PAUSE_S)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["shop", path, count]:
            run_shop(path, int(count))
        case ["relay", path, url]:
            run_relay(path, url)
        case ["work", path, url]:
            run_store_house(path, url)
        case _:
            sys.exit(__doc__)
