"""Listings with many rows, which serve the requests of a moment.

The node needs some 0.2 s for a listing of 10,000 queues. Its rows serve until the next tick of
statistics is due, as RabbitMQ's figures do, and for a multiple of the time that it took at least
(RabbitMQ's `management.db_cache_multiplier`), so that clients which ask again and again cost the
node a bounded share of its time. Short listings are made anew for each request, and so are all of
them after a request that may have changed something.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

Rows = list[list[Any]]

# A listing with so many rows is used again.
_MANY_ROWS: Final = 1000
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class _Recent:
    """The last rows of one listing, for requests until `until_s`; `lock`: somebody asks for it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.rows: Rows = []
        self.until_s = 0.0


class RecentListings:
    """Rows by the key of their listing, each for `multiplier` times as long as it took.

    But for `tick_s` at least; without a multiplier, never. Safe for threads. `clock_s` is a
    monotonic clock.
    """

    def __init__(
        self, multiplier: int, tick_s: float, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._multiplier = multiplier
        self._tick_s = tick_s
        self._clock_s = clock_s
        self._recent: dict[str, _Recent] = {}

    def rows(self, key: str, ask: Callable[[], Rows]) -> Rows:
        """The rows of a listing, from a moment ago or from `ask`; nobody may change them.

        Requests for a listing that is being made wait for it.
        """
        recent = self._recent.setdefault(key, _Recent())
        with recent.lock:
            started_s = self._clock_s()
            if started_s < recent.until_s:
                return recent.rows
            rows = ask()
            ended_s = self._clock_s()
            if len(rows) >= _MANY_ROWS and self._multiplier:
                recent.rows = rows
                age_s = max(self._tick_s, self._multiplier * (ended_s - started_s))
                recent.until_s = ended_s + age_s
            else:
                self._recent.pop(key, None)
            return rows

    def forget(self) -> None:
        """Make all listings anew; one that is being made serves only those who wait for it."""
        self._recent = {}


class ForgetsListings:
    """Middleware: after a request that may change something, all listings are made anew."""

    def __init__(self, app: ASGIApp, listings: RecentListings) -> None:
        self._app = app
        self._listings = listings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Carry out one request."""
        if scope["type"] != "http" or scope["method"] in _READING:
            await self._app(scope, receive, send)
            return

        async def send_and_forget(message: Message) -> None:
            self._listings.forget()
            await send(message)

        await self._app(scope, receive, send_and_forget)
