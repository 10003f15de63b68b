"""A disk alarm ends when consumers have emptied the queues, without a restart (W10)."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.awaiting import PAUSE_S, eventually
from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.amqp_peer import ChannelPeer
from tests.support.brokers.process import BrokerProcess
from tests.support.kills.killed_node import MIB, disk_bytes
from tests.support.kills.ledger import Confirms, connect
from tests.support.stores.small_disk import mounted_disk
from warrenmq.wire.methods import BasicAck

pytestmark = pytest.mark.kill

BODY = bytes(64 * 1024)
# Messages published at a time.
BURST = 50
# So many messages take the disk below the limit without filling it. A publisher that is faster than
# the measurements would fill the disk, and the node would nack what no longer fits.
ENOUGH = 1600


@pytest.fixture
def node(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A node on a small disk, whose messages stay in the journal."""
    with mounted_disk(tmp_path / "data"):
        process = BrokerProcess(
            tmp_path, "disk_free_limit.absolute=60MB", "queue_index_embed_msgs_below=100000"
        )
        yield process
        process.kill()


def fill(confirms: Confirms, log: Path) -> None:
    """Publish to the queue q until the disk alarm is on, then once more."""
    while "disk alarm: " not in log.read_text():
        if len(confirms.waiting) <= BURST and confirms.next_tag <= ENOUGH:
            for _ in range(BURST):
                confirms.publish(b"q", BODY, PERSISTENT, b"", lambda: None)
        confirms.read(0.1)
    confirms.publish(b"q", BODY, PERSISTENT, b"", lambda: None)


def ack_others(consumer: ChannelPeer) -> None:
    """Ack what the node had read before its alarm, and confirms only now.

    As long as 50 such messages are unacked, they keep the file of 26 MiB that they are in.
    """
    last = 0
    with suppress(TimeoutError):
        while True:
            last = consumer.message(PAUSE_S).deliver.delivery_tag
    if last:
        consumer.send(BasicAck(last, True))


def test_it_ends_when_the_queues_are_empty(node: BrokerProcess) -> None:
    store = node.directory / "data" / "msg_stores" / "vhosts"
    node.start()
    channel = connect(node).channel()
    channel.declare(b"q", durable=True)
    confirms = Confirms(channel)
    fill(confirms, node.log_path)
    confirmed = confirms.next_tag - 1 - len(confirms.waiting)
    assert disk_bytes(store) > 64 * MIB
    assert confirms.waiting

    consumer = connect(node).channel()
    consumer.consume(b"q")
    for _ in range(confirmed):
        last = consumer.message().deliver.delivery_tag
    consumer.send(BasicAck(last, True))

    def is_small() -> bool:
        ack_others(consumer)
        # About as little as a restart leaves.
        return disk_bytes(store) < 32 * MIB

    eventually(is_small, "the journal has shrunk")
    eventually(lambda: "disk alarm cleared" in node.log_path.read_text(), "the alarm ends")
    # What has waited is taken.
    confirms.drain()
