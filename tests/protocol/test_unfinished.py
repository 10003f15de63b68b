"""Bodies that are arriving and open transactions are counted, bounded, and ended."""

import struct
from collections.abc import Callable

import pytest

from tests.support.brokers.amqp_frames import BODY, frame, header_frame, method_frame
from tests.support.brokers.amqp_peer import ChannelPeer, Peer
from tests.support.brokers.memory_broker import EngineLink, MemoryBroker
from warrenmq.broker.connection.connection import Connection
from warrenmq.broker.definitions.settings import Settings
from warrenmq.broker.flow.alarm_state import PASS_BYTES, UNFINISHED_MIN_BYTES
from warrenmq.broker.flow.alarms import SHED_AFTER_MS
from warrenmq.broker.flow.throttle import WINDOW_BYTES
from warrenmq.wire.methods import (
    BasicPublish,
    ChannelClose,
    ChannelCloseOk,
    ConnectionBlocked,
    ConnectionUnblocked,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
)

MIB = 1 << 20
ENORMOUS = 1 << 59
PIECE = bytes(130_000)
CAPABILITIES: dict[str, object] = {"connection.blocked": True}


class Limited:
    """A broker in memory with a queue q, ENORMOUS memory and no alarm."""

    def __init__(self, max_unfinished_size: int = 0, timeout_s: int = 60) -> None:
        self.memory = MemoryBroker(
            Settings(max_unfinished_size=max_unfinished_size, unfinished_message_timeout=timeout_s)
        )
        self.broker = self.memory.broker
        self.broker.memory_used(1000, 0)
        self.broker.disk_free(1000, 0)
        self.set_memory_limit(ENORMOUS)
        self.set_disk_low(False)
        self.connect().channel().declare(b"q")

    def set_memory_limit(self, size: int) -> None:
        self.broker.set_vm_memory_high_watermark(size, 0, self.memory.now_ms)
        self.memory.pump()

    def set_memory_low(self, is_low: bool) -> None:
        self.broker.memory_used(ENORMOUS + 1 if is_low else 1000, self.memory.now_ms)
        self.memory.pump()

    def set_disk_low(self, is_low: bool) -> None:
        self.broker.set_disk_free_limit(ENORMOUS if is_low else 0, 0, self.memory.now_ms)
        self.memory.pump()

    def connect(self) -> Peer:
        return Peer(self.memory.connect()).open(capabilities=CAPABILITIES)

    def unfinished(self) -> int:
        """The number of bytes of unfinished messages."""
        return self.broker.memory_account.unfinished_bytes

    def messages(self) -> list[int]:
        """Take the messages out of q; returns the sizes of their bodies."""
        return [len(body) for body in self.connect().channel().drain(b"q")]


@pytest.fixture
def limited() -> Limited:
    return Limited()


def connection_of(peer: Peer) -> Connection:
    assert isinstance(peer.link, EngineLink)
    assert peer.link.connection is not None
    return peer.link.connection


def begin(channel: ChannelPeer, size: int, *pieces: bytes) -> None:
    """Announce a message of `size` bytes for q and send a part of it."""
    channel.peer.send(
        method_frame(channel.number, BasicPublish(b"", b"q")), header_frame(channel.number, size)
    )
    go_on(channel, *pieces)


def go_on(channel: ChannelPeer, *pieces: bytes) -> None:
    for piece in pieces:
        channel.peer.send(frame(BODY, channel.number, piece))


def nothing_comes(peer: Peer) -> None:
    assert not peer.read(0.05)


def test_unfinished_bodies_are_counted_until_they_are_messages(limited: Limited) -> None:
    channel = limited.connect().channel()
    begin(channel, 300_000, PIECE, PIECE)
    assert limited.unfinished() == 260_000
    go_on(channel, bytes(40_000))
    assert limited.unfinished() == 0
    assert limited.messages() == [300_000]


