"""Copies of messages on their way to queues of other nodes, until these have them for sure.

A queue of this node with copies on others is one of them: its mirrors must have the message too.

A message that is handed over (a dead letter, a delayed or a staged message) stays where it is until
its copies have arrived. A copy that the other node has not confirmed is sent again when that node
is up; it may be there twice then, and is never lost. Copies for queues of this node follow behind,
with the record of the hand-over (`broker/vhost/handovers/handovers.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64, mypyc_attr

from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.queue import Queue
from warrenmq.queues.remote.queue import RemoteQueue
from warrenmq.queues.remote.session import RemoteParty
from warrenmq.store.journal.confirm_run import ConfirmParty, ConfirmRun, ConfirmWaiter
from warrenmq.store.model.message import Message

# Pause before copies are sent again (ms).
RETRY_MS: Final = 100


@mypyc_attr(allow_interpreted_subclasses=True)
class CopyWaiter:
    """Waits until all copies of a message are at their nodes."""

    def on_copied(self, now_ms: i64) -> None:
        """All copies have arrived, were refused, or belong to queues that are deleted."""
        raise RuntimeError("abstract")


class CopyOptions:
    """How copies are published; see `MessageTaker.publish`."""

    def __init__(
        self, expiration_ms: i64, priority: i64, is_known: bool = False, may_refuse: bool = True
    ) -> None:
        self.expiration_ms: i64 = expiration_ms
        self.priority: i64 = priority
        self.is_known: bool = is_known
        self.may_refuse: bool = may_refuse


class _Copy(ConfirmWaiter):
    """A copy of a message on its way to `queue`, whose `party` it is in."""

    def __init__(self, copies: _Copies, queue: MessageTaker, party: ConfirmParty) -> None:
        self._copies: _Copies = copies
        self._queue: MessageTaker = queue
        self._party: ConfirmParty = party

    def on_decided(self, run: ConfirmRun) -> None:
        party = self._party
        if not run.ok and not (isinstance(party, RemoteParty) and party.is_refused):
            self._copies.queues.append(self._queue)
        self._copies.end_one()


class _Copies:
    """The copies of one message that have not arrived; `waiter` None: nobody waits for them."""

    def __init__(
        self,
        copies: RemoteCopies,
        waiter: CopyWaiter | None,
        queues: list[MessageTaker],
        message: Message,
        options: CopyOptions,
    ) -> None:
        self.waiter: CopyWaiter | None = waiter
        # Queues that have to get a copy, again if they are here a second time.
        self.queues: list[MessageTaker] = queues
        self._copies: RemoteCopies = copies
        self._message: Message = message
        self._options: CopyOptions = options
        # Copies that are on their way.
        self._left: i64 = 0

    def send(self, now_ms: i64) -> None:
        """Send the copies that must be sent, as far as their queues take any."""
        options = self._options
        queues = self.queues
        self.queues = []
        self._left = 1
        for each in queues:
            # The master of a queue may have moved since the last round.
            queue = each.current()
            if queue.is_deleted:
                continue
            if not _is_open(queue):
                self.queues.append(queue)
                continue
            is_taken = queue.publish(
                self._message,
                options.expiration_ms,
                now_ms,
                options.is_known,
                options.priority,
                options.may_refuse,
            )
            party: ConfirmParty | None = None
            if isinstance(queue, RemoteQueue):
                party = queue.own_party() if is_taken else None
                if party is None:
                    self.queues.append(queue)
            elif is_taken:
                # None: the journal has the copy before the record that lets the message go.
                party = queue.confirm_party()
            if party is not None:
                self._left += 1
                party.runs.append(ConfirmRun(_Copy(self, queue, party), 1, 1))
        self.end_one()

    def end_one(self) -> None:
        """A copy has arrived, or must be sent again."""
        self._left -= 1
        if self._left > 0:
            return
        if len(self.queues) == 0:
            self._copies.arrived(self)
        else:
            self._copies.delay(self)


def _is_open(queue: MessageTaker) -> bool:
    """Whether a copy for a queue of this node may be confirmed; one for another node may be."""
    source = queue.confirm_source if isinstance(queue, Queue) else None
    return source is None or not source.refuses()


class RemoteCopies:
    """The copies of one vhost; calls `wake` for a turn when a waiter is to be called."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake: Callable[[], None] = wake
        # Copies that have to be sent again, and when.
        self._delayed: list[_Copies] = []
        self._retry_ms: i64 = 0
        self._arrived: list[_Copies] = []

    def send(
        self,
        waiter: CopyWaiter | None,
        queues: list[MessageTaker],
        message: Message,
        options: CopyOptions,
        now_ms: i64,
    ) -> None:
        """Send a copy of `message` to each of `queues`; `waiter` is called when all have it."""
        _Copies(self, waiter, queues, message, options).send(now_ms)

    def arrived(self, copies: _Copies) -> None:
        """Have the waiter called at the end of the turn."""
        if copies.waiter is not None:
            self._arrived.append(copies)
            self._wake()

    def delay(self, copies: _Copies) -> None:
        """Send copies again later."""
        self._delayed.append(copies)

    def is_due(self, now_ms: i64) -> bool:
        """Whether copies are to be sent again."""
        return len(self._delayed) > 0 and now_ms >= self._retry_ms

    def advance(self, now_ms: i64) -> None:
        """Call waiters, and send copies again that are due; called once a turn."""
        if self.is_due(now_ms):
            self._retry_ms = now_ms + RETRY_MS
            delayed = self._delayed
            self._delayed = []
            for copies in delayed:
                copies.send(now_ms)
        if len(self._arrived) > 0:
            arrived = self._arrived
            self._arrived = []
            for copies in arrived:
                waiter = copies.waiter
                if waiter is not None:
                    waiter.on_copied(now_ms)


def distant_of(queues: list[MessageTaker]) -> list[MessageTaker]:
    """The queues among `queues` that live on other nodes, or have copies there."""
    return [queue for queue in queues if is_distant(queue)]


def local_of(queues: list[MessageTaker]) -> list[MessageTaker]:
    """The queues among `queues` that live on this node alone."""
    return [queue for queue in queues if not is_distant(queue)]


def is_distant(queue: MessageTaker) -> bool:
    """Whether the journal of this node alone does not say when a message is safe in `queue`."""
    return isinstance(queue, RemoteQueue) or (
        isinstance(queue, Queue) and queue.confirm_source is not None
    )
