"""A declare-ok promises that the definition is on disk, whoever declared it first."""

import pytest

from tests.support.amqp_peer import ChannelPeer, Peer
from tests.support.memory_broker import MemoryBroker
from warren.wire.method import Method
from warren.wire.methods import (
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueueUnbind,
    QueueUnbindOk,
)

DEFINITIONS: list[tuple[Method, type[Method]]] = [
    (QueueDeclare(b"new", False, True), QueueDeclareOk),
    (ExchangeDeclare(b"newx", b"direct", False, True), ExchangeDeclareOk),
    (QueueBind(b"q", b"x", b"key"), QueueBindOk),
    (ExchangeBind(b"x", b"y", b"key"), ExchangeBindOk),
    (QueueDelete(b"q"), QueueDeleteOk),
    (ExchangeDelete(b"x"), ExchangeDeleteOk),
    (QueueUnbind(b"q", b"y", b"bound"), QueueUnbindOk),
]


def channel_of(memory: MemoryBroker) -> ChannelPeer:
    return Peer(memory.connect()).open().channel()


@pytest.fixture
def memory() -> MemoryBroker:
    """A broker with a durable queue q and exchanges x and y, q bound to y."""
    memory = MemoryBroker()
    channel = channel_of(memory)
    channel.declare(b"q", durable=True)
    channel.exchange(b"x", durable=True)
    channel.exchange(b"y", durable=True)
    channel.bind(b"q", b"y", b"bound")
    return memory


@pytest.mark.parametrize(("method", "reply"), DEFINITIONS, ids=lambda value: type(value).__name__)
def test_the_second_to_ask_waits_for_the_disk_as_the_first_does(
    memory: MemoryBroker, method: Method, reply: type[Method]
) -> None:
    first, second = channel_of(memory), channel_of(memory)
    memory.holds_commits = True
    first.send(method)
    second.send(method)
    memory.pump()
    for channel in (first, second):
        assert not channel.peer.link.receive(0.0)
    memory.holds_commits = False
    memory.pump()
    for channel in (first, second):
        channel.expect(reply)


@pytest.mark.parametrize(("method", "reply"), DEFINITIONS, ids=lambda value: type(value).__name__)
def test_after_a_failure_ok_means_that_it_is_there_at_last(
    memory: MemoryBroker, method: Method, reply: type[Method]
) -> None:
    first = channel_of(memory)
    memory.failing_commits = 1
    memory.holds_commits = True
    first.send(method)
    journal = memory.vhost.journal
    journal.on_done(journal.seal(), False, memory.now_ms)
    memory.pump()
    close = first.peer.await_close()
    assert close.reply_code == 506
    # The definition waits to be written again; until then nobody is told that it is.
    second = channel_of(memory)
    second.send(method)
    memory.pump()
    assert not second.peer.link.receive(0.0)
    memory.holds_commits = False
    memory.failing_commits = 0
    memory.pump()
    second.expect(reply)
