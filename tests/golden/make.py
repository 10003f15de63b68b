"""Make golden data directories, which every later version must read.

`python -m tests.golden.make NAME` fills a node with messages and definitions of every kind, once
ends it with a stop and once with a kill, and writes `NAME-stopped.tar.xz` and `NAME-killed.tar.xz`
beside this file. `NAME.json` holds the content that a reader must find. The program runs once for a
format, at the commit that NAME names; the files never change.
"""

import json
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from tests.golden.reading import SETTINGS, TIMED, Known, digest, read_offline, read_online, unpack
from tests.support.brokers.amqp_frames import PERSISTENT, table
from tests.support.brokers.amqp_peer import ChannelPeer
from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.staged import staged_message
from tests.support.kills.ledger import Confirms, connect
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.requests import Ack, Acked, GroupOpened, OpenGroup, Reserve, Reserved
from warrenmq.admin.protocol.sinks import (
    BatchCommitted,
    CommitBatch,
    FinishStage,
    OpenStage,
    Staged,
    StageFinished,
    StageMessages,
    StageOpened,
)
from warrenmq.store.model.queue_index import REWRITE_MIN_BYTES
from warrenmq.wire.properties import Properties

HERE = Path(__file__).parent
# Messages of the queues `small` and `rewritten`: more than one segment of an index.
SMALL_COUNT = 17_000
# Messages of 1 KiB in each deep queue: several journal files.
DEEP_COUNT = 2500
DEEP_QUEUES = (b"deep", b"deep-lazy")
# A node deletes and rewrites files a few seconds after it may.
REWRITE_TIMEOUT_S = 60.0
FAN_QUEUES = (b"fan-a", b"fan-b")
EVERYTHING = Properties(
    content_type=b"text/plain",
    content_encoding=b"identity",
    delivery_mode=2,
    priority=3,
    correlation_id=b"correlation",
    reply_to=b"reply",
    expiration=b"4000000000",
    message_id=b"message",
    timestamp=1_700_000_000,
    type=b"type",
    user_id=b"guest",
    app_id=b"app",
).encode()


