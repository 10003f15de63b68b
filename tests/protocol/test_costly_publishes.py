"""Publishes that are much work take several turns, in which others are served."""

from collections.abc import Callable

import pytest

from tests.support.brokers.amqp_frames import header_frame, method_frame, table
from tests.support.brokers.amqp_peer import ChannelPeer, Message, Peer
from tests.support.brokers.fixtures import Amqp
from tests.support.brokers.memory_broker import EngineLink, MemoryBroker
from warrenmq.broker.flow.publish_turns import COSTLY_STEPS
from warrenmq.wire.methods import (
    BasicGet,
    BasicNack,
    BasicPublish,
    ChannelClose,
    ChannelCloseOk,
    ConfirmSelect,
    ConfirmSelectOk,
    TxCommit,
    TxCommitOk,
    TxSelect,
    TxSelectOk,
)
from warrenmq.wire.properties import Properties

EXCHANGE = b"wide"
# The queue that every message reaches.
QUEUE = b"q"
COUNT = 60
# Publishes that one turn may handle here.
A_TURN = 4

# Makes the exchange; returns the key of a message, and the steps of one.
Setup = Callable[[ChannelPeer], tuple[Callable[[int], bytes], int]]


def fan_out(channel: ChannelPeer) -> tuple[Callable[[int], bytes], int]:
    """An exchange with as many queues as make a publish costly."""
    channel.exchange(EXCHANGE, b"fanout")
    for number in range(COSTLY_STEPS - 1):
        channel.bind(channel.declare(b"%d" % number).queue, EXCHANGE)
    channel.bind(QUEUE, EXCHANGE)
    return lambda number: b"", COSTLY_STEPS


def by_headers(channel: ChannelPeer) -> tuple[Callable[[int], bytes], int]:
    """An exchange that compares a message with 400 bindings, of which the first matches."""
    channel.exchange(EXCHANGE, b"headers")
    channel.bind(QUEUE, EXCHANGE)
    for number in range(400):
        channel.bind(QUEUE, EXCHANGE, b"", table(name=number))
    # 401 bindings and 400 arguments.
    return lambda number: b"", 801 // 8 + 1


def by_long_keys(channel: ChannelPeer) -> tuple[Callable[[int], bytes], int]:
    """An exchange that steps through a hundred words of each new key."""
    channel.exchange(EXCHANGE, b"topic")
    for pattern in (b"#", b"#.end", b"*.#.end"):
        channel.bind(QUEUE, EXCHANGE, pattern)
    # The root, and two nodes for each word but the first.
    return lambda number: b"a." * 100 + b"%d" % number, 203 // 8 + 1


class Situation:
    """A client with COUNT costly publishes in `frames`; tells what each turn handles of them."""

    def __init__(self, amqp: Amqp, set_up: Setup) -> None:
        self.engine: MemoryBroker = amqp.engine()
        self.publisher: Peer = amqp.connect()
        self.channel: ChannelPeer = self.publisher.channel()
        self.other: ChannelPeer = amqp.channel()
        self.channel.declare(QUEUE)
        key_of, steps = set_up(self.channel)
        self.turns = self.engine.broker.publish_turns
        self.turns.turn_steps = steps * A_TURN
        self.engine.pump()
        self.frames = b"".join(
            method_frame(1, BasicPublish(EXCHANGE, key_of(number))) + header_frame(1, 0)
            for number in range(COUNT)
        )

    def receive(self, peer: Peer, data: bytes) -> None:
        """Let the broker receive bytes of `peer`, and nothing else happen."""
        assert isinstance(peer.link, EngineLink) and peer.link.connection is not None
        peer.link.connection.receive(data, self.engine.now_ms)

    def received(self, peer: Peer) -> int:
        """Publishes of `peer` that were handled."""
        assert isinstance(peer.link, EngineLink) and peer.link.connection is not None
        return int(peer.link.connection.channels[1].counters.received)

    def arrived(self) -> int:
        return int(self.engine.vhost.queues[QUEUE].ready_count)

    def end_turn(self) -> int:
        """End the broker's turn; returns how many messages it has brought to QUEUE."""
        before = self.arrived()
        self.engine.broker.end_turn(self.engine.now_ms)
        return self.arrived() - before


