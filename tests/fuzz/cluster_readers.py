"""What a node reads from other nodes of its cluster, for fuzzing.

An input of several frames has the length of each (u32) in front of it.
"""

from collections.abc import Callable
from unittest.mock import patch

import msgspec

from tests.cluster.links.pairs import FROM, TestNode, identity, output
from tests.cluster.remote.conftest import far
from tests.cluster.remote.two_nodes import BACK, TwoNodes
from tests.fuzz.campaign import Reader
from tests.fuzz.framed import FrameLayout
from tests.queues.mirror.test_payloads import NOW_MS, Mirror
from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.amqp_peer import ChannelPeer
from tests.support.stores.model_store import ModelHost
from tests.support.stores.store_driver import close_drivers
from warrenmq.broker.definitions.metadata import MetadataDamaged
from warrenmq.cluster.groups.group import decode_group
from warrenmq.cluster.links.node_calls import NodeCalls
from warrenmq.cluster.metadata.values import NewerFormat
from warrenmq.cluster.mirrors.records import (
    MalformedMirrorRecord,
    RingRecord,
    SyncRecord,
    decode_message,
    decode_record,
    key_of,
)
from warrenmq.cluster.mirrors.sync.records import decode as decode_step
from warrenmq.cluster.records import ClusterMeta, Member, RunningNode
from warrenmq.cluster.records import decode_record as decode_record_in_etcd
from warrenmq.cluster.ring.frames import MalformedRingFrame
from warrenmq.cluster.ring.frames import decode as decode_ring_frame
from warrenmq.queues.mirror.applier import EpochError
from warrenmq.queues.remote.link_records import MalformedRecordError
from warrenmq.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicGet,
    BasicNack,
    BasicQos,
    ConfirmSelect,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
)

# A delay (ms) of what the nodes send each other that outlasts each input: calls get no answer.
_NEVER_MS = 1 << 30
SEQUENCE = FrameLayout()
QUEUES = (b"q", b"other")


def sequence_of(frames: list[bytes]) -> bytes:
    """The frames as one input."""
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def read_link(data: bytes) -> None:
    """Bytes of a node that dials this one; a link raises no exception of its own."""
    link = TestNode(identity("b@two")).links.accepted(FROM, 0)
    at = 0
    while at < len(data):
        size = 1 + data[at] * 3
        link.receive(data[at : at + size], 0)
        output(link)
        at += size
    link.tick(1)
    link.lost("the end")


def read_replica_record(data: bytes) -> None:
    """A record between replicas, with the ring frame or the step of a synchronisation in it."""
    key_of(data)
    record = decode_record(data)
    if isinstance(record, SyncRecord):
        decode_step(record)
    elif isinstance(record, RingRecord):
        for entry in decode_ring_frame(record.frame).entries:
            for pub in entry.pubs:
                decode_message(pub)


def read_payloads(data: bytes) -> None:
    """Operations of a master, applied to the copy of a queue."""
    host = ModelHost(embed_below=60, page_batch=4, segment_entries=8)
    mirror = Mirror(host, True, False)
    try:
        for _, payload, _ in SEQUENCE.split(data):
            mirror.applier.apply(payload, NOW_MS)
        mirror.applier.check()
    finally:
        # The cycle collector does not track entries, so they would keep their queue for ever.
        mirror.queue.delete(NOW_MS)
        host.batch.clear()


def read_call(data: bytes) -> None:
    """A call between nodes, or a piece of an answer to one."""
    calls = NodeCalls(lambda: None)
    link = TestNode(identity("b@two")).links.dialled("a@one", FROM, 0)
    calls.link_up(link)
    calls.answerer = lambda _node, _request, answer: answer(b"answer")
    calls.ask("a@one", b"request", 0, lambda _answer, _fault: None)
    calls.take_call("a@one", data)
    calls.take_answer("a@one", data, 0)
    calls.end_turn()