def body_of(number: int, size: int) -> bytes:
    """Return a body of `size` bytes that repeats its number."""
    return (b"%d " % number * (size // 2 + 1))[:size]


class Golden:
    """A channel to a node, and the account of the messages in its queues, in order."""

    def __init__(self, channel: ChannelPeer) -> None:
        self.channel = channel
        self.confirms = Confirms(channel)
        self.queues: dict[bytes, list[Known]] = {}
        # Id of the stage of batch 5, which the reader commits.
        self.stage = 0
        self.number = 0

    def declare(self, name: bytes, arguments: bytes = b"") -> None:
        self.channel.declare(name, durable=True, arguments=arguments)
        self.queues[name] = []

    def publish(
        self,
        key: bytes,
        size: int,
        properties: bytes = PERSISTENT,
        exchange: bytes = b"",
        queues: tuple[bytes, ...] | None = None,
    ) -> None:
        self.number += 1
        body = body_of(self.number, size)
        self.confirms.publish(key, body, properties, exchange, lambda: None)
        while len(self.confirms.waiting) > 1000:
            self.confirms.read(5)
        for queue in (key,) if queues is None else queues:
            self.queues[queue].append((exchange, key, properties, body, False))

    def sync(self) -> None:
        """Make all publishes and acks durable: wait for the confirms of later publishes."""
        for _ in range(2):
            self.publish(b"ticks", 1)
            self.confirms.drain()

    def take(self, channel: ChannelPeer, queue: bytes, count: int, acked: set[int]) -> None:
        """Deliver the `count` oldest messages, and ack those at the places `acked`.

        The others stay unacked and return as redelivered.
        """
        channel.qos(count)
        tag = channel.consume(queue)
        deliveries = [channel.message() for _ in range(count)]
        channel.cancel(tag)
        known = self.queues[queue]
        for place, delivery in enumerate(deliveries):
            assert delivery.body == known[place][3]
            if place in acked:
                channel.ack(delivery.deliver.delivery_tag)
        left = [(*known[place][:4], True) for place in range(count) if place not in acked]
        self.queues[queue] = left + known[count:]


def fill(node: BrokerProcess) -> Golden:
    """Fill vhost / of a running node; the connection stays open."""
    peer = connect(node)
    golden = Golden(peer.channel())
    _declare(golden)
    for number in range(SMALL_COUNT):
        golden.publish(b"rewritten", 30 + number % 60)
    for number in range(SMALL_COUNT):
        golden.publish(
            b"small", number % 40, Properties(delivery_mode=2, priority=number % 9).encode()
        )
    for number in range(60):
        golden.publish(b"sizes", (0, 1, 100, 4095, 4096, 4097, 9000)[number % 7])
        golden.publish(b"lazy", (10, 5000)[number % 2])
        golden.publish(b"some.key", (0, 100, 5000)[number % 3], PERSISTENT, b"fan-out", FAN_QUEUES)
        golden.publish(b"sizes", 50, Properties(delivery_mode=1).encode(), queues=())
    golden.publish(b"huge", 300_000)
    golden.publish(b"timed", 10, EVERYTHING)
    golden.publish(b"timed", 5000, EVERYTHING)
    for number in range(300):
        golden.publish(b"holes", number * 20 % 6000)
    golden.sync()
    golden.take(peer.channel(), b"holes", 200, set(range(0, 200, 3)) | set(range(50, 90)))
    golden.take(peer.channel(), b"fan-b", 30, set(range(10)))
    # Ack messages at the beginning and in the middle of a segment.
    golden.take(peer.channel(), b"small", 900, set(range(400)) | set(range(500, 600)))
    golden.sync()
    for _ in range(DEEP_COUNT):
        for name in DEEP_QUEUES:
            golden.publish(name, 1024)
    golden.sync()
    # Less than a quarter of the first segment stays, so the node rewrites it.
    golden.take(peer.channel(), b"rewritten", 16_000, set(range(15_900)) - set(range(0, 15_900, 9)))
    _wait_for_rewrite(node, golden)
    golden.take(peer.channel(), b"deep-lazy", 100, set(range(0, 100, 2)))
    golden.sync()
    _read_as_group(node, golden)
    _stage(node, golden)
    golden.sync()
    return golden


def _wait_for_rewrite(node: BrokerProcess, golden: Golden) -> None:
    """Publish now and then until the node has rewritten a segment: its file has shrunk.

    In format 3 a segment has places in the journal instead of messages, and these segments stay
    below the size from which on a node rewrites them.
    """
    segments = list(node.directory.glob("data/msg_stores/vhosts/*/queues/*/*.idx"))
    if max(path.stat().st_size for path in segments) < REWRITE_MIN_BYTES:
        return
    largest: dict[Path, int] = {}
    deadline = time.monotonic() + REWRITE_TIMEOUT_S
    while time.monotonic() < deadline:
        for path in node.directory.glob("data/msg_stores/vhosts/*/queues/*/0.idx"):
            size = path.stat().st_size
            if size < largest.setdefault(path, size) // 2:
                return
            largest[path] = max(size, largest[path])
        for name in DEEP_QUEUES:
            golden.publish(name, 1024)
        golden.sync()
        time.sleep(0.1)
    raise AssertionError("the node has rewritten no segment")


def _declare(golden: Golden) -> None:
    channel = golden.channel
    for name in (
        b"ticks",
        b"rewritten",
        b"deep",
        b"small",
        b"sizes",
        b"huge",
        b"holes",
        b"empty",
        b"read",
        b"gr\xc3\xbc\xc3\x9fe",
        *FAN_QUEUES,
    ):
        golden.declare(name)
    golden.declare(b"lazy", table(x__queue__mode="lazy"))
    golden.declare(b"deep-lazy", table(x__queue__mode="lazy"))
    golden.declare(b"timed", table(x__message__ttl=4_000_000_000, x__expires=4_000_000_000))
    channel.exchange(b"fan-out", b"fanout", durable=True)
    channel.exchange(b"topics", b"topic", durable=True, internal=True)
    channel.exchange(
        b"heads", b"headers", durable=True, arguments=table(alternate__exchange="fan-out")
    )
    for name in FAN_QUEUES:
        channel.bind(name, b"fan-out")
    channel.bind(b"small", b"heads", arguments=table(x__match="any", colour="red"))
    channel.bind_exchange(b"topics", b"heads", b"a.*.#", table(x__match="any", size=3))
    channel.bind(b"huge", b"topics", b"#.large")


def _read_as_group(node: BrokerProcess, golden: Golden) -> None:
    """Let a group reserve 60 of 100 messages and ack 25 of them."""
    for number in range(100):
        golden.publish(b"read", number * 60)
    golden.sync()
    with AdminClient(NodeAddress(node.uri)) as client:
        opened = client.request(OpenGroup("readers", [b"read"]), GroupOpened)
        (member,) = opened.members
        start = {member.incarnation: member.acked}
        first = member.tail - 100
        end = {member.incarnation: first + 60}
        client.request(Reserve("readers", opened.epoch, start, 1000, 1 << 40, until=end), Reserved)
        client.request(Ack("readers", opened.epoch, {member.incarnation: first + 25}), Acked)
    # Consumers cannot get the reserved messages.
    golden.queues[b"read"] = golden.queues[b"read"][60:]


def _stage(node: BrokerProcess, golden: Golden) -> None:
    """Publish batch 4 of a sink, and stage batch 5, which the reader commits."""
    with AdminClient(NodeAddress(node.uri)) as client:
        for batch, sizes in ((4, (7, 6000)), (5, (8, 7000))):
            messages = []
            for size in sizes:
                golden.number += 1
                body = body_of(golden.number, size)
                messages.append(staged_message(body, b"empty"))
                golden.queues[b"empty"].append((b"", b"empty", PERSISTENT, body, False))
            opened = client.request(OpenStage("pipe", batch, b""), StageOpened)
            client.request(StageMessages(opened.stage, memoryview(b"".join(messages))), Staged)
            client.request(FinishStage(opened.stage, len(messages)), StageFinished)
            if batch == 4:
                reply = client.request(
                    CommitBatch("pipe", 4, [opened.stage], True, 30_000, None), BatchCommitted
                )
                assert reply.is_moved
            golden.stage = opened.stage


def pack(data: Path, target: Path) -> None:
    """Pack a data directory without the file `reserve`, which is large."""
    with tarfile.open(target, "w:xz", preset=9) as archive:
        for path in sorted(data.rglob("*")):
            if path.name != "reserve":
                archive.add(path, path.relative_to(data).as_posix(), recursive=False)


def main(name: str) -> None:
    expected = {}
    with tempfile.TemporaryDirectory() as directory:
        for how in ("stopped", "killed"):
            node = BrokerProcess(Path(directory, how), *SETTINGS)
            node.start()
            try:
                golden = fill(node)
            finally:
                if how == "killed":
                    node.kill()
                else:
                    node.stop()
            archive = HERE / f"{name}-{how}.tar.xz"
            pack(node.directory / "data", archive)
            copy = Path(directory, f"{how} copy")
            offline = read_offline(unpack(archive, copy))
            online = read_online(
                copy, golden.stage, sorted(queue.decode() for queue in golden.queues)
            )
            for queue, messages in golden.queues.items():
                # After a kill every message counts as redelivered.
                known = (
                    [(*message[:4], True) for message in messages] if how == "killed" else messages
                )
                if queue != TIMED:
                    assert online["queues"][queue.decode()]["sha256"] == digest(known), queue
            expected[how] = {"stage": golden.stage, "offline": offline, "online": online}
    (HERE / f"{name}.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
