"""Long listings serve for a while, and never beyond a change that was made over HTTP."""

import asyncio
import threading
import weakref
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from warrenmq.management.recent_listings import ForgetsListings, RecentListings

MANY = 1000


class Rows(list[list[Any]]):
    """Rows that tell whether somebody keeps them."""


class Node:
    """Lists `size` rows, which takes it two seconds of its clock."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.now_s = 100.0
        self.asked = 0

    def ask(self) -> list[list[Any]]:
        self.asked += 1
        self.now_s += 2
        return [[self.asked]] * self.size


@pytest.mark.parametrize(
    "size, multiplier, tick_s, asked",
    [(MANY, 5, 0, 2), (MANY, 1, 10, 2), (MANY, 0, 10, 3), (MANY - 1, 5, 10, 3)],
)
def test_a_long_listing_serves_for_a_tick_and_a_multiple_of_its_time(
    size: int, multiplier: int, tick_s: int, asked: int
) -> None:
    node = Node(size)
    listings = RecentListings(multiplier, tick_s, lambda: node.now_s)
    first = listings.rows("queues", "/", node.ask)
    node.now_s += 9.9
    second = listings.rows("queues", "/", node.ask)
    assert (second is first) == (asked == 2)
    node.now_s += 0.2
    assert listings.rows("queues", "/", node.ask)[0] == [asked]
    # Another vhost has another listing.
    assert listings.rows("queues", "other", node.ask)[0] == [asked + 1]


def test_a_long_listing_serves_no_longer_than_a_multiple_of_its_time_when_a_queue_has_come() -> (
    None
):
    node = Node(MANY)
    listings = RecentListings(2, 100, lambda: node.now_s)
    first = listings.rows("queues", "/", node.ask, stamp=7)
    node.now_s += 3.9
    assert listings.rows("queues", "/", node.ask, stamp=8) is first
    node.now_s += 0.2
    assert listings.rows("queues", "/", node.ask, stamp=7) is first
    second = listings.rows("queues", "/", node.ask, stamp=8)
    assert second[0] == [2]
    node.now_s += 50
    assert listings.rows("queues", "/", node.ask, stamp=8) is second


def test_a_listing_that_serves_nobody_any_more_is_dropped() -> None:
    node = Node(MANY)
    listings = RecentListings(1, 0, lambda: node.now_s)
    dropped = weakref.ref(listings.rows("queues", "by name", lambda: Rows(node.ask())))
    node.now_s += 100
    listings.rows("queues", "by length", node.ask)
    assert dropped() is None


def test_who_asks_meanwhile_waits_for_the_same_listing() -> None:
    node = Node(MANY)
    listings = RecentListings(5, 0, lambda: node.now_s)
    has_begun = threading.Event()
    may_end = threading.Event()
    found: list[object] = []

    def slow() -> list[list[Any]]:
        has_begun.set()
        assert may_end.wait(30)
        return node.ask()

    def ask() -> None:
        found.append(listings.rows("queues", "/", slow))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert has_begun.wait(30)
    may_end.set()
    for thread in threads:
        thread.join()
    assert node.asked == 1 and found == [found[0]] * 3


@pytest.mark.parametrize("method, asked", [("GET", 1), ("HEAD", 1), ("PUT", 2), ("DELETE", 2)])
def test_a_change_makes_listings_anew(method: str, asked: int) -> None:
    node = Node(MANY)
    listings = RecentListings(5, 0, lambda: node.now_s)
    listings.rows("queues", "/", node.ask)

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(_message: Message) -> None:
        # The client has the reply, and may ask.
        listings.rows("queues", "/", node.ask)

    scope = {"type": "http", "method": method}
    asyncio.run(ForgetsListings(app, listings)(scope, receive, send))
    assert node.asked == asked


def test_a_listing_from_before_a_change_is_not_used_after_it() -> None:
    node = Node(MANY)
    listings = RecentListings(5, 0, lambda: node.now_s)

    def ask_meanwhile() -> list[list[Any]]:
        rows = node.ask()
        listings.forget()
        return rows

    listings.rows("queues", "/", ask_meanwhile)
    assert listings.rows("queues", "/", node.ask)[0] == [2]
