"""Unmodified aio-pika works: robust connections, transactions, the master/worker pattern."""

import asyncio

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage
from aio_pika.exceptions import ChannelNotFoundEntity, DeliveryError
from aio_pika.patterns import Master

from tests.support.awaiting import PATIENCE_S

pytestmark = pytest.mark.interop


def test_publish_with_confirms_and_iterate(broker_uri: str, name: str) -> None:
    async def run() -> list[bytes]:
        connection = await aio_pika.connect_robust(broker_uri)
        async with connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=5)
            queue = await channel.declare_queue(name, durable=True)
            exchange = await channel.declare_exchange(
                name, aio_pika.ExchangeType.TOPIC, durable=True
            )
            await queue.bind(exchange, "a.*")
            messages = [
                aio_pika.Message(
                    str(number).encode(),
                    headers={"n": number},
                    delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                )
                for number in range(100)
            ]
            await asyncio.gather(*(exchange.publish(message, "a.b") for message in messages))
            bodies = []
            async with queue.iterator() as incoming:
                async for message in incoming:
                    async with message.process():
                        bodies.append(message.body)
                        assert message.headers["n"] == int(message.body)
                    if len(bodies) == 100:
                        break
            await queue.delete(if_unused=False, if_empty=False)
            await exchange.delete()
            return bodies

    assert asyncio.run(run()) == [str(number).encode() for number in range(100)]


def test_a_message_that_fails_is_requeued(broker_uri: str, name: str) -> None:
    async def run() -> list[bool | None]:
        async with await aio_pika.connect(broker_uri) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(name, exclusive=True)
            await channel.default_exchange.publish(aio_pika.Message(b"x"), name)
            seen = []
            for _ in range(2):
                message = await queue.get(timeout=PATIENCE_S)
                assert message is not None
                seen.append(message.redelivered)
                if message.redelivered:
                    await message.ack()
                else:
                    await message.reject(requeue=True)
            return seen

    assert asyncio.run(run()) == [False, True]


def test_unroutable_and_missing(broker_uri: str, name: str) -> None:
    async def run() -> None:
        async with await aio_pika.connect(broker_uri) as connection:
            channel = await connection.channel(on_return_raises=True)
            with pytest.raises(DeliveryError):
                await channel.default_exchange.publish(aio_pika.Message(b"x"), name)
            channel = await connection.channel()
            with pytest.raises(ChannelNotFoundEntity):
                await channel.declare_queue(name, passive=True)
            await (await connection.channel()).declare_queue(name, exclusive=True)

    asyncio.run(run())


def test_transaction(broker_uri: str, name: str) -> None:
    async def run() -> int:
        async with await aio_pika.connect(broker_uri) as connection:
            channel = await connection.channel(publisher_confirms=False)
            queue = await channel.declare_queue(name, exclusive=True)
            async with channel.transaction():
                await channel.default_exchange.publish(aio_pika.Message(b"kept"), name)
            with pytest.raises(ZeroDivisionError):
                async with channel.transaction():
                    await channel.default_exchange.publish(aio_pika.Message(b"dropped"), name)
                    raise ZeroDivisionError
            declared = await channel.declare_queue(name, passive=True)
            assert queue.name == declared.name
            return declared.declaration_result.message_count or 0

    assert asyncio.run(run()) == 1


def test_requests_and_answers(broker_uri: str, name: str) -> None:
    async def run() -> list[bytes]:
        async with await aio_pika.connect(broker_uri) as connection:
            channel = await connection.channel()
            requests = await channel.declare_queue(name, exclusive=True)
            callback = await channel.declare_queue(exclusive=True, auto_delete=True)
            answers: asyncio.Queue[bytes] = asyncio.Queue()

            async def on_request(message: AbstractIncomingMessage) -> None:
                async with message.process():
                    assert message.reply_to is not None
                    reply = aio_pika.Message(
                        message.body * 2, correlation_id=message.correlation_id
                    )
                    await channel.default_exchange.publish(reply, message.reply_to)

            async def on_answer(message: AbstractIncomingMessage) -> None:
                await answers.put(message.body)

            await requests.consume(on_request)
            await callback.consume(on_answer, no_ack=True)
            for number in range(10):
                request = aio_pika.Message(
                    str(number).encode(), reply_to=callback.name, correlation_id="c"
                )
                await channel.default_exchange.publish(request, name)
            return [await asyncio.wait_for(answers.get(), PATIENCE_S) for _ in range(10)]

    assert asyncio.run(run()) == [str(number).encode() * 2 for number in range(10)]


def test_robust_connection_comes_back(broker_uri: str, name: str) -> None:
    async def run() -> bytes:
        connection = await aio_pika.connect_robust(broker_uri, reconnect_interval=0.1)
        async with connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(name, durable=True)
            received: asyncio.Queue[bytes] = asyncio.Queue()

            async def on_message(message: AbstractIncomingMessage) -> None:
                await received.put(message.body)
                await message.ack()

            await queue.consume(on_message)
            is_back = asyncio.Event()
            connection.reconnect_callbacks.add(lambda *_: is_back.set())
            # Close the transport, as a network failure would.
            transport = connection.transport
            assert transport is not None
            await transport.connection.close(ConnectionResetError())
            # `ready` may report the lost transport, or a new one whose channels are not open yet.
            await asyncio.wait_for(is_back.wait(), PATIENCE_S)
            await channel.default_exchange.publish(aio_pika.Message(b"after"), name)
            body = await asyncio.wait_for(received.get(), PATIENCE_S)
            await queue.delete(if_unused=False, if_empty=False)
            return body

    assert asyncio.run(run()) == b"after"


def test_master_and_worker(broker_uri: str, name: str) -> None:
    async def run() -> list[int]:
        async with await aio_pika.connect(broker_uri) as connection:
            master = Master(await connection.channel())
            done: asyncio.Queue[int] = asyncio.Queue()

            async def work(*, number: int) -> None:
                await done.put(number)

            await master.create_worker(name, work, exclusive=True)
            for number in range(10):
                await master.create_task(name, {"number": number})
            return [await asyncio.wait_for(done.get(), PATIENCE_S) for _ in range(10)]

    assert asyncio.run(run()) == list(range(10))
