"""The end of a workload: takes what the queues still have, until each is empty for sure."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from simulator.checker.events import QueueDrained
from simulator.checker.history import Recorder, now_us
from simulator.workload.consumer import ConsumerSession
from simulator.workload.link import PAUSE_S, Addresses, LinkLostError
from simulator.workload.settings import WorkloadSettings


class Drain:
    """Drains one queue.

    A queue is empty when it has neither messages nor consumers: a consumer whose connection broke
    may still have messages that come back.
    """

    def __init__(
        self, number: int, queue: str, settings: WorkloadSettings, recorder: Recorder
    ) -> None:
        self._queue = queue
        self._settings = settings
        self._recorder = recorder
        self._addresses = Addresses(settings.uris, number)
        self._session_count = 0

    async def run(self) -> None:
        """Drain the queue, record that it is empty, and delete it."""
        while True:
            try:
                if await self._is_empty():
                    return
                await self._take()
            except LinkLostError:
                await asyncio.sleep(PAUSE_S)

    async def _is_empty(self) -> bool:
        """Wait until the queue has no consumers; whether it has no messages either."""
        link, _ = await self._addresses.connect()
        try:
            counts = await link.counts(self._queue)
            while counts[1]:
                await asyncio.sleep(PAUSE_S)
                counts = await link.counts(self._queue)
            if counts[0]:
                return False
            self._recorder.record(QueueDrained(now_us(), self._queue))
            with suppress(LinkLostError):
                await link.call(
                    lambda done: link.channel.queue_delete(
                        self._queue, if_empty=True, callback=done
                    )
                )
            return True
        finally:
            await link.close()

    async def _take(self) -> None:
        """Take messages until the queue says that it has none."""
        link, node = await self._addresses.connect()
        name = f"drain-{self._queue}-{self._session_count}"
        self._session_count += 1
        session = ConsumerSession(
            name,
            self._queue,
            link,
            self._recorder,
            random.Random(name),
            self._settings,
            is_orderly=True,
        )
        try:
            await session.subscribe(node, self._settings.prefetch)
            while (await session.sync())[0]:
                await asyncio.sleep(PAUSE_S / 5)
        finally:
            await session.end()
