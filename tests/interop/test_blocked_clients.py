"""Clients handle connection.blocked: pika's callbacks and timeout, aio-pika's publishers wait."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import aio_pika
import pika
import pytest
from pika.exceptions import ConnectionBlockedTimeout

from tests.support.awaiting import PATIENCE_S, eventually
from tests.support.brokers.node_thread import NodeThread

pytestmark = pytest.mark.interop
ENORMOUS = 1 << 59


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeThread]:
    node = NodeThread(tmp_path)
    yield node
    node.stop()


def set_low(node: NodeThread, is_low: bool) -> None:
    now_ms = node.node.clock.now_ms()
    node.call(lambda: node.node.broker.set_disk_free_limit(ENORMOUS if is_low else 0, 0, now_ms))


def test_pika_calls_back(node: NodeThread) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(node.uri))
    channel = connection.channel()
    channel.queue_declare("q")
    seen: list[str] = []
    connection.add_on_connection_blocked_callback(
        lambda _connection, frame: seen.append(frame.method.reason)
    )
    connection.add_on_connection_unblocked_callback(
        lambda _connection, _frame: seen.append("unblocked")
    )
    set_low(node, True)
    channel.basic_publish("", "q", b"kept")

    def has_seen(count: int) -> bool:
        connection.process_data_events(time_limit=0.1)
        return len(seen) >= count

    eventually(lambda: has_seen(1), "blocked")
    assert seen == ["low on disk"]
    set_low(node, False)
    eventually(lambda: has_seen(2), "unblocked")
    assert seen == ["low on disk", "unblocked"]
    assert channel.basic_get("q", auto_ack=True)[2] == b"kept"
    connection.close()


def test_pika_gives_up_when_it_is_blocked_for_too_long(node: NodeThread) -> None:
    parameters = pika.URLParameters(node.uri)
    parameters.blocked_connection_timeout = 0.5
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.queue_declare("q")
    set_low(node, True)
    with pytest.raises(ConnectionBlockedTimeout):
        channel.basic_publish("", "q", b"never taken")
        connection.process_data_events(time_limit=PATIENCE_S)
    # Wait until the node has noticed the end: it would accept the kept publish of a living client.
    eventually(lambda: node.call(lambda: not node.node.protocols), "the client is gone")
    set_low(node, False)
    again = pika.BlockingConnection(pika.URLParameters(node.uri))
    assert again.channel().queue_declare("q", passive=True).method.message_count == 0
    again.close()


def test_pika_waits_for_its_confirm(node: NodeThread) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(node.uri))
    channel = connection.channel()
    channel.queue_declare("q")
    channel.confirm_delivery()
    set_low(node, True)
    is_over = threading.Event()

    def end() -> None:
        is_over.set()
        set_low(node, False)

    timer = threading.Timer(0.5, end)
    timer.start()
    channel.basic_publish("", "q", b"late")
    assert is_over.is_set()
    timer.join()
    assert channel.basic_get("q", auto_ack=True)[2] == b"late"
    connection.close()


def test_aio_pika_waits_and_consumes_meanwhile(node: NodeThread) -> None:
    async def scenario() -> None:
        connection = await aio_pika.connect(node.uri)
        async with connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("q")
            for number in range(10):
                await channel.default_exchange.publish(aio_pika.Message(b"%d" % number), "q")
            await asyncio.to_thread(set_low, node, True)
            late = asyncio.create_task(
                channel.default_exchange.publish(aio_pika.Message(b"late"), "q")
            )
            consuming = await connection.channel()
            await consuming.set_qos(1)
            same = await consuming.get_queue("q")
            bodies = []
            async with same.iterator() as messages:
                async for message in messages:
                    await message.ack()
                    bodies.append(message.body)
                    if len(bodies) == 10:
                        break
            assert bodies == [b"%d" % number for number in range(10)]
            assert not late.done()
            await asyncio.to_thread(set_low, node, False)
            await asyncio.wait_for(late, PATIENCE_S)
            got = await queue.get(timeout=PATIENCE_S)
            assert got is not None
            await got.ack()
            assert got.body == b"late"

    asyncio.run(scenario())
