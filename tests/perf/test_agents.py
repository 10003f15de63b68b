"""Publisher and consumer of the load generator, with the test as the broker on a socket pair."""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from librt.strings import BytesWriter

from warrenmq.perf.consumer import Consumer
from warrenmq.perf.errors import PerfError
from warrenmq.perf.publisher import BATCH_BYTES, Publisher, PublishFrames
from warrenmq.wire.encode import HEARTBEAT_FRAME, write_content, write_method_frame
from warrenmq.wire.frames import (
    FRAME_BODY,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    NEED_DATA,
    FrameBuffer,
)
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicNack,
    BasicPublish,
    ChannelClose,
    ChannelFlow,
    ChannelFlowOk,
    ConnectionBlocked,
    ConnectionUnblocked,
    decode_method,
)

SECOND = 1_000_000_000
MINUTE = 60 * SECOND


def frames_of(data: bytes) -> list[tuple[int, bytes]]:
    buffer = FrameBuffer(0)
    buffer.feed(data)
    found = []
    while (kind := buffer.next_frame()) != NEED_DATA:
        found.append((int(kind), buffer.data[buffer.start : buffer.end]))
    # No bytes are left over: the next frame begins with the next byte.
    buffer.feed(HEARTBEAT_FRAME)
    assert buffer.next_frame() == FRAME_HEARTBEAT
    return found


def methods_of(data: bytes) -> list[Method]:
    return [
        decode_method(payload, 0, len(payload))
        for kind, payload in frames_of(data)
        if kind == FRAME_METHOD
    ]


def frame(method: Method, channel: int = 1) -> bytes:
    out = BytesWriter()
    write_method_frame(out, channel, method)
    return out.getvalue()


@contextmanager
def socket_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def received(sock: socket.socket) -> bytes:
    """Return all bytes that have arrived."""
    chunks = []
    try:
        while chunk := sock.recv(1 << 20):
            chunks.append(chunk)
    except BlockingIOError:
        pass
    return b"".join(chunks)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 100, 4088, 4089, 10000])
def test_publish_frames_are_a_whole_message(size: int) -> None:
    frames = PublishFrames(b"ex", b"key", b"\x10\x00\x02", True, size, 4096)
    octets = frames.stamped(0x0102030405060708)
    assert len(octets) == frames.octets()
    parts = frames_of(octets)
    publish = decode_method(parts[0][1], 0, len(parts[0][1]))
    assert isinstance(publish, BasicPublish)
    assert (publish.exchange, publish.routing_key, publish.mandatory) == (b"ex", b"key", True)
    assert parts[1] == (FRAME_HEADER, struct.pack(">HHQ", 60, 0, size) + b"\x10\x00\x02")
    assert all(kind == FRAME_BODY and 0 < len(payload) <= 4088 for kind, payload in parts[2:])
    body = b"".join(payload for _, payload in parts[2:])
    assert len(body) == size
    if size >= 8:
        assert body[:8] == bytes(range(1, 9))


def publisher(
    sock: socket.socket, *, window: int = 0, limit: int = 0, rate: float = 0.0, size: int = 10
) -> Publisher:
    made = Publisher(
        sock, [PublishFrames(b"", b"q", b"\x00\x00", False, size, 131072)], window, limit, rate
    )
    made.start(0)
    return made


def test_the_window_holds_publishes_back_until_they_are_settled() -> None:
    with socket_pair() as (ours, theirs):
        agent = publisher(ours, window=10)
        assert agent.publish(SECOND)
        assert not agent.publish(SECOND)
        assert len(methods_of(received(theirs))) == agent.published == agent.unsettled() == 10
        theirs.send(
            frame(BasicAck(delivery_tag=4, multiple=True)) + frame(BasicNack(delivery_tag=5))
        )
        agent.on_readable()
        assert (agent.confirmed_count, agent.nacked_count, agent.unsettled()) == (4, 1, 5)
        assert agent.publish(2 * SECOND)
        assert (agent.published, agent.unsettled()) == (15, 10)


def test_confirms_in_any_order_count_once() -> None:
    with socket_pair() as (ours, theirs):
        agent = publisher(ours, window=10)
        agent.publish(time.monotonic_ns())
        for seq, multiple in [
            (3, False),
            (9, False),
            (1, False),
            (5, True),
            (10, False),
            (7, False),
            (8, True),
        ]:
            theirs.send(frame(BasicAck(delivery_tag=seq, multiple=multiple)))
            agent.on_readable()
        assert (agent.confirmed_count, agent.unsettled()) == (10, 0)
        assert agent.confirm_latency.count == 10


@pytest.mark.parametrize("seq", [0, 2, 11])
def test_a_confirm_of_nothing_ends_the_run(seq: int) -> None:
    with socket_pair() as (ours, theirs):
        agent = publisher(ours, window=10)
        agent.publish(SECOND)
        theirs.send(
            frame(BasicAck(delivery_tag=2, multiple=True)) + frame(BasicAck(delivery_tag=seq))
        )
        with pytest.raises(PerfError, match=f"confirmed publish {seq}"):
            agent.on_readable()


