"""A small data directory with everything that a node can store, as a kill leaves it."""

import json
import shutil
from pathlib import Path

from tests.support.awaiting import eventually
from tests.support.brokers.amqp_frames import table
from tests.support.brokers.amqp_peer import ChannelPeer
from tests.support.brokers.node_thread import NodeThread
from tests.support.brokers.staged import staged_message
from tests.support.cluster.trio import warrenctl
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
from warrenmq.wire.methods import BasicReject, ConfirmSelect
from warrenmq.wire.properties import Properties

SETTINGS = ("journal_file_size_limit=1048576", "msg_store_file_size_limit=64KiB")
# Messages that each queue gets, twice; the size (bytes) of each third one.
COUNT = 30
LARGE_BYTES = 5000
# Durable queues of the vhost "/", with their arguments. One node's delayed exchange and its sink
# have parts of their own.
QUEUES: dict[bytes, bytes] = {
    b"plain": b"",
    b"empty": b"",
    b"acked": b"",
    b"read": b"",
    b"lazy": table(x__queue__mode="lazy"),
    b"ranked": table(x__max__priority=4),
    b"quorum": table(x__queue__type="quorum"),
    b"timed": table(x__message__ttl=4_000_000_000, x__expires=4_000_000_000),
    b"short": table(
        x__max__length=10, x__dead__letter__exchange="", x__dead__letter__routing__key="dead"
    ),
    b"dead": b"",
    b"single": table(x__single__active__consumer=True),
}
FILLED = tuple(name for name in QUEUES if name not in (b"empty", b"dead"))
_COMMANDS = (
    ("add_vhost", "other"),
    ("add_user", "alice", "secret"),
    ("set_user_tags", "alice", "monitoring"),
    ("set_permissions", "-p", "other", "alice", "^a", ".*", ".*"),
    ("set_topic_permissions", "-p", "/", "guest", "amq.topic", "^t", ".*"),
    ("set_policy", "limit", "^plain$", json.dumps({"max-length": 100_000})),
    ("set_operator_policy", "bound", "^read$", json.dumps({"max-length": 100_000})),
    ("set_vhost_limits", "-p", "/", json.dumps({"max-queues": 1000})),
    ("set_global_parameter", "purpose", json.dumps("test")),
)


def make_full_directory(directory: Path) -> Path:
    """Run a node, fill it, and copy its data directory while it runs; returns the copy."""
    node = NodeThread(directory / "node", *SETTINGS)
    data, copy = directory / "node/data", directory / "data"
    try:
        for command in _COMMANDS:
            printed = warrenctl(data, *command)
            assert printed.code == 0, printed
        peer = node.peer().open()
        _declare(peer.channel())
        _publish(peer.channel())
        _checkpoint(node)
        with AdminClient(NodeAddress(node.uri)) as client:
            _reserve(client)
            _stage(client)
        _settle(peer.channel())
        _publish(peer.channel())
        # All is on disk: every publish is confirmed.
        shutil.copytree(data, copy, ignore=shutil.ignore_patterns("reserve", "lock", "control*"))
        peer.drop()
    finally:
        node.stop()
    return copy


def _declare(channel: ChannelPeer) -> None:
    for name, arguments in QUEUES.items():
        channel.declare(name, durable=True, arguments=arguments)
    channel.exchange(b"fan", b"fanout", durable=True)
    channel.exchange(b"heads", b"headers", durable=True, arguments=table(alternate__exchange="fan"))
    channel.exchange(b"hash", b"x-consistent-hash", durable=True)
    delay = table(x__delayed__type="direct")
    channel.exchange(b"later", b"x-delayed-message", durable=True, arguments=delay)
    channel.bind(b"plain", b"heads", arguments=table(x__match="any", colour="red"))
    channel.bind(b"plain", b"hash", b"3")
    channel.bind(b"plain", b"later", b"plain")
    channel.bind(b"plain", b"amq.topic", b"t.#")
    channel.bind_exchange(b"heads", b"fan", b"a.*")
    for name in FILLED:
        channel.bind(name, b"fan")


def _publish(channel: ChannelPeer) -> None:
    channel.call(ConfirmSelect())
    for number in range(COUNT):
        size = LARGE_BYTES if number % 3 == 0 else 20
        properties = Properties(delivery_mode=2, priority=number % 5).encode()
        channel.publish(b"", b"%d" % number * size, properties, b"fan")
        headers = table(x__delay=4_000_000 + number)
        late = Properties(delivery_mode=2, headers=headers).encode()
        channel.publish(b"plain", b"%d" % number, late, b"later")
    channel.confirms(2 * COUNT)


def _checkpoint(node: NodeThread) -> None:
    """Let the node move what it has to the indexes."""
    vhost = node.call(lambda: node.node.broker.vhosts[b"/"])
    store = vhost.store
    count = store.checkpoints.count

    def page_out() -> None:
        for queue in vhost.queues_by_id.values():
            for backing in queue.backings():
                backing.memory.set_mode(True)
        store.checkpoints.want()
        node.node.schedule_turn()

    node.call(page_out)
    eventually(lambda: store.checkpoints.count > count, "there is another checkpoint")


def _reserve(client: AdminClient) -> None:
    """Let a group reserve messages of `read` and ack some of them."""
    opened = client.request(OpenGroup("readers", [b"read"]), GroupOpened)
    epoch, [member] = opened.epoch, opened.members
    starts = {member.incarnation: member.acked}
    client.request(Reserve("readers", epoch, starts, COUNT // 2, 1 << 40), Reserved)
    client.request(Ack("readers", epoch, {member.incarnation: COUNT // 4}), Acked)
    client.request(OpenGroup("pattern", pattern="^none"), GroupOpened)


def _stage(client: AdminClient) -> None:
    """Publish batch 1 of a sink, and stage batch 2."""
    for batch in (1, 2):
        messages = [staged_message(b"%d" % size * size, b"empty") for size in (7, 6000)]
        stage = client.request(OpenStage("pipe", batch), StageOpened).stage
        client.request(StageMessages(stage, memoryview(b"".join(messages))), Staged)
        client.request(FinishStage(stage, len(messages)), StageFinished)
        if batch == 1:
            client.request(CommitBatch("pipe", batch, [stage], wait_ms=10_000), BatchCommitted)


def _settle(channel: ChannelPeer) -> None:
    """Ack all of `acked`, and return a message of `quorum`."""
    channel.drain(b"acked")
    channel.send(BasicReject(channel.get(b"quorum").got.delivery_tag, True))
    channel.quiet()
