"""Imports large queues of the real RabbitMQ, and compares them byte for byte.

`python -m tests.tables.rabbitmq.million` fills two queues of a node, with messages that are
embedded in its index and messages in its store. It stops or kills the node, imports the directory
with Spark, and reads the result: every message must be there, in order, with its properties. It
prints how long it took.
"""

import argparse
import hashlib
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from bench.brokers import RabbitmqBroker, rabbitmq_server
from tests.support.brokers.amqp_frames import SocketLink
from tests.support.brokers.amqp_peer import Peer
from tests.support.kills.ledger import Confirms
from warrenmq.offline.check import check_directory
from warrenmq.pipeline.rabbitmq.import_job import import_rabbitmq
from warrenmq.tables.parts import ReadOptions
from warrenmq.tables.planning import plan
from warrenmq.tables.reading import read
from warrenmq.wire.properties import Properties

QUEUES = (b"first", b"second")
WINDOW = 5000
# One in this many messages is in the message store; the others are embedded in the index.
STORED_EVERY = 50
SEED = 11
NOISE_BYTES = 1 << 20

Digest = tuple[int, str]


def messages(count: int) -> Iterator[tuple[bytes, bytes, bytes]]:
    """The (queue, properties, body) of `count` messages, the same in every call."""
    chance = random.Random(SEED)
    noise = chance.randbytes(NOISE_BYTES)
    for number in range(count):
        size = 6000 if number % STORED_EVERY == 0 else chance.randrange(20, 400)
        start = chance.randrange(NOISE_BYTES - size)
        properties = Properties(delivery_mode=2, message_id=b"%d" % number).encode()
        yield QUEUES[number % 2], properties, b"%d " % number + noise[start : start + size]


def fill(broker: RabbitmqBroker, count: int) -> None:
    """Publish all messages with confirms."""
    peer = Peer(SocketLink("127.0.0.1", broker.port), is_foreign=True)
    peer.open()
    channel = peer.channel()
    for queue in QUEUES:
        channel.declare(queue, durable=True)
    confirms = Confirms(channel)
    for queue, properties, body in messages(count):
        confirms.publish(queue, body, properties, b"", lambda: None)
        if len(confirms.waiting) >= WINDOW:
            while len(confirms.waiting) > WINDOW // 2:
                confirms.read(60)
    confirms.drain()
    peer.drop()


def expected(count: int) -> dict[str, Digest]:
    """The number of messages of each queue that were published, and a hash over them in order."""
    counts = dict.fromkeys(QUEUES, 0)
    hashes = {queue: hashlib.sha256() for queue in QUEUES}
    for queue, properties, body in messages(count):
        counts[queue] += 1
        hashes[queue].update(_line(b"", queue, properties, body))
    return {queue.decode(): (counts[queue], hashes[queue].hexdigest()) for queue in QUEUES}


def found(directory: Path) -> dict[str, Digest]:
    """The number of messages of each queue in a data directory, and a hash over them in order."""
    schema = pa.schema(
        [
            ("exchange", pa.string()),
            ("routing_key", pa.string()),
            ("seq", pa.int64()),
            ("properties_raw", pa.binary()),
            ("body", pa.binary()),
        ]
    )
    digests: dict[str, Digest] = {}
    for queue in QUEUES:
        count, before = 0, 0
        digest = hashlib.sha256()
        for partition in plan(directory, "messages", ReadOptions(queues=(queue.decode(),))):
            for batch in read(partition, schema):
                columns = [column.to_pylist() for column in batch.columns]
                for exchange, key, seq, properties, body in zip(*columns, strict=True):
                    assert seq > before
                    before = seq
                    count += 1
                    digest.update(_line(exchange.encode(), key.encode(), properties, body))
        digests[queue.decode()] = (count, digest.hexdigest())
    return digests


def _line(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.tables.rabbitmq.million", description=__doc__
    )
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--kill", action="store_true", help="kill the node, do not stop it")
    options = parser.parse_args(arguments)
    if rabbitmq_server() is None:
        print("rabbitmq-server is not installed", file=sys.stderr)
        return 1
    directory = Path(tempfile.mkdtemp(prefix="warren-million-"))
    try:
        broker = RabbitmqBroker(directory, set())
        try:
            broker.start()
            started = time.monotonic()
            fill(broker, options.messages)
            print(
                f"published {options.messages:,} in {time.monotonic() - started:.0f} s", flush=True
            )
            broker.kill() if options.kill else broker.stop()
            return compare(broker.node_directory(), directory / "data", options.messages)
        finally:
            broker.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def compare(source: Path, target: Path, count: int) -> int:
    """Import the directory `source` and compare the result."""
    started = time.monotonic()
    result = import_rabbitmq(source, target)
    took = time.monotonic() - started
    print(
        f"imported {result.messages:,} in {took:.0f} s, {result.messages / took:,.0f} a second",
        flush=True,
    )
    problems = check_directory(target).problems
    right = found(target) == expected(count) and not problems and not result.damage
    print(
        "every message is there, in order, byte for byte"
        if right
        else f"not the same: {problems} {result}"
    )
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
