"""A consumer that acks, sometimes requeues, and makes sure that its acks took effect."""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Callable
from typing import Any, Final

import pika

from simulator.checker.events import (
    CANCELLED,
    CLOSED,
    LOST,
    Ack,
    Delivery,
    Reject,
    Requeue,
    SessionEnd,
    SessionStart,
    SyncCall,
    SyncReply,
)
from simulator.checker.history import Recorder, now_us
from simulator.workload.link import PAUSE_S, Addresses, Link, LinkLostError
from simulator.workload.settings import WorkloadSettings

# Share of the acks that ack all deliveries before them, too.
_MULTIPLE_SHARE: Final = 0.2
# Share of the deliveries that go back to the queue.
_REQUEUE_SHARE: Final = 0.03
# Share of the deliveries that stay unacked until a later multiple ack, or the end.
_LATER_SHARE: Final = 0.05
# Pause between two calls that show that the acks before them took effect.
_CALL_PAUSE_S: Final = 0.05
# Calls of basic.get between them.
_GETS: Final = 5


class ConsumerSession:
    """One subscription on one link, to a queue of a kind; an orderly one acks all at once."""

    def __init__(
        self,
        name: str,
        queue: str,
        link: Link,
        recorder: Recorder,
        chance: random.Random,
        settings: WorkloadSettings,
        is_orderly: bool = False,
    ) -> None:
        self.name = name
        self.queue = queue
        self._kind = settings.kind(queue)
        self._letters = settings.letters
        self._link = link
        self._recorder = recorder
        self._random = chance
        self._is_orderly = is_orderly
        # Delivery tags that are neither acked nor requeued, in order.
        self._unacked: dict[int, None] = {}
        self._is_cancelled = False

    async def subscribe(self, node: str, prefetch: int) -> None:
        """Begin to consume. Raises LinkLostError; the session must be ended all the same."""
        link = self._link
        is_single = self._kind.is_single
        self._recorder.record(
            SessionStart(now_us(), self.name, self.queue, node, prefetch, is_single)
        )
        await link.call(lambda done: link.channel.basic_qos(prefetch_count=prefetch, callback=done))
        link.channel.add_on_cancel_callback(self._on_cancel)
        await link.call(
            lambda done: link.channel.basic_consume(self.queue, self._on_message, callback=done)
        )

    async def sync(self) -> tuple[int, int]:
        """Make a synchronous call behind the acks so far: the queue's messages and consumers.

        Raises LinkLostError, also when the broker has cancelled the consumer.
        """
        if self._is_cancelled:
            raise LinkLostError(self.name)
        self._recorder.record(SyncCall(now_us(), self.name))
        counts = await self._link.counts(self.queue)
        self._recorder.record(SyncReply(now_us(), self.name))
        return counts

    async def work(self, stop: asyncio.Event) -> None:
        """Call from time to time until `stop`. Raises LinkLostError."""
        while not stop.is_set():
            await self.sync()
            await asyncio.sleep(_CALL_PAUSE_S)

    async def end(self) -> None:
        """Close the link and record the end, at the moment when the broker may learn of it."""
        at_us = now_us()
        is_clean = await self._link.close()
        reason = CANCELLED if self._is_cancelled else CLOSED if is_clean else LOST
        self._recorder.record(SessionEnd(at_us, self.name, reason))

    def _on_cancel(self, _: object) -> None:
        self._is_cancelled = True

    def _on_message(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        tag = int(method.delivery_tag)
        message = str(properties.message_id)
        crc = zlib.crc32(body)
        self._recorder.record(
            Delivery(now_us(), self.name, tag, message, bool(method.redelivered), crc)
        )
        self._unacked[tag] = None
        pace_s = 0.0 if self._is_orderly else self._kind.pace_s
        if pace_s:
            asyncio.get_running_loop().call_later(pace_s, self._answer, channel, tag)
        else:
            self._answer(channel, tag)

    def _answer(self, channel: Any, tag: int) -> None:
        if not self._link.is_open or tag not in self._unacked:
            return
        draw = 1.0 if self._is_orderly else self._random.random()
        if draw < _REQUEUE_SHARE:
            del self._unacked[tag]
            self._recorder.record(Requeue(now_us(), self.name, tag))
            channel.basic_reject(tag, requeue=True)
        elif draw >= 1 - self._kind.reject_share and not self._is_orderly:
            del self._unacked[tag]
            self._recorder.record(Reject(now_us(), self.name, tag, self._letters))
            channel.basic_reject(tag, requeue=False)
        elif draw >= _REQUEUE_SHARE + _LATER_SHARE:
            self._ack(channel, tag)

    def _ack(self, channel: Any, tag: int) -> None:
        is_multiple = self._random.random() < _MULTIPLE_SHARE
        tags = [each for each in self._unacked if each <= tag] if is_multiple else [tag]
        for each in tags:
            del self._unacked[each]
            self._recorder.record(Ack(now_us(), self.name, each))
        channel.basic_ack(tag, multiple=is_multiple)


class PollingSession(ConsumerSession):
    """Takes one message after another by basic.get."""

    async def subscribe(self, node: str, prefetch: int) -> None:
        """See the base class; `prefetch` is of no use."""
        self._recorder.record(SessionStart(now_us(), self.name, self.queue, node, 1))
        channel = self._link.channel
        channel.add_callback(self._on_empty, [pika.spec.Basic.GetEmpty], one_shot=False)

    async def work(self, stop: asyncio.Event) -> None:
        """See the base class."""
        while not stop.is_set():
            for _ in range(_GETS):
                await self._link.call(self._get)
            await self.sync()
            await asyncio.sleep(_CALL_PAUSE_S)

    def _get(self, done: Callable[..., None]) -> None:
        def take(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            self._on_message(channel, method, properties, body)
            done(method)

        self._done = done
        self._link.channel.basic_get(self.queue, take)

    def _on_empty(self, frame: Any) -> None:
        self._done(frame)


class Consumer:
    """Consumes one queue until `stop` is set, with a new session whenever one ends."""

    def __init__(
        self, name: str, number: int, queue: str, settings: WorkloadSettings, recorder: Recorder
    ) -> None:
        self._name = name
        self._queue = queue
        self._settings = settings
        self._recorder = recorder
        self._addresses = Addresses(settings.uris, number)
        self._random = random.Random(f"{settings.seed} {name}")
        self._session = PollingSession if settings.kind(queue).is_polled else ConsumerSession

    async def run(self, stop: asyncio.Event) -> None:
        """Consume until `stop`."""
        number = 0
        while not stop.is_set():
            link, node = await self._addresses.connect()
            name = f"{self._name}-{number}"
            number += 1
            session = self._session(
                name, self._queue, link, self._recorder, self._random, self._settings
            )
            try:
                await session.subscribe(node, self._settings.prefetch)
                await session.work(stop)
            except LinkLostError:
                await asyncio.sleep(PAUSE_S)
            finally:
                await session.end()
