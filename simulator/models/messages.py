"""Messages and queues as the oracle knows them: contents, copies in queues, states of copies.

All times are in ms.
"""

from __future__ import annotations

import heapq
from typing import Final

# States of a copy. READY: in the queue, for anyone.
READY: Final = 0
# OUT: delivered to a client and not settled.
OUT: Final = 1
# SETTLED: acked, rejected, expired or purged; the copy moves to `gone` once that is durable.
SETTLED: Final = 2
# UNSURE: the copy may be there or not. It has expired, or it went to a consumer without
# acknowledgements whose connection was lost.
UNSURE: Final = 3
# HELD: reserved by a reader group.
HELD: Final = 4
# RESERVING: ready or reserved, since a reader group's reserve in this queue has no answer yet.
RESERVING: Final = 5

# The owner of a queue that is not exclusive.
NO_OWNER: Final = -1


class Violation(Exception):
    """The broker has broken a promise; `kind` is one word, equal for failures with one cause."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class Content:
    """A published message, which every copy must equal."""

    __slots__ = ("body", "number", "persistent", "properties")

    def __init__(self, number: int, properties: bytes, body: bytes, persistent: bool) -> None:
        self.number = number
        self.properties = properties
        self.body = body
        self.persistent = persistent


class Copy:
    """A message in one queue; `order` is its place in the model, `seq` its seq id in the broker."""

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
        # A reader group has made the copy durable, even if the message is transient.
        self.is_kept = False
        # The copy is transient, or its batch failed, and the queue had no reader group when it was
        # published. Paging may have moved it to the index as transient, and then a group that
        # reserves it cannot make it durable.
        self.is_early = not content.persistent and not queue.journals_all
        self.was_delivered = False
        # Number of the reader group that has reserved the copy, in state HELD; else -1.
        self.holder = -1

    def is_expired(self, now_ms: int) -> bool:
        """Whether the broker may have dropped the copy for its age."""
        return self.expiry_ms != 0 and self.expiry_ms <= now_ms

    def survives(self) -> bool:
        """Whether the copy is stored on disk at all."""
        return self.is_kept or (self.queue.durable and self.content.persistent)

    def may_survive(self) -> bool:
        """Whether the copy is on disk, or may be in the journal because of a reader group."""
        return self.survives() or self.queue.has_group


class QueueModel:
    """One incarnation of a queue; `id` is the broker's queue id."""

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
        # Field table of the declaration.
        self.arguments = arguments
        self.auto_delete = auto_delete
        # Connection number of the client that an exclusive queue belongs to.
        self.owner = owner
        # Time without use (ms) after which the broker deletes the queue; 0: never.
        self.expires_ms = expires_ms
        self.last_used_ms = 0
        # Number of consumers.
        self.consumers = 0
        # The queue had a consumer since the node started.
        self.had_consumer = False
        # The declaration is answered.
        self.is_declared = False
        # The binding to EXCHANGE that follows the declaration is answered.
        self.is_bound = False
        # The deletion is requested.
        self.is_deleting = False
        # The deletion is answered.
        self.is_deleted = False
        # A reader group was opened on the queue, so transient messages may survive a restart.
        self.has_group = False
        # A reader group has certainly been open since the last start, so every publish is
        # journaled.
        self.journals_all = False
        # Groups whose reserve has no answer yet: ready copies may be theirs.
        self.reservers: set[int] = set()
        # Groups whose reserve failed: ready copies may be theirs.
        self.failed_by: set[int] = set()
        # The deleted queue still had messages that nobody had settled.
        self.had_messages = False
        # The queue had ready messages, which neither expire nor may vanish, when it was deleted.
        self.had_waiting = False
        # Groups that had reserved messages, which neither expire nor may vanish, at the deletion.
        self.held_by: set[int] = set()
        # Copies that are not gone, by message number.
        self.copies: dict[int, Copy] = {}
        # Settled copies that must never return, by message number.
        self.gone: dict[int, Copy] = {}
        # Numbers of messages that a flipped bit may have removed.
        self.may_be_lost: set[int] = set()
        # Numbers of settled messages that a flipped bit may bring back.
        self.may_return: set[int] = set()
        # Numbers in `may_be_lost` that may be missing even without a restart.
        self.may_vanish: set[int] = set()
        # Place of the next copy in the queue.
        self.next_order = 0
        # Heap of (order, message number) of copies that were ready; some are not ready any more.
        self._ready: list[tuple[int, int]] = []

    def start(self, now_ms: int) -> None:
        """Begin the life of the queue in a node: without consumers, used at `now_ms`."""
        self.last_used_ms = now_ms
        self.consumers = 0
        self.had_consumer = False

    def is_unused(self, now_ms: int) -> bool:
        """Whether the queue was unused for `expires_ms`."""
        return (
            self.expires_ms != 0
            and self.consumers == 0
            and now_ms - self.last_used_ms >= self.expires_ms
        )

    def add(self, copy: Copy) -> None:
        """Add a copy that is ready, or may be reserved by a group."""
        copy.state = RESERVING if self.is_doubtful() else READY
        self.copies[copy.content.number] = copy
        heapq.heappush(self._ready, (copy.order, copy.content.number))

    def is_doubtful(self) -> bool:
        """Whether ready copies may be reserved by a reader group, as far as clients know."""
        return bool(self.reservers or self.failed_by)

    def first_ready(self, now_ms: int) -> Copy | None:
        """The ready copy that must be delivered next; expired copies become UNSURE."""
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
        """The number of copies in `state`."""
        return sum(copy.state == state for copy in self.copies.values())


def number_of(body: bytes) -> int:
    """The number of a message; -1 when the body is too short to have one."""
    return int.from_bytes(body[:4], "big") if len(body) >= 4 else -1


def body_of(number: int, size: int) -> bytes:
    """The body of message `number`, at least 4 bytes: the number, then bytes derived from it."""
    pattern = bytes((number * 7 + place * 13) & 255 for place in range(64))
    filler = pattern * ((size >> 6) + 1)
    return number.to_bytes(4, "big") + filler[: max(0, size - 4)]