@pytest.mark.parametrize("end", ["drop", "close", "fault"])
def test_an_end_releases_what_was_unfinished(limited: Limited, end: str) -> None:
    peer = limited.connect()
    channel, other = peer.channel(), peer.channel()
    begin(channel, MIB, PIECE)
    other.call(TxSelect())
    other.publish(b"q", b"uncommitted")
    assert limited.unfinished() > 130_000
    if end == "drop":
        peer.drop()
    elif end == "close":
        other.close()
        assert limited.unfinished() == 130_000
        peer.drop()
    else:
        # A method within a body ends the connection.
        channel.send(TxSelect())
    assert limited.unfinished() == 0
    assert limited.messages() == []


def test_many_unfinished_bodies_of_a_connection_are_too_many() -> None:
    limited = Limited(max_unfinished_size=MIB)
    peer = limited.connect()
    channels = [peer.channel() for _ in range(3)]
    for channel in channels:
        begin(channel, 3 * len(PIECE), PIECE, PIECE)
    # The limit closes the channel that sends the next frame, whichever that is.
    fourth = peer.channel()
    begin(fourth, 4 * len(PIECE), PIECE, PIECE)
    begin_more = peer.channel()
    begin(begin_more, 4 * len(PIECE), PIECE)
    begin_more.closed_with(
        406, f"{9 * len(PIECE)} bytes of unfinished messages on this connection, at most {MIB} are allowed",
        BasicPublish(),
    )  # fmt: skip
    # The other channels have room again.
    for channel in channels:
        go_on(channel, PIECE)
    go_on(fourth, PIECE, PIECE)
    assert limited.messages() == [3 * len(PIECE)] * 3 + [4 * len(PIECE)]
    assert limited.unfinished() == 0


def test_one_message_is_taken_whatever_the_bound() -> None:
    limited = Limited(max_unfinished_size=MIB)
    channel = limited.connect().channel()
    begin(channel, 17 * len(PIECE), *[PIECE] * 17)
    channel.call(TxSelect())
    begin(channel, 18 * len(PIECE), *[PIECE] * 18)
    assert isinstance(channel.call(TxCommit()), TxCommitOk)
    assert limited.messages() == [17 * len(PIECE), 18 * len(PIECE)]
    assert limited.unfinished() == 0


def test_a_small_memory_limit_is_a_bound_as_well(limited: Limited) -> None:
    limited.set_memory_limit(4 * (UNFINISHED_MIN_BYTES + MIB))
    alarms = limited.broker.alarms
    assert alarms.unfinished_limit() == UNFINISHED_MIN_BYTES + MIB
    limited.set_memory_limit(0)
    assert alarms.unfinished_limit() == UNFINISHED_MIN_BYTES
    limited.set_memory_limit(ENORMOUS)
    assert alarms.unfinished_limit() == 2 * Settings().max_message_size


def test_a_transaction_over_the_bound_is_refused() -> None:
    limited = Limited(max_unfinished_size=MIB)
    channel = limited.connect().channel()
    channel.call(TxSelect())
    for _ in range(8):
        channel.publish(b"q", PIECE)
    assert 8 * len(PIECE) < limited.unfinished() < MIB
    channel.publish(b"q", PIECE)
    close = channel.await_close()
    assert close.reply_code == 406
    assert (
        b"bytes of unfinished messages on this connection, at most 1048576 are allowed"
        in close.reply_text
    )
    assert limited.unfinished() == 0
    assert limited.messages() == []


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_end_of_a_transaction_makes_room(is_commit: bool) -> None:
    limited = Limited(max_unfinished_size=MIB)
    channel = limited.connect().channel()
    channel.call(TxSelect())
    for _ in range(3):
        for _ in range(6):
            channel.publish(b"q", PIECE)
        answer = channel.call(TxCommit() if is_commit else TxRollback())
        assert isinstance(answer, TxCommitOk if is_commit else TxRollbackOk)
        assert limited.unfinished() == 0
    assert limited.messages() == [len(PIECE)] * (18 if is_commit else 0)


