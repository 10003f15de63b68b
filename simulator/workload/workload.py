"""The whole workload: declares queues, publishes and consumes for a while, drains, records all.

asyncio.run(Workload(settings).run(stop))
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from simulator.checker.events import PublishingEnd
from simulator.checker.history import Recorder, now_us
from simulator.workload.consumer import Consumer
from simulator.workload.drain import Drain
from simulator.workload.link import PAUSE_S, Addresses, LinkLostError
from simulator.workload.publisher import Publisher
from simulator.workload.settings import WorkloadSettings

Callback = Callable[..., None]
# A method of a channel, which answers by the callback.
Method = Callable[[Any, Callback], None]
# How often the history on disk catches up.
_FLUSH_S: Final = 0.05


class Workload:
    """One run; `recorder` is open until its end."""

    def __init__(self, settings: WorkloadSettings) -> None:
        self._settings = settings
        self.recorder = Recorder(settings.history)

    async def run(self, stop: asyncio.Event) -> bool:
        """Run for the seconds of the settings, or until `stop`; then drain.

        Returns whether all queues were drained in time; the history says which were.
        """
        flushing = asyncio.create_task(self._flush())
        try:
            await self._call(self._declarations())
            await self._stock()
            await self._work(stop)
            if not await self._drain():
                return False
            await self._call([partial(_delete_exchange, self._settings.exchange)])
            return True
        finally:
            flushing.cancel()
            self.recorder.close()

    async def _stock(self) -> None:
        settings = self._settings
        publisher = Publisher("stock", 0, settings, self.recorder)
        for number in settings.numbers(has_stock=True):
            await publisher.stock(number, settings.kind(settings.queue_names[number]).stock)

    async def _work(self, stop: asyncio.Event) -> None:
        settings, recorder = self._settings, self.recorder
        publishing_end, consuming_end = asyncio.Event(), asyncio.Event()
        consumers = [
            Consumer(f"c{place}-{queue}", number + place, queue, settings, recorder)
            # Consumers of one queue begin at different nodes.
            for place in range(settings.consumers)
            for number, queue in enumerate(settings.consumed_queues)
        ]
        publishers = [
            Publisher(f"p{number}", number, settings, recorder)
            for number in range(settings.publishers)
        ]
        async with asyncio.TaskGroup() as tasks:
            for consumer in consumers:
                tasks.create_task(consumer.run(consuming_end))
            running = [tasks.create_task(each.run(publishing_end)) for each in publishers]
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), settings.seconds)
            recorder.record(PublishingEnd(now_us()))
            publishing_end.set()
            await asyncio.gather(*running)
            consuming_end.set()

    async def _drain(self) -> bool:
        settings = self._settings
        if not await self._drain_queues(settings.queue_names):
            return False
        return not settings.has_letters or await self._drain_queues((settings.letters,))

    async def _drain_queues(self, queues: tuple[str, ...]) -> bool:
        drains = [
            asyncio.create_task(Drain(number, queue, self._settings, self.recorder).run())
            for number, queue in enumerate(queues)
        ]
        done, late = await asyncio.wait(drains, timeout=self._settings.drain_limit_s)
        for task in late:
            task.cancel()
        for task in done:
            task.result()
        return not late

    async def _call(self, methods: list[Method]) -> None:
        """Call all methods on one channel, at the first node that takes them."""
        addresses = Addresses(self._settings.uris, 0)
        while True:
            link, _ = await addresses.connect()
            try:
                for method in methods:
                    await link.call(partial(method, link.channel))
                return
            except LinkLostError:
                await asyncio.sleep(PAUSE_S)
            finally:
                await link.close()

    def _declarations(self) -> list[Method]:
        settings = self._settings
        exchange = settings.exchange
        methods: list[Method] = [partial(_declare_exchange, exchange)]
        for queue in settings.drained_queues:
            methods.append(partial(_declare_queue, queue, settings.arguments(queue)))
        for number in settings.numbers(has_stock=False):
            for queue in settings.pair(number):
                methods.append(partial(_bind, queue, exchange, str(number)))
        return methods

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_S)
            self.recorder.flush()


def _declare_exchange(exchange: str, channel: Any, done: Callback) -> None:
    channel.exchange_declare(exchange, "direct", durable=True, callback=done)


def _delete_exchange(exchange: str, channel: Any, done: Callback) -> None:
    channel.exchange_delete(exchange, callback=done)


def _declare_queue(queue: str, arguments: dict[str, object], channel: Any, done: Callback) -> None:
    channel.queue_declare(queue, durable=True, arguments=arguments, callback=done)


def _bind(queue: str, exchange: str, key: str, channel: Any, done: Callback) -> None:
    channel.queue_bind(queue, exchange, routing_key=key, callback=done)