def test_the_rate_is_kept() -> None:
    with socket_pair() as (ours, _):
        agent = publisher(ours, rate=1000.0)
        assert agent.publish(0)
        assert agent.published == 1
        assert agent.next_due_ns() == SECOND // 1000 + 1
        assert not agent.publish(SECOND // 1000 - 1)
        assert agent.publish(SECOND // 1000 + 1)
        assert agent.publish(SECOND)
        assert agent.published == 1001
        assert agent.behind_ns_max == SECOND - 2 * SECOND // 1000


def test_the_limit_is_kept() -> None:
    with socket_pair() as (ours, theirs):
        agent = publisher(ours, limit=25)
        assert not agent.is_done()
        assert agent.publish(0)
        assert not agent.publish(0)
        assert agent.is_done()
        assert len(methods_of(received(theirs))) == 25


def test_a_blocked_publisher_waits() -> None:
    with socket_pair() as (ours, theirs):
        agent = publisher(ours)
        theirs.send(frame(ConnectionBlocked(reason=b"memory"), channel=0))
        agent.on_readable()
        assert not agent.publish(0)
        assert agent.next_due_ns() == 0
        theirs.send(frame(ConnectionUnblocked(), channel=0))
        agent.on_readable()
        assert agent.blocked_ns > 0
        assert agent.publish(0)


def test_channel_flow_is_obeyed_and_answered() -> None:
    with socket_pair() as (ours, theirs):
        agent = publisher(ours)
        for active in (False, True):
            theirs.send(frame(ChannelFlow(active=active)))
            agent.on_readable()
            (reply,) = methods_of(received(theirs))
            assert isinstance(reply, ChannelFlowOk)
            assert reply.active == active
            assert agent.publish(0) == active


def test_back_pressure_keeps_every_octet() -> None:
    with socket_pair() as (ours, theirs):
        agent = publisher(ours, size=1000)
        while agent.publish(0):
            pass
        assert agent.wants_write()
        published = agent.published
        assert not agent.publish(0)
        data = b""
        while agent.wants_write():
            data += received(theirs)
            agent.flush()
        data += received(theirs)
        assert len(methods_of(data)) == agent.published == published > BATCH_BYTES // 1100


def test_a_close_ends_the_run_with_its_text() -> None:
    with socket_pair() as (ours, theirs):
        agent = publisher(ours)
        theirs.send(frame(ChannelClose(reply_code=404, reply_text=b"NOT_FOUND - no exchange 'x'")))
        with pytest.raises(PerfError, match="closed the channel: 404 NOT_FOUND - no exchange 'x'"):
            agent.on_readable()


def test_a_lost_connection_ends_the_run() -> None:
    with socket_pair() as (ours, theirs):
        theirs.close()
        with pytest.raises(PerfError, match="publisher's connection"):
            publisher(ours).on_readable()


def deliveries(first: int, last: int, timestamp: int) -> bytes:
    out = BytesWriter()
    for tag in range(first, last + 1):
        write_method_frame(out, 1, BasicDeliver(consumer_tag=b"c", delivery_tag=tag))
        write_content(out, 1, b"\x00\x00", struct.pack(">q", timestamp) + bytes(20), 4096)
    return out.getvalue()


def consumer(
    ours: socket.socket, theirs: socket.socket, ack_every: int, limit: int = 0
) -> Consumer:
    made = Consumer(ours, b"q", ack_every, limit)
    made.start()
    (consume,) = methods_of(received(theirs))
    assert isinstance(consume, BasicConsume)
    assert (consume.queue, consume.no_ack) == (b"q", ack_every == 0)
    theirs.send(frame(BasicConsumeOk(consumer_tag=b"c")))
    made.on_readable()
    assert made.is_consuming
    return made


def acks_of(data: bytes) -> list[tuple[int, bool]]:
    acks = []
    for method in methods_of(data):
        assert isinstance(method, BasicAck)
        acks.append((method.delivery_tag, method.multiple))
    return acks


def test_acks_one_by_one() -> None:
    with socket_pair() as (ours, theirs):
        agent = consumer(ours, theirs, 1)
        theirs.send(deliveries(1, 3, 0))
        agent.on_readable()
        assert acks_of(received(theirs)) == [(1, False), (2, False), (3, False)]


def test_acks_in_multiples_and_the_rest_at_the_end() -> None:
    with socket_pair() as (ours, theirs):
        agent = consumer(ours, theirs, 4)
        theirs.send(deliveries(1, 10, 0))
        agent.on_readable()
        assert acks_of(received(theirs)) == [(4, True), (8, True)]
        agent.finish()
        assert acks_of(received(theirs)) == [(10, True)]


def test_auto_ack_sends_nothing() -> None:
    with socket_pair() as (ours, theirs):
        agent = consumer(ours, theirs, 0)
        theirs.send(deliveries(1, 10, 0))
        agent.on_readable()
        agent.finish()
        assert (agent.received, received(theirs)) == (10, b"")


def test_the_limit_is_acked_and_the_rest_left() -> None:
    with socket_pair() as (ours, theirs):
        agent = consumer(ours, theirs, 4, limit=6)
        theirs.send(deliveries(1, 10, 0))
        agent.on_readable()
        assert (agent.received, agent.is_done()) == (6, True)
        assert acks_of(received(theirs)) == [(4, True), (6, True)]


def test_latency_is_recorded_for_every_message() -> None:
    with socket_pair() as (ours, theirs):
        agent = consumer(ours, theirs, 0)
        now = time.monotonic_ns()
        theirs.send(
            deliveries(1, 5, now - MINUTE)
            + deliveries(6, 7, now - 2 * MINUTE)
            + deliveries(8, 9, now + MINUTE)
        )
        agent.on_readable()
        assert (agent.latency.count, agent.latency.out_of_range) == (7, 2)
        assert MINUTE <= agent.latency.minimum < 2 * MINUTE <= agent.latency.maximum < 3 * MINUTE


def test_a_cancelled_consumer_ends_the_run() -> None:
    with socket_pair() as (ours, theirs):
        agent = consumer(ours, theirs, 1)
        theirs.send(frame(BasicCancel(consumer_tag=b"c")))
        with pytest.raises(PerfError, match="queue is gone"):
            agent.on_readable()
