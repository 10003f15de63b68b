"""A declare-ok promises that the definition is on disk, also to a client that repeats it."""

import pytest

from tests.support.brokers.amqp_peer import ChannelPeer, Peer
from tests.support.brokers.memory_broker import MemoryBroker
from tests.support.brokers.memory_node import MemoryDisk, MemoryNode
from warrenmq.broker.definitions.metadata import PutBinding, PutQueue
from warrenmq.queues.definition import QueueDefinition
from warrenmq.queues.settings import QueueSettings
from warrenmq.store.disk.flusher import FlushJob
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicConsumeOk,
    ConfirmSelect,
    ConfirmSelectOk,
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
    """A broker with a durable queue q and durable exchanges x and y; q is bound to y."""
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


def fail_one(memory: MemoryBroker) -> None:
    """Finish the gathered group commit: no definition is stored, all other records are written."""
    journal = memory.vhost.journal
    batch = journal.seal()
    for change_set in batch.change_sets:
        change_set.is_stored = False
    memory.vhost.store.on_batch_done(batch, True, memory.now_ms)
    memory.pump()


def definitions_of(memory: MemoryBroker) -> tuple[object, ...]:
    """Return the queues, exchanges and bindings in memory."""
    router = memory.vhost.router
    bindings = [(it.source.name, it.destination.name, it.key) for it in router.all_bindings()]
    return sorted(router.queues), sorted(router.exchanges), sorted(bindings)


CREATIONS = DEFINITIONS[:4]
DELETIONS = DEFINITIONS[4:]


@pytest.mark.parametrize(("method", "reply"), CREATIONS, ids=lambda value: type(value).__name__)
def test_what_cannot_be_stored_is_refused_and_taken_back(
    memory: MemoryBroker, method: Method, reply: type[Method]
) -> None:
    before = definitions_of(memory)
    author, same, other = channel_of(memory), channel_of(memory), channel_of(memory)
    memory.holds_commits = True
    author.send(method)
    same.send(method)
    fail_one(memory)
    # The definition would be missing after a crash, so no client gets an ok.
    for channel in (author, same):
        assert channel.peer.await_close().reply_code == 506
    assert definitions_of(memory) == before
    # Declaring existing definitions works, and needs no disk.
    other.send(QueueDeclare(b"q", False, True))
    other.expect(QueueDeclareOk)
    other.send(ExchangeDeclare(b"x", b"direct", False, True))
    other.expect(ExchangeDeclareOk)
    other.send(QueueBind(b"q", b"y", b"bound"))
    other.expect(QueueBindOk)
    # The definition can be created when the disk has room again.
    memory.holds_commits = False
    other.send(method)
    other.expect(reply)
    memory.vhost.router.check()


def test_consumers_of_a_refused_queue_are_cancelled_and_publishers_confirmed(
    memory: MemoryBroker,
) -> None:
    author, consumer, publisher = channel_of(memory), channel_of(memory), channel_of(memory)
    publisher.send(ConfirmSelect())
    publisher.expect(ConfirmSelectOk)
    memory.holds_commits = True
    author.send(QueueDeclare(b"new", False, True))
    consumer.send(BasicConsume(b"new", b"c"))
    consumer.expect(BasicConsumeOk)
    publisher.publish(b"new", b"to it", b"\x10\x00\x02")
    fail_one(memory)
    assert author.peer.await_close().reply_code == 506
    assert consumer.message().body == b"to it"
    assert isinstance(consumer.event(), BasicCancel)
    assert isinstance(publisher.event(), BasicAck)
    assert b"new" not in memory.vhost.queues


@pytest.mark.parametrize(("method", "reply"), DELETIONS, ids=lambda value: type(value).__name__)
def test_a_deletion_that_cannot_be_stored_is_tried_again_until_it_is(
    memory: MemoryBroker, method: Method, reply: type[Method]
) -> None:
    first = channel_of(memory)
    memory.holds_commits = True
    first.send(method)
    gone = definitions_of(memory)
    fail_one(memory)
    assert first.peer.await_close().reply_code == 506
    assert definitions_of(memory) == gone
    # The deletion waits to be stored; until then no client gets an ok.
    second = channel_of(memory)
    second.send(method)
    memory.pump()
    assert not second.peer.link.receive(0.0)
    memory.holds_commits = False
    memory.pump()
    second.expect(reply)
    assert memory.vhost.journal.definitions.is_empty()


def test_a_deletion_overtakes_its_own_refusal(memory: MemoryBroker) -> None:
    author, other = channel_of(memory), channel_of(memory)
    memory.holds_commits = True
    author.send(QueueDeclare(b"new", False, True))
    author.send(ExchangeDeclare(b"newx", b"direct", False, True))
    other.send(QueueDelete(b"new"))
    fail_one(memory)
    assert author.peer.await_close().reply_code == 506
    assert other.peer.await_close().reply_code == 506
    memory.holds_commits = False
    memory.pump()
    assert b"new" not in memory.vhost.queues
    memory.vhost.router.check()


@pytest.mark.parametrize("is_exchange_durable", [True, False])
@pytest.mark.parametrize("is_queue_durable", [True, False])
def test_s9_a_binding_is_stored_when_both_its_ends_are(
    memory: MemoryBroker, is_exchange_durable: bool, is_queue_durable: bool
) -> None:
    """A binding is stored only when both its ends are durable.

    A stored binding of a deleted queue would bind a later queue of that name.
    """
    channel = channel_of(memory)
    channel.declare(b"other", durable=is_queue_durable)
    channel.exchange(b"z", durable=is_exchange_durable)
    memory.holds_commits = True
    channel.send(QueueBind(b"other", b"z", b"key"))
    memory.pump()
    changes = [
        change for taken in memory.vhost.journal.definitions.take() for change in taken.changes
    ]
    assert len(changes) == (1 if is_exchange_durable and is_queue_durable else 0)
    assert all(isinstance(change, PutBinding) for change in changes)


def test_messages_of_a_refused_queue_are_those_of_a_deleted_one() -> None:
    """A start treats journaled messages of a refused queue as messages of a deleted queue.

    A start must not take them for messages of a queue whose definition is lost.
    """
    node = MemoryNode(MemoryDisk())
    vhost = node.vhost
    now_ms = node.clock.now_ms()
    definition = QueueDefinition(
        b"new", node.broker.next_queue_id(), True, False, None, b"", QueueSettings()
    )
    queue = vhost.add_queue(definition, now_ms)
    change = PutQueue(b"/", queue.id, b"new", True, False, b"")
    vhost.store_changes([change], False).callbacks.append(
        lambda _ok, at_ms: vhost.delete_queue(queue, at_ms)
    )
    node.publish(b"new", b"confirmed")
    batch = vhost.journal.seal()
    # The driver's flusher marks every change set stored; this one must stay refused.
    refused, batch.change_sets = batch.change_sets, []
    node.driver.flusher.flush(
        FlushJob(vhost.journal, batch, node.driver.flusher, lambda changes: None)
    )
    batch.change_sets = refused
    vhost.store.on_batch_done(batch, True, now_ms)
    assert vhost.queues == {}
    node.commit()
    # `crash` asserts that the start finds no messages without a definition.
    assert node.crash().vhost.queues == {}
    assert node.disk.next_queue_id > queue.id
