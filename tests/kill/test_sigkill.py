"""SIGKILL at random moments, while clients publish with confirms, loses no confirmed message.
After each restart: every confirmed message is there, byte for byte and in order; no message is
damaged or doubled; no message whose ack was synced comes back; queues and bindings whose
declaration was answered are there; transient messages and objects that are not durable are gone.
"""

import random

import pytest

from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.amqp_peer import ChannelPeer, Message, Peer
from tests.support.brokers.process import BrokerProcess
from tests.support.kills.ledger import (
    DURABLE_QUEUES,
    EATEN,
    FAN,
    FAN_QUEUES,
    TICKS,
    VOLATILE,
    Confirms,
    Declarer,
    Eater,
    Ledger,
    Publisher,
    Worker,
    body_of,
    connect,
    exists,
    let_work,
    number_of,
)
from warrenmq.build import build_name
from warrenmq.wire.methods import BasicAck, BasicConsume, BasicConsumeOk

# The interpreted node takes longer to start, and its engine differs in speed only.
KILLS = 50 if build_name() == "compiled" else 15
SEED = 20260


def declare_everything(channel: ChannelPeer) -> None:
    """Declare all that the workers need, durable."""
    for queue in DURABLE_QUEUES:
        channel.declare(queue, durable=True)
    channel.exchange(FAN, b"fanout", durable=True)
    channel.exchange(FAN + b"-declared", durable=True)
    for queue in FAN_QUEUES:
        channel.bind(queue, FAN)


def declare_volatile(channel: ChannelPeer) -> None:
    """Declare a queue that is not durable, and put a persistent message into it."""
    channel.declare(VOLATILE)
    channel.publish(VOLATILE, b"gone with the node", PERSISTENT)


def read_all(channel: ChannelPeer, queue: bytes) -> list[Message]:
    """Receive every message of the queue, unacked."""
    count = channel.declare(queue, durable=True).message_count
    channel.send(BasicConsume(queue, queue))
    channel.expect(BasicConsumeOk)
    return [channel.message() for _ in range(count)]


def check_queue(ledger: Ledger, queue: bytes, messages: list[Message], is_clean: bool) -> list[int]:
    """Compare the messages of a queue with what was promised; returns their numbers."""
    numbers = [number_of(message.body) for message in messages]
    assert numbers == sorted(set(numbers)), f"{queue!r}: out of order or doubled"
    assert is_clean or all(message.deliver.redelivered for message in messages), (
        "nobody can know that"
    )
    lost = ledger.confirmed[queue] - ledger.acked[queue] - set(numbers)
    assert not lost, f"{queue!r}: confirmed and lost: {sorted(lost)[:10]} of {len(numbers)}"
    risen = ledger.acked_for_good[queue] & set(numbers)
    assert not risen, f"{queue!r}: acked and back: {sorted(risen)[:10]}"
    assert not ledger.transient & set(numbers), f"{queue!r}: transient and back"
    return numbers


def check_and_eat(ledger: Ledger, peer: Peer, choose: random.Random, is_clean: bool = False) -> int:
    """Check all queues and ack most of their messages, durably; returns the number of messages."""
    channel = peer.channel()
    total = 0
    acked: dict[bytes, set[int]] = {}
    for queue in DURABLE_QUEUES:
        messages = read_all(channel, queue)
        numbers = check_queue(ledger, queue, messages, is_clean)
        total += len(numbers)
        # These messages were read from the disk, so they count as confirmed from here on. Acks of
        # them were lost.
        ledger.confirmed[queue] |= set(numbers)
        ledger.acked[queue] -= set(numbers)
        acked[queue] = set()
        for message, number in zip(messages, numbers, strict=True):
            if choose.random() < 0.8:
                channel.send(BasicAck(message.deliver.delivery_tag))
                acked[queue].add(number)
        ledger.acked[queue] |= acked[queue]
    confirms = Confirms(channel)
    number = ledger.number()
    confirms.publish(
        TICKS, body_of(number, 1), PERSISTENT, b"", lambda: ledger.confirmed[TICKS].add(number)
    )
    confirms.drain()
    for queue in DURABLE_QUEUES:
        ledger.acked_for_good[queue] |= acked[queue]
    channel.close()
    return total


def check_definitions(ledger: Ledger, peer: Peer, names: list[bytes]) -> None:
    """Check that declared queues exist with their bindings and that deleted ones do not."""
    channel = peer.channel()
    for name in names:
        assert exists(peer, name) == (name in ledger.declared), name
        if name in ledger.declared & ledger.bound:
            channel.publish(name, b"through the binding", exchange=FAN + b"-declared")
            assert channel.get(name, True).body == b"through the binding"
    channel.close()


@pytest.mark.kill
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_at_random_moments(node: BrokerProcess) -> None:
    choose = random.Random(SEED)
    ledger = Ledger()
    done: dict[str, int] = {}
    read = 0
    node.settings = ("journal_file_size_limit=1MiB",)
    node.start()
    setup = connect(node)
    declare_everything(setup.channel())
    for round_number in range(KILLS):
        declare_volatile(setup.channel())
        setup.drop()
        before = len(ledger.declared | ledger.deleted)
        workers: list[Worker] = [
            kind(node, ledger, choose.getrandbits(30)) for kind in (Publisher, Eater, Declarer)
        ]
        for worker in workers:
            worker.start()
        # In every fifth round the kill may come before anything is done.
        let_work(workers, choose.uniform(0.02, 0.5), 0 if round_number % 5 == 0 else 2)
        if round_number % 5 != 0:
            let_work(workers[:1], 0.0, 70)
        node.kill()
        for worker in workers:
            worker.join(20)
            assert not worker.is_alive()
            assert worker.failure is None, f"round {round_number}: {worker.failure!r}"
            done[type(worker).__name__] = done.get(type(worker).__name__, 0) + worker.done
        node.start()
        setup = connect(node)
        assert not exists(setup, VOLATILE)
        read += check_and_eat(ledger, setup, choose)
        names = sorted(ledger.declared | ledger.deleted)
        check_definitions(ledger, setup, choose.sample(names, min(12, len(names))))
        assert len(names) >= before
    check_definitions(ledger, setup, sorted(ledger.declared | ledger.deleted))
    setup.close()
    # The test proves nothing unless much happened: each worker has a minimum.
    assert done["Publisher"] > 50 * KILLS
    assert done["Eater"] > KILLS
    assert done["Declarer"] > KILLS
    assert sum(map(len, ledger.confirmed.values())) > 20 * KILLS
    assert len(ledger.acked_for_good[EATEN]) > KILLS
    print(f"{done}, {read} messages read after restarts")
    assert node.stop() == 0