def test_a_route_is_found_once(amqp: Amqp) -> None:
    situation = Situation(amqp, by_long_keys)
    publish = method_frame(1, BasicPublish(EXCHANGE, b"a." * 100)) + header_frame(1, 0)
    situation.receive(situation.publisher, publish * COUNT)
    assert situation.arrived() == COUNT


@pytest.mark.parametrize("set_up", [fan_out, by_headers, by_long_keys])
def test_a_turn_handles_some_of_them(amqp: Amqp, set_up: Setup) -> None:
    situation = Situation(amqp, set_up)
    situation.receive(situation.publisher, situation.frames)
    # The publish that uses up the share is one more.
    assert situation.arrived() == A_TURN + 1
    handled = []
    while situation.arrived() < COUNT:
        situation.engine.is_woken = False
        handled.append(situation.end_turn())
        assert situation.engine.is_woken
    assert max(handled) == A_TURN + 1
    assert min(handled[:-1]) == A_TURN + 1


def test_channels_go_on_in_turn(amqp: Amqp) -> None:
    """Those that come later are not left behind, and a channel may be closed meanwhile."""
    situation = Situation(amqp, fan_out)
    peers = [amqp.connect() for _ in range(3)]
    for peer in peers:
        peer.channel()
    for peer in (situation.publisher, *peers):
        situation.receive(peer, situation.frames)
    # Each of the others has had the one publish that shows that the share is used up.
    assert situation.arrived() == A_TURN + 1 + len(peers)
    assert isinstance(peers[0].link, EngineLink) and peers[0].link.connection is not None
    situation.engine.broker.disconnect(peers[0].link.connection, situation.engine.now_ms)
    handled = [situation.end_turn() for _ in range(3)]
    live = [situation.publisher, *peers[1:]]
    assert [situation.received(peer) for peer in live] == [2 * (A_TURN + 1), *[A_TURN + 2] * 2]
    while situation.arrived() < 3 * COUNT + 1:
        handled.append(situation.end_turn())
    assert situation.arrived() == 3 * COUNT + 1
    assert max(handled) == min(handled[:-1]) == A_TURN + 1


def test_cheap_publishes_do_not_wait(amqp: Amqp) -> None:
    situation = Situation(amqp, fan_out)
    situation.receive(situation.publisher, situation.frames)
    assert isinstance(situation.other.peer.link, EngineLink)
    before = situation.arrived()
    cheap = method_frame(1, BasicPublish(b"", QUEUE)) + header_frame(1, 0)
    situation.receive(situation.other.peer, cheap * COUNT)
    assert situation.arrived() == before + COUNT


class OpenTransaction(Situation):
    """A client has COUNT cheap publishes and an ack in a transaction, and has sent the commit."""

    def __init__(self, amqp: Amqp) -> None:
        super().__init__(amqp, fan_out)
        channel = self.channel
        channel.publish(b"0")
        acked = channel.get(b"0").got
        assert isinstance(channel.call(TxSelect()), TxSelectOk)
        channel.ack(acked.delivery_tag)
        for number in range(COUNT):
            channel.publish(QUEUE, b"%d" % number)
        # Two steps each: the message, and its queue.
        self.turns.turn_steps = 2 * A_TURN
        self.engine.pump()
        self.link = channel.peer.link
        assert isinstance(self.link, EngineLink) and self.link.connection is not None
        self.receive(self.publisher, method_frame(1, TxCommit()))
        assert self.arrived() == A_TURN + 1

    def apply_all(self) -> None:
        """Let turns pass until all messages are there."""
        while self.arrived() < COUNT:
            # The disk has what was applied so far; that is not the end of the commit.
            self.engine.commit()
            assert self.unacked() == 1
            assert self.end_turn() == A_TURN + 1

    def unacked(self) -> int:
        return int(self.engine.vhost.queues[b"0"].unacked_count)


def test_a_commit_of_many_publishes_takes_several_turns(amqp: Amqp) -> None:
    commit = OpenTransaction(amqp)
    commit.receive(commit.publisher, method_frame(1, BasicGet(QUEUE, True)))
    commit.apply_all()
    # The ack is applied after all publishes. The get, sent before, is answered after commit-ok.
    assert commit.unacked() == 0
    assert commit.arrived() == COUNT
    commit.channel.expect(TxCommitOk)
    first = commit.channel.reply()
    assert isinstance(first, Message)
    assert first.body == b"0"
    assert commit.other.drain(QUEUE) == [b"%d" % number for number in range(1, COUNT)]
    assert amqp.engine().broker.memory_account.unfinished_bytes == 0


