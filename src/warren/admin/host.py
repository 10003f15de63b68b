"""What an admin session needs of the node around it."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from warren.broker.metadata import Change
from warren.queues.queue import Queue
from warren.queues.reader_group import ReaderGroups


class Timer(Protocol):
    """asyncio.TimerHandle."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """The part of asyncio's event loop a session uses, and the wall clock."""

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> Timer: ...
    def call_soon(self, callback: Callable[[], object], /) -> object: ...
    def now_ms(self) -> int: ...


class LoopClock:
    """`Clock` on a running event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> Timer:
        """Once, after `delay_s` seconds."""
        return self._loop.call_later(delay_s, callback)

    def call_soon(self, callback: Callable[[], object], /) -> object:
        """Once, in the next turn of the loop."""
        return self._loop.call_soon(callback)

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000


class AdminVhost(Protocol):
    """One vhost."""

    @property
    def name(self) -> bytes: ...
    @property
    def queues(self) -> Mapping[bytes, Queue]: ...
    @property
    def reader_groups(self) -> ReaderGroups: ...

    def commit(self, changes: list[Change], done: Callable[[bool], None]) -> None:
        """Call `done(ok)` when `changes` of the metadata and everything journaled so far are durable."""

    def first_unacked_seq(self, queue: Queue, from_seq: int) -> int:
        """Lowest seq id >= `from_seq` of `queue` that some channel has unacked, -1 when there is none."""


class AdminHost(Protocol):
    """The node."""

    def log_in_admin(self, user: bytes, password: bytes, vhost: bytes, peer_host: str) -> AdminVhost | str:
        """The vhost, or why the login is refused, in one line that names no secret."""