def test_a_frame_is_bounded_where_no_limit_was_negotiated() -> None:
    memory = MemoryBroker(Settings(frame_max=0, max_message_size=MIB))
    peer = Peer(memory.connect()).open(frame_max=0)
    channel = peer.channel()
    queue = channel.declare(exclusive=True).queue
    channel.publish(queue, bytes(MIB))
    assert len(channel.get(queue).body) == MIB
    peer.send(struct.pack(">BHI", BODY, 1, MIB + 1))
    peer.closed_with(501, f"type 3, all octets = <<>>: {{frame_too_large,{MIB + 1},{MIB - 8}}}")


# -- bodies that stand still -----------------------------------------------------------------------


def test_a_body_that_stands_still_ends() -> None:
    limited = Limited(timeout_s=3)
    peer = limited.connect()
    channel, other = peer.channel(), peer.channel()
    begin(channel, MIB, PIECE)
    limited.memory.advance(2_900)
    # Frames of that channel count as progress, frames of other channels do not.
    go_on(channel, PIECE)
    limited.memory.advance(2_000)
    other.publish(b"q", b"other")
    limited.memory.advance(900)
    nothing_comes(peer)
    limited.memory.advance(200)
    assert peer.read(0.2)
    assert limited.unfinished() == 0
    # The rest of the body may still be arriving.
    go_on(channel, PIECE)
    channel.closed_with(406, "the body of a message has not gone on for 3 s", BasicPublish())
    other.quiet()
    assert limited.messages() == [5]


def test_a_frame_that_is_arriving_slowly_counts() -> None:
    limited = Limited(timeout_s=3)
    peer = limited.connect()
    channel = peer.channel()
    begin(channel, len(PIECE) + 100, PIECE)
    last = frame(BODY, channel.number, bytes(100))
    for at in range(0, len(last), 20):
        limited.memory.advance(2_500)
        peer.send(last[at : at + 20])
    assert limited.messages() == [len(PIECE) + 100]


def test_bodies_may_stand_still_for_ever() -> None:
    limited = Limited(timeout_s=0)
    channel = limited.connect().channel()
    begin(channel, 2 * len(PIECE), PIECE)
    limited.memory.advance(20_000)
    go_on(channel, PIECE)
    assert limited.messages() == [2 * len(PIECE)]


def test_time_in_which_the_broker_does_not_read_is_not_the_clients() -> None:
    limited = Limited(timeout_s=3)
    peer = limited.connect()
    channel = peer.channel()
    begin(channel, 12 * len(PIECE), PIECE)
    limited.set_disk_low(True)
    go_on(channel, *[PIECE] * 9)
    assert not connection_of(peer).is_reading
    limited.memory.advance(10_000)
    limited.set_disk_low(False)
    # Time in which the shell does not read the socket does not count either.
    connection_of(peer).is_unread = True
    limited.memory.advance(10_000)
    connection_of(peer).is_unread = False
    limited.memory.advance(2_900)
    go_on(channel, PIECE, PIECE)
    assert limited.messages() == [12 * len(PIECE)]


# -- alarms ----------------------------------------------------------------------------------------


