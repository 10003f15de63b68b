"""What the oracle knows of messages and queues: contents, their copies in queues, and where each copy is.

All times in ms.
"""

from __future__ import annotations

import heapq
from typing import Final

READY: Final = 0
OUT: Final = 1
# Settled by a client, an expiry or a purge; `gone` once that is durable.
SETTLED: Final = 2
# Nobody can know: its time is over, or it went to a consumer without acknowledgements whose connection was gone.
UNSURE: Final = 3
# A reader group has it; a reader group has asked for messages of the queue and has no answer yet.
HELD: Final = 4
RESERVING: Final = 5

# The owner of a queue that is not exclusive.
NO_OWNER: Final = -1


class Violation(Exception):
    """The broker has broken a promise. `kind` is one word, equal for failures with one cause."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class Content:
    """A published message: what every copy of it must look like."""

    __slots__ = ("body", "number", "persistent", "properties")

    def __init__(self, number: int, properties: bytes, body: bytes, persistent: bool) -> None:
        self.number = number
        self.properties = properties
        self.body = body
        self.persistent = persistent


class Copy:
    """A message in one queue. `order` is its place in it, `seq` what the broker calls that place."""

    __slots__ = (
        "content", "expiry_ms", "holder", "is_early", "is_kept", "is_must", "order", "queue", "seq", "state", "was_delivered",
    )  # fmt: skip

    def __init__(
        self, content: Content, queue: QueueModel, order: int, seq: int, expiry_ms: int
    ) -> None:
        self.content = content
        self.queue = queue
        self.order = order
        self.seq = seq
        self.expiry_ms = expiry_ms
        self.state = READY
        self.is_must = False
        # A reader group made it durable, whatever its publisher wanted.
        self.is_kept = False
        # Transient, or its batch failed, before its queue had a reader group: paging may have moved it to the index as
        # such, and then a group that holds it cannot make it durable.
        self.is_early = not content.persistent and not queue.journals_all
        self.was_delivered = False
        # When it is held, the number of the reader group.
        self.holder = -1

    def is_expired(self, now_ms: int) -> bool:
        """May the broker drop it by now?"""
        return self.expiry_ms != 0 and self.expiry_ms <= now_ms

    def survives(self) -> bool:
        """Has it a place on disk at all?"""
        return self.is_kept or (self.queue.durable and self.content.persistent)

    def may_survive(self) -> bool:
        """The same, or is it in the journal for the sake of a reader group?"""
        return self.survives() or self.queue.has_group


class QueueModel:
    """One incarnation of a queue; `id` is the broker's."""

    def __init__(
        self,
        queue_id: int,
        name: str,
        durable: bool,
        ttl_ms: int,
        arguments: bytes = b"",
        auto_delete: bool = False,
        owner: int = NO_OWNER,
        expires_ms: int = 0,
    ) -> None:
        self.id = queue_id
        self.name = name
        self.durable = durable
        self.ttl_ms = ttl_ms
        # The field table of its declaration.
        self.arguments = arguments
        self.auto_delete = auto_delete
        # The client's connection that it is exclusive to.
        self.owner = owner
        # Unused for so long, it goes; 0: never.
        self.expires_ms = expires_ms
        self.last_used_ms = 0
        # Consumers now, and whether there were any since the node was started.
        self.consumers = 0
        self.had_consumer = False
        # Declared and bound, with an answer; deleted without an answer so far, and with one.
        self.is_declared = False
        self.is_bound = False
        self.is_deleting = False
        self.is_deleted = False
        # A reader group was opened on it: transient messages may outlive a restart.
        self.has_group = False
        # One is open since the last start, for certain: what is published now is journaled.
        self.journals_all = False
        # Reader groups that have asked for messages and have no answer yet, or an error: what is ready may be theirs.
        self.reservers: set[int] = set()
        self.failed_by: set[int] = set()
        # When it was deleted: had it messages at all, and some that nobody had; and which reader groups held some.
        self.had_messages = False
        self.had_waiting = False
        self.held_by: set[int] = set()
        # Every copy that is not gone, by number; the numbers of those and the copies that must never be seen again.
        self.copies: dict[int, Copy] = {}
        self.gone: dict[int, Copy] = {}
        # What a flipped bit may have taken away, or brought back.
        self.may_be_lost: set[int] = set()
        self.may_return: set[int] = set()
        # Of the former, what may be found missing without a restart.
        self.may_vanish: set[int] = set()
        self.next_order = 0
        self._ready: list[tuple[int, int]] = []

    def start(self, now_ms: int) -> None:
        """It was declared, or a node that has it was started: nobody consumes it."""
        self.last_used_ms = now_ms
        self.consumers = 0
        self.had_consumer = False

    def is_unused(self, now_ms: int) -> bool:
        """Is its `expires_ms` over?"""
        return (
            self.expires_ms != 0
            and self.consumers == 0
            and now_ms - self.last_used_ms >= self.expires_ms
        )

    def add(self, copy: Copy) -> None:
        """A copy is ready."""
        copy.state = RESERVING if self.is_doubtful() else READY
        self.copies[copy.content.number] = copy
        heapq.heappush(self._ready, (copy.order, copy.content.number))

    def is_doubtful(self) -> bool:
        """May reader groups have what is ready, for all that is known?"""
        return bool(self.reservers or self.failed_by)

    def first_ready(self, now_ms: int) -> Copy | None:
        """The ready copy that must be next; expired ones step aside."""
        ready = self._ready
        while ready:
            copy = self.copies.get(ready[0][1])
            if copy is not None and copy.state == READY and copy.order == ready[0][0]:
                if not copy.is_expired(now_ms) and copy.content.number not in self.may_vanish:
                    return copy
                copy.state = UNSURE
            heapq.heappop(ready)
        return None

    def count(self, state: int) -> int:
        """Copies in that state."""
        return sum(copy.state == state for copy in self.copies.values())


def number_of(body: bytes) -> int:
    """The number of a message; -1 when the body is too short to have one."""
    return int.from_bytes(body[:4], "big") if len(body) >= 4 else -1


def body_of(number: int, size: int) -> bytes:
    """The body of message `number` with at least four bytes: the number, then bytes that follow from it."""
    pattern = bytes((number * 7 + place * 13) & 255 for place in range(64))
    filler = pattern * ((size >> 6) + 1)
    return number.to_bytes(4, "big") + filler[: max(0, size - 4)]