def read_etcd_record(data: bytes) -> None:
    """The value of a record of the cluster, or of a group of copies."""
    decoders: tuple[Callable[[bytes], object], ...] = (
        lambda value: decode_record_in_etcd(value, ClusterMeta),
        lambda value: decode_record_in_etcd(value, Member),
        lambda value: decode_record_in_etcd(value, RunningNode),
    )
    faults = 0
    for decode in decoders:
        try:
            decode(data)
        except (MetadataDamaged, NewerFormat):
            faults += 1
    if faults == len(decoders):
        decode_group(data)


def two_nodes() -> tuple[TwoNodes, ChannelPeer]:
    """A cluster with queues at the back, and a client at the front that has asked for all kinds."""
    cluster = TwoNodes()
    channel = far(cluster)
    for queue in QUEUES:
        channel.call(QueueDeclare(queue, durable=queue == b"q"))
    return cluster, channel


def ask_everything(channel: ChannelPeer) -> None:
    """Use the queues in every way that makes records; what is sent needs no answer here."""
    channel.send(ConfirmSelect())
    for number in range(4):
        channel.publish(b"q" if number % 2 else b"other", b"body %d" % number, PERSISTENT)
    channel.send(BasicQos(0, 3))
    channel.send(BasicConsume(b"q", b"tag"))
    channel.send(BasicConsume(b"other", b"second", no_ack=True))
    channel.send(BasicGet(b"q"))


def read_operations(data: bytes) -> None:
    """What clients of another node do with the queues of this one."""
    cluster, _ = two_nodes()
    # The client of this cluster has asked for nothing, so it must not get the events.
    cluster.links[BACK].is_open = False
    try:
        for _, payload, _ in SEQUENCE.split(data):
            cluster.clients[BACK].take_frame(payload, cluster.front.now_ms)
            cluster.pump()
    finally:
        cluster.cut()
        cluster.check()
        close_drivers()


def read_events(data: bytes) -> None:
    """What another node says of its queues to the clients of this one."""
    cluster, channel = two_nodes()
    cluster.delay_ms = _NEVER_MS
    try:
        ask_everything(channel)
        for _, payload, _ in SEQUENCE.split(data):
            remote = cluster.front.broker.remote_node(BACK)
            remote.take_frame(payload, cluster.front.now_ms)
            cluster.pump()
    finally:
        cluster.cut()
        cluster.check()
        close_drivers()


def recorded_frames() -> tuple[list[bytes], list[bytes]]:
    """The operations and the events of a conversation that uses the queues in every way."""
    cluster, channel = two_nodes()
    kept: tuple[list[bytes], list[bytes]] = ([], [])
    for link, frames in zip(cluster.links.values(), kept, strict=True):
        send = link.send

        def recorded(
            kind: int,
            payload: bytes,
            send: object = send,
            frames: list[bytes] = frames,
        ) -> None:
            frames.append(payload)
            assert callable(send)
            send(kind, payload)

        patch.object(link, "send", recorded).start()
    ask_everything(channel)
    cluster.advance(100)
    for method in (
        BasicAck(1),
        BasicNack(2, requeue=True),
        BasicCancel(b"tag"),
        QueuePurge(b"other"),
        BasicGet(b"other"),
        QueueDelete(b"q"),
    ):
        channel.send(method)
        cluster.advance(50)
    close_drivers()
    return kept


_MALFORMED = (MalformedRecordError,)
_CLUSTER_BYTES = 16 << 20

READERS = {
    "link": Reader(read_link, (), FrameLayout(kind=1, spared=2).mutator()),
    "replica": Reader(read_replica_record, (MalformedMirrorRecord, MalformedRingFrame)),
    "payloads": Reader(read_payloads, (*_MALFORMED, EpochError), SEQUENCE.mutator()),
    "calls": Reader(read_call, (msgspec.DecodeError,)),
    "etcd-record": Reader(read_etcd_record, (MetadataDamaged,)),
    "operations": Reader(
        read_operations, _MALFORMED, SEQUENCE.mutator(), fixed_bytes=_CLUSTER_BYTES
    ),
    "events": Reader(read_events, _MALFORMED, SEQUENCE.mutator(), fixed_bytes=_CLUSTER_BYTES),
}