def test_an_alarm_stops_a_body_and_lets_acks_pass(limited: Limited) -> None:
    limited.connect().channel().publish_each(b"q", b"1", b"2")
    peer = limited.connect()
    channel, consumer = peer.channel(), peer.channel()
    consumer.qos(1)
    consumer.consume(b"q")
    tag = consumer.message().deliver.delivery_tag
    # Bytes before the alarm do not count against its window.
    begin(channel, 30 * len(PIECE), *[PIECE] * 10)
    limited.set_memory_low(True)
    assert connection_of(peer).is_reading
    go_on(channel, *[PIECE] * 5)
    consumer.ack(tag)
    assert consumer.message().body == b"2"
    nothing_comes(peer)
    while connection_of(peer).is_reading:
        go_on(channel, PIECE)
    assert WINDOW_BYTES < limited.broker.alarms.kept_bytes < WINDOW_BYTES + len(PIECE) + 1000
    peer.expect(ConnectionBlocked)
    assert connection_of(peer).throttle.is_blocked
    limited.set_memory_low(False)
    peer.expect(ConnectionUnblocked)
    assert connection_of(peer).is_reading
    assert limited.broker.alarms.kept_bytes == 0
    go_on(channel, *[PIECE] * (30 - 10 - 9))
    consumer.ack(tag + 1)
    assert len(consumer.message().body) == 30 * len(PIECE)
    assert limited.unfinished() == 0


def test_a_body_that_ends_within_the_window_makes_room_in_it(limited: Limited) -> None:
    peer = limited.connect()
    channels = [peer.channel() for _ in range(4)]
    for channel in channels:
        begin(channel, 5 * len(PIECE), PIECE)
    limited.set_memory_low(True)
    for channel in channels:
        go_on(channel, *[PIECE] * 4)
    assert connection_of(peer).is_reading
    assert limited.broker.alarms.kept_bytes == 0
    nothing_comes(peer)
    assert limited.messages() == [5 * len(PIECE)] * 4


def test_a_second_alarm_counts_anew(limited: Limited) -> None:
    peer = limited.connect()
    channel = peer.channel()
    begin(channel, 30 * len(PIECE), PIECE)
    for _ in range(3):
        limited.set_memory_low(True)
        go_on(channel, *[PIECE] * 6)
        assert connection_of(peer).is_reading
        limited.set_memory_low(False)
    assert limited.broker.alarms.kept_bytes == 0
    go_on(channel, *[PIECE] * 11)
    assert limited.messages() == [30 * len(PIECE)]


def test_an_open_transaction_passes_the_memory_alarm(limited: Limited) -> None:
    peer = limited.connect()
    channel = peer.channel()
    channel.call(TxSelect())
    channel.publish(b"q", b"before")
    limited.set_memory_low(True)
    channel.publish(b"q", b"behind")
    # A body of the transaction may exceed the window that stops other bodies.
    begin(channel, 17 * len(PIECE), *[PIECE] * 17)
    assert isinstance(channel.call(TxCommit()), TxCommitOk)
    assert limited.messages() == [6, 6, 17 * len(PIECE)]
    # The next transaction has not begun, so it waits.
    channel.publish(b"q", b"next")
    channel.send(TxCommit())
    peer.expect(ConnectionBlocked)
    nothing_comes(peer)
    limited.set_memory_low(False)
    peer.expect(ConnectionUnblocked)
    channel.expect(TxCommitOk)
    assert limited.messages() == [4]


def test_acks_in_a_transaction_open_it(limited: Limited) -> None:
    limited.connect().channel().publish(b"q", b"1")
    channel = limited.connect().channel()
    channel.call(TxSelect())
    tag = channel.get(b"q").got.delivery_tag
    limited.set_memory_low(True)
    channel.ack(tag)
    channel.publish(b"q", b"result")
    assert isinstance(channel.call(TxCommit()), TxCommitOk)
    assert limited.messages() == [6]


def test_a_transaction_waits_for_the_disk(limited: Limited) -> None:
    peer = limited.connect()
    channel = peer.channel()
    channel.call(TxSelect())
    channel.publish(b"q", b"1")
    limited.set_memory_low(True)
    limited.set_disk_low(True)
    channel.publish(b"q", b"2")
    channel.send(TxCommit())
    peer.expect(ConnectionBlocked)
    nothing_comes(peer)
    limited.set_disk_low(False)
    limited.set_memory_low(False)
    peer.expect(ConnectionUnblocked)
    channel.expect(TxCommitOk)
    assert limited.messages() == [1, 1]


