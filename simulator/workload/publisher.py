"""A publisher that sends every message once, with an id of its own, and records the answers."""

from __future__ import annotations

import asyncio
import random
import zlib
from typing import Any, Final

import pika

from simulator.checker.events import Confirm, Nack, Publish, Return
from simulator.checker.history import Recorder, now_us
from simulator.workload.link import PAUSE_S, Addresses, Link, LinkLostError
from simulator.workload.settings import WorkloadSettings

# Sizes of bodies in bytes, on both sides of what brokers keep in their index or elsewhere.
_SIZES: Final = (20, 20, 100, 100, 100, 1000, 1000, 4095, 5000, 20_000)
# Share of the messages that go to two queues.
_PAIR_SHARE: Final = 0.2
# Messages of a stock that are sent before the answers are read.
_STOCK_STEP: Final = 20
# How long the last confirms may take.
_GRACE_S: Final = 30.0


class Publisher:
    """Publishes at a rate to all queues until `stop` is set."""

    def __init__(
        self,
        name: str,
        number: int,
        settings: WorkloadSettings,
        recorder: Recorder,
    ) -> None:
        self._name = name
        self._settings = settings
        self._recorder = recorder
        self._addresses = Addresses(settings.uris, number)
        self._random = random.Random(f"{settings.seed} {name}")
        self._numbers = settings.numbers(has_stock=False)
        self._session = ""
        self._session_count = 0
        self._message_count = 0
        self._next_tag = 1
        # Names of the messages without an answer, by delivery tag.
        self._unanswered: dict[int, str] = {}

    async def stock(self, number: int, count: int) -> None:
        """Publish `count` messages to one queue, and return when all are answered."""
        link, _ = await self._addresses.connect()
        try:
            await self._begin(link)
            for sent in range(count):
                while len(self._unanswered) >= self._settings.window:
                    await asyncio.sleep(PAUSE_S / 50)
                    if not link.is_open:
                        raise LinkLostError(self._session)
                self._send(link, number, False)
                if sent % _STOCK_STEP == 0:
                    await asyncio.sleep(0)
            await self._await_answers(link)
        finally:
            await link.close()

    async def run(self, stop: asyncio.Event) -> None:
        """Publish until `stop`, then wait for the answers of the open link."""
        while not stop.is_set():
            link, _ = await self._addresses.connect()
            try:
                await self._publish_on(link, stop)
                await asyncio.wait_for(self._await_answers(link), _GRACE_S)
            except (LinkLostError, TimeoutError):
                await asyncio.sleep(PAUSE_S)
            finally:
                await link.close()

    async def _begin(self, link: Link) -> None:
        """Begin a session, whose publishes are confirmed."""
        self._session = f"{self._name}-{self._session_count}"
        self._session_count += 1
        self._unanswered = {}
        self._next_tag = 1
        session = self._session
        link.channel.add_on_return_callback(self._on_return)
        await link.call(
            lambda done: link.channel.confirm_delivery(
                lambda frame: self._on_answer(session, frame.method), callback=done
            )
        )

    async def _publish_on(self, link: Link, stop: asyncio.Event) -> None:
        await self._begin(link)
        while not stop.is_set():
            if not link.is_open:
                raise LinkLostError(self._session)
            if len(self._unanswered) < self._settings.window:
                self._publish(link)
            await asyncio.sleep(self._random.uniform(0, 2 / self._settings.rate))

    async def _await_answers(self, link: Link) -> None:
        while self._unanswered:
            if not link.is_open:
                raise LinkLostError(self._session)
            await asyncio.sleep(PAUSE_S / 5)

    def _publish(self, link: Link) -> None:
        number = self._random.choice(self._numbers)
        self._send(link, number, self._random.random() < _PAIR_SHARE)

    def _send(self, link: Link, number: int, is_pair: bool) -> None:
        """Publish a message to a queue, or to a pair of queues."""
        sequence = self._message_count
        self._message_count += 1
        message = f"{self._name}-{sequence}"
        settings = self._settings
        queues = settings.pair(number) if is_pair else (settings.queue_names[number],)
        priority = self._random.randrange(max(settings.kind(queue).levels for queue in queues))
        levels = tuple(min(priority, settings.kind(queue).levels - 1) for queue in queues)
        body = f"{message}:".encode() + self._random.randbytes(self._random.choice(_SIZES))
        crc = zlib.crc32(body)
        self._recorder.record(
            Publish(now_us(), message, self._name, self._session, sequence, queues, crc, levels)
        )
        self._unanswered[self._next_tag] = message
        self._next_tag += 1
        link.channel.basic_publish(
            settings.exchange if is_pair else "",
            str(number) if is_pair else queues[0],
            body,
            pika.BasicProperties(message_id=message, delivery_mode=2, priority=priority),
            mandatory=True,
        )

    def _on_answer(self, session: str, method: Any) -> None:
        """Record an ack or a nack, of one publish or of all up to it."""
        if session != self._session:
            return
        tag = method.delivery_tag
        tags = [each for each in self._unanswered if each <= tag] if method.multiple else [tag]
        is_ack = isinstance(method, pika.spec.Basic.Ack)
        for each in tags:
            message = self._unanswered.pop(each)
            at_us = now_us()
            self._recorder.record(Confirm(at_us, message) if is_ack else Nack(at_us, message))

    def _on_return(self, _: object, method: Any, properties: Any, body: object) -> None:
        self._recorder.record(Return(now_us(), properties.message_id, method.reply_code))
