"""The tests of `aio_pika_prices.py`; asyncio.run stands for the async plugin of your choice."""

import asyncio

from aio_pika_prices import Subscriber, publish

from warrenmq.testing.broker import WarrenBroker
from warrenmq.testing.vhost import WarrenVhost


def test_a_subscriber_gets_the_prices_it_asked_for(warren_vhost: WarrenVhost) -> None:
    async def scenario() -> dict[str, str]:
        async with Subscriber(warren_vhost.url, "fruit", "fruit.*") as subscriber:
            await publish(warren_vhost.url, "tools.hammer", "20")
            await publish(warren_vhost.url, "fruit.apple", "1")
            await publish(warren_vhost.url, "fruit.pear", "2")
            await subscriber.price("fruit.pear")
            return subscriber.prices

    assert asyncio.run(scenario()) == {"fruit.apple": "1", "fruit.pear": "2"}


def test_a_subscriber_finds_the_broker_again(warren_broker: WarrenBroker) -> None:
    async def scenario() -> str:
        async with Subscriber(warren_broker.url, "all", "#") as subscriber:
            # The subscriber's side of the loop runs on while the broker is away.
            await asyncio.to_thread(warren_broker.kill)
            await asyncio.to_thread(warren_broker.start)
            await publish(warren_broker.url, "fruit.apple", "3")
            return await subscriber.price("fruit.apple")

    assert asyncio.run(scenario()) == "3"
