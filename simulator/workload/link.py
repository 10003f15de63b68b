"""A connection with one channel, by pika, for coroutines.

A link that breaks stays broken: whoever uses it opens the next one, at the next address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pika
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.exceptions import AMQPError, ConnectionClosedByClient, StreamLostError

# Seconds between heartbeats, by which a broker learns of a client that is gone. pika itself would
# notice a silent node after 7 to 14 s: too late for a client that has others to go to.
_HEARTBEAT_S: Final = 2
# A node that does not answer for so long is given up.
_SILENCE_LIMIT_S: Final = 4.0
_PROBE_PAUSE_S: Final = 1.0
_CONNECT_TIMEOUT_S: Final = 2.0
_OPEN_TIMEOUT_S: Final = 4.0
_CLOSE_TIMEOUT_S: Final = 5.0
# Pause after a link is lost, so that a node that is down is not asked without end.
PAUSE_S: Final = 0.05

# A call of pika's, given its callback.
Start = Callable[[Callable[..., None]], object]


class LinkLostError(Exception):
    """The connection or its channel broke, or could not be opened."""


class Link:
    """One channel on a connection of its own; call `open` first."""

    def __init__(self, uri: str) -> None:
        # pika's channel; pika has no types.
        self.channel: Any = None
        # The channel takes methods.
        self.is_open = False
        self._uri = uri
        self._connection: Any = None
        # Answers that somebody waits for.
        self._calls: set[asyncio.Future[Any]] = set()
        # Done when the link is over: True after close and close-ok.
        self._over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._watching: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect, and open the channel. Raises LinkLostError."""
        parameters = pika.URLParameters(self._uri)
        parameters.heartbeat = _HEARTBEAT_S
        parameters.socket_timeout = _CONNECT_TIMEOUT_S
        parameters.stack_timeout = _OPEN_TIMEOUT_S

        def connect(opened: Callable[..., None]) -> None:
            self._connection = AsyncioConnection(
                parameters,
                on_open_callback=opened,
                on_open_error_callback=self._on_closed,
                on_close_callback=self._on_closed,
            )

        await self.call(connect)
        self.channel = await self.call(
            lambda opened: self._connection.channel(on_open_callback=opened)
        )
        self.channel.add_on_close_callback(self._on_channel_closed)
        self.is_open = True
        self._watching = asyncio.create_task(self._watch())

    async def call(self, start: Start) -> Any:
        """Start a method of pika and return what its callback gets. Raises LinkLostError."""
        if self._over.done():
            raise LinkLostError(self._uri)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls.add(answer)
        try:
            start(lambda value: None if answer.done() else answer.set_result(value))
            return await answer
        except (AMQPError, OSError) as error:
            self._lose()
            raise LinkLostError(f"{self._uri}: {error!r}") from error
        finally:
            self._calls.discard(answer)
            # A caller that was cancelled leaves the error of its answer behind.
            if answer.done() and not answer.cancelled():
                answer.exception()

    async def counts(self, queue: str) -> tuple[int, int]:
        """Ready messages and consumers of a queue. Raises LinkLostError."""
        ok = await self.call(
            lambda done: self.channel.queue_declare(queue, passive=True, callback=done)
        )
        return ok.method.message_count, ok.method.consumer_count

    async def close(self) -> bool:
        """Close the connection; returns whether the broker agreed, so that nothing is open."""
        if not self._over.done():
            self.is_open = False
            try:
                self._connection.close()
                await asyncio.wait_for(asyncio.shield(self._over), _CLOSE_TIMEOUT_S)
            except (AMQPError, TimeoutError):
                self._lose()
        return self._over.result()

    async def _watch(self) -> None:
        """Ask the node for a sign of life, on a channel that no queue can keep waiting."""
        with suppress(LinkLostError):
            probe = await self.call(
                lambda opened: self._connection.channel(on_open_callback=opened)
            )
            while True:
                answer = self.call(lambda done: probe.basic_qos(prefetch_count=1, callback=done))
                try:
                    await asyncio.wait_for(answer, _SILENCE_LIMIT_S)
                except TimeoutError:
                    self._lose()
                await asyncio.sleep(_PROBE_PAUSE_S)

    # -- what pika tells ---------------------------------------------------------------------------

    def _on_closed(self, _: object, reason: object) -> None:
        self._end(isinstance(reason, ConnectionClosedByClient))

    def _on_channel_closed(self, _: object, reason: object) -> None:
        if self.is_open:
            self._lose()

    def _lose(self) -> None:
        """Give the link up at once, without asking the node."""
        is_first = not self._over.done()
        self._end(False)
        if is_first and self._connection is not None and not self._connection.is_closed:
            # pika's own checks of heartbeats end a connection by this call; a public one that does
            # not wait for the node is missing.
            self._connection._terminate_stream(StreamLostError("given up"))

    def _end(self, is_clean: bool) -> None:
        self.is_open = False
        if not self._over.done():
            self._over.set_result(is_clean)
        if self._watching is not None:
            self._watching.cancel()
        for answer in self._calls:
            if not answer.done():
                answer.set_exception(LinkLostError(self._uri))


class Addresses:
    """The nodes of a client, asked in turn."""

    def __init__(self, uris: tuple[str, ...], first: int) -> None:
        self._uris = uris
        self._next = first

    async def connect(self) -> tuple[Link, str]:
        """A link to the next node that answers, with the host and port of the node."""
        while True:
            uri = self._uris[self._next % len(self._uris)]
            self._next += 1
            link = Link(uri)
            try:
                await link.open()
            except LinkLostError:
                await asyncio.sleep(PAUSE_S)
                continue
            except asyncio.CancelledError:
                await link.close()
                raise
            return link, uri.rpartition("@")[2].partition("/")[0]
