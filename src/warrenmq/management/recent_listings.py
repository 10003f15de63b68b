"""Listings with many rows, which serve the requests of a moment.

The node needs some 0.2 s for a listing of 10,000 queues. Its rows serve until the next tick of
statistics is due, as RabbitMQ's figures do, and for a multiple of the time that it took at least
(RabbitMQ's `management.db_cache_multiplier`), so that clients which ask again and again cost the
node a bounded share of its time. When objects have come or gone, they serve for that multiple only.
Short listings are made anew for each request, and so are all of them after a request that may have
changed something.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# A row, of any form.
_Row = TypeVar("_Row")

# A listing with so many rows is used again.
_MANY_ROWS: Final = 1000
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class _Recent:
    """The last rows of one listing; `lock`: somebody asks for it.

    They serve all requests until `fresh_until_s`, and those with the same stamp until `until_s`.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.rows: list[Any] = []
        self.stamp = 0
        self.fresh_until_s = 0.0
        self.until_s = 0.0

    def serves(self, stamp: int, now_s: float) -> bool:
        """Whether the rows serve a request with this stamp."""
        return now_s < (self.until_s if stamp == self.stamp else self.fresh_until_s)


class RecentListings:
    """Rows by what is listed and where, each for `multiplier` times as long as it took.

    While their stamp is the same, for `tick_s` at least; without a multiplier, never. Safe for
    threads. `clock_s` is a monotonic clock.
    """

    def __init__(
        self, multiplier: int, tick_s: float, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._multiplier = multiplier
        self._tick_s = tick_s
        self._clock_s = clock_s
        self._recent: dict[tuple[str, str], _Recent] = {}

    def rows(
        self, what: str, where: str, ask: Callable[[], list[_Row]], stamp: int = 0
    ) -> list[_Row]:
        """The rows of a listing: kept ones, or new ones from `ask`. Callers must not change them.

        `where`: the part of all such objects that is listed, by a name that tells it from others.
        `stamp`: a number from before the request that changes when an object comes or goes.
        Requests for a listing that is being made wait for it.
        """
        key = what, where
        recent = self._recent.setdefault(key, _Recent())
        with recent.lock:
            started_s = self._clock_s()
            if recent.serves(stamp, started_s):
                return recent.rows
            rows = ask()
            ended_s = self._clock_s()
            self._drop_old(ended_s)
            if len(rows) >= _MANY_ROWS and self._multiplier:
                age_s = self._multiplier * (ended_s - started_s)
                recent.rows = rows
                recent.stamp = stamp
                recent.fresh_until_s = ended_s + age_s
                recent.until_s = ended_s + max(self._tick_s, age_s)
            else:
                self._recent.pop(key, None)
            return rows

    def _drop_old(self, now_s: float) -> None:
        """Forget listings that serve nobody any more."""
        for key, each in list(self._recent.items()):
            if each.until_s < now_s and not each.lock.locked():
                self._recent.pop(key, None)

    def forget(self) -> None:
        """Make all listings anew; one that is being made serves only those who wait for it."""
        self._recent = {}


def recent(request: Request) -> RecentListings:
    """The listings of the application that answers the request."""
    listings: RecentListings = request.app.state.listings
    return listings


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