@pytest.mark.parametrize("is_one_body", [True, False])
def test_no_more_than_so_much_passes_an_alarm(limited: Limited, is_one_body: bool) -> None:
    peer = limited.connect()
    channel, other = peer.channel(), limited.connect().channel()
    for each in (channel, other):
        each.call(TxSelect())
        each.publish(b"q", b"before")
    limited.set_memory_low(True)
    count = PASS_BYTES // len(PIECE)
    if is_one_body:
        begin(channel, 100 * MIB, *[PIECE] * (count + 1))
    else:
        for _ in range(count):
            channel.publish(b"q", PIECE)
    text = "low on memory: the transaction cannot take more messages"
    if not is_one_body:
        # The room is shared: the other transaction gets none of what this one has taken.
        other.publish(b"q", PIECE)
        other.closed_with(406, text, BasicPublish())
        channel.publish(b"q", PIECE)
    channel.closed_with(406, text, BasicPublish())
    # The next alarm has the full room again.
    limited.set_memory_low(False)
    again = peer.channel()
    again.call(TxSelect())
    again.publish(b"q", b"before")
    limited.set_memory_low(True)
    again.publish(b"q", PIECE)
    assert isinstance(again.call(TxCommit()), TxCommitOk)


def sized(channel: ChannelPeer, size: int) -> None:
    """Begin a body of 128 MiB and send `size` bytes of it."""
    begin(channel, 128 * MIB, *[PIECE] * (size // len(PIECE)), bytes(size % len(PIECE)))


def transaction_of(channel: ChannelPeer, size: int) -> None:
    channel.call(TxSelect())
    for _ in range(size // len(PIECE)):
        channel.publish(b"q", PIECE)
    channel.publish(b"q", bytes(size % len(PIECE)))


@pytest.mark.parametrize("fill", [sized, transaction_of])
def test_those_who_keep_the_alarm_on_are_closed(
    limited: Limited, fill: Callable[[ChannelPeer, int], None]
) -> None:
    """The largest are closed first, until half of the bound (a quarter of the limit) is left."""
    limited.set_memory_limit(4 * UNFINISHED_MIN_BYTES)
    peers = [limited.connect() for _ in range(4)]
    for peer, mib in zip(peers, (1, 7, 9, 5), strict=True):
        fill(peer.channel(), mib * MIB)
    limited.broker.memory_used(4 * UNFINISHED_MIN_BYTES + 1, limited.memory.now_ms)
    limited.memory.advance(SHED_AFTER_MS - 500)
    for peer in peers:
        nothing_comes(peer)
    limited.memory.advance(500)
    for peer in (peers[1], peers[2]):
        assert isinstance(peer.link, EngineLink)
        with pytest.raises(Exception, match="506 RESOURCE_ERROR - low on memory: "):
            peer.read()
    for peer in (peers[0], peers[3]):
        nothing_comes(peer)
    assert 6 * MIB <= limited.unfinished() < 6.1 * MIB


def test_a_transaction_whose_channel_closes_while_it_is_blocked_is_gone(limited: Limited) -> None:
    peer = limited.connect()
    channel = peer.channel()
    channel.call(TxSelect())
    channel.publish(b"q", PIECE)
    limited.set_memory_low(True)
    channel.publish(b"q", PIECE)
    assert isinstance(channel.call(ChannelClose(200, b"", 0, 0)), ChannelCloseOk)
    assert limited.unfinished() == 0


def test_kept_frames_are_counted(limited: Limited) -> None:
    peer = limited.connect()
    channel = peer.channel()
    limited.set_memory_low(True)
    channel.publish(b"q", PIECE)
    peer.expect(ConnectionBlocked)
    assert limited.unfinished() == limited.broker.alarms.kept_bytes > len(PIECE)
    limited.set_memory_low(False)
    peer.expect(ConnectionUnblocked)
    assert limited.unfinished() == 0
