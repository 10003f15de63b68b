"""Prices over AMQP with aio-pika: a feed publishes them, each subscriber keeps the last ones."""

import asyncio
from types import TracebackType
from typing import Self

import aio_pika

EXCHANGE = "prices"
# How long to wait before a lost connection is made anew (s).
RECONNECT_S = 0.1


async def publish(url: str, article: str, price: str) -> None:
    """Publish a price; returns when the broker has it."""
    connection = await aio_pika.connect(url)
    async with connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange(EXCHANGE, "topic", durable=True)
        message = aio_pika.Message(price.encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await exchange.publish(message, f"price.{article}")


class Subscriber:
    """The last prices of the articles that match `pattern`, also after the broker was away."""

    def __init__(self, url: str, name: str, pattern: str) -> None:
        self.prices: dict[str, str] = {}
        self._url = url
        self._name = name
        self._pattern = pattern
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._connection = await aio_pika.connect_robust(
            self._url, reconnect_interval=RECONNECT_S, fail_fast=False
        )
        channel = await self._connection.channel()
        await channel.set_qos(prefetch_count=100)
        exchange = await channel.declare_exchange(EXCHANGE, "topic", durable=True)
        queue = await channel.declare_queue(self._name, durable=True)
        await queue.bind(exchange, f"price.{self._pattern}")
        await queue.consume(self._on_message)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._connection.close()

    async def price(self, article: str) -> str:
        """The price of an article; waits until there is one."""
        while article not in self.prices:
            self._changed.clear()
            await self._changed.wait()
        return self.prices[article]

    async def _on_message(self, message: aio_pika.abc.AbstractIncomingMessage) -> None:
        async with message.process():
            article = (message.routing_key or "").removeprefix("price.")
            self.prices[article] = message.body.decode()
            self._changed.set()