def test_commits_share_a_turn(amqp: Amqp) -> None:
    commit = OpenTransaction(amqp)
    assert isinstance(commit.other.call(TxSelect()), TxSelectOk)
    for _ in range(COUNT):
        commit.other.publish(QUEUE)
    # A turn passes for each publish.
    assert commit.arrived() == COUNT
    commit.turns.steps_left = -1
    commit.receive(commit.other.peer, method_frame(1, TxCommit()))
    assert commit.arrived() == COUNT
    assert commit.end_turn() == A_TURN + 1
    assert commit.turns.steps_left < 0


def test_a_batch_that_fails_fails_the_whole_commit(amqp: Amqp) -> None:
    """Its messages are not on the disk, whatever became of the others."""
    commit = OpenTransaction(amqp)
    commit.engine.failing_commits = 1
    commit.engine.pump()
    commit.publisher.closed_with(506, "the transaction could not be written to disk")


def test_a_client_that_leaves_amid_its_commit(amqp: Amqp) -> None:
    """What was applied stays, and the rest takes no memory."""
    commit = OpenTransaction(amqp)
    assert isinstance(commit.link, EngineLink) and commit.link.connection is not None
    commit.engine.broker.disconnect(commit.link.connection, commit.engine.now_ms)
    for _ in range(COUNT):
        commit.end_turn()
    assert commit.arrived() == A_TURN + 1
    assert commit.unacked() == 0
    assert amqp.engine().broker.memory_account.unfinished_bytes == 0


def slices(situation: Situation) -> list[int]:
    """End turns of the vhost until all messages have arrived; how many did in each."""
    handled: list[int] = []
    while situation.arrived() < COUNT:
        before = situation.arrived()
        has_more = situation.engine.vhost.advance(situation.engine.now_ms)
        if situation.arrived() > before:
            handled.append(situation.arrived() - before)
            # The first of the delayed ones wakes the others.
            assert has_more or len(handled) == 1 or situation.arrived() == COUNT
    return handled


def test_dead_letters_take_several_turns(amqp: Amqp) -> None:
    situation = Situation(amqp, fan_out)
    channel = situation.channel
    channel.declare(b"dying", arguments=table(x__dead__letter__exchange=EXCHANGE))
    channel.publish_each(b"dying", *[b"x"] * COUNT)
    channel.qos(COUNT)
    channel.consume(b"dying")
    last = [channel.message().deliver for _ in range(COUNT)][-1]
    situation.engine.vhost.dead_letters.slice_steps = COSTLY_STEPS * A_TURN
    situation.receive(
        situation.publisher, method_frame(1, BasicNack(last.delivery_tag, True, False))
    )
    assert slices(situation) == [A_TURN] * (COUNT // A_TURN)


def test_delayed_messages_take_several_turns(amqp: Amqp) -> None:
    situation = Situation(amqp, fan_out)
    channel = situation.channel
    channel.exchange(b"later", b"x-delayed-message", arguments=table(x__delayed__type=b"fanout"))
    channel.bind_exchange(EXCHANGE, b"later")
    delayed = Properties(headers=table(x__delay=100)).encode()
    for _ in range(COUNT):
        channel.publish(b"", b"", delayed, b"later")
    situation.engine.vhost.delayed.slice_steps = COSTLY_STEPS * A_TURN
    situation.engine.now_ms += 200
    # The first one wakes the bucket, which gives the others to the next turns.
    assert slices(situation)[1:-1] == [A_TURN] * (COUNT // A_TURN - 1)


def test_the_client_notices_nothing(amqp: Amqp) -> None:
    """All is confirmed, and the channel's close is answered after that."""
    situation = Situation(amqp, fan_out)
    channel = situation.channel
    assert isinstance(channel.call(ConfirmSelect()), ConfirmSelectOk)
    situation.receive(situation.publisher, situation.frames)
    situation.receive(situation.publisher, method_frame(1, ChannelClose(200, b"", 0, 0)))
    channel.confirms(COUNT)
    channel.expect(ChannelCloseOk)
    assert situation.arrived() == COUNT
