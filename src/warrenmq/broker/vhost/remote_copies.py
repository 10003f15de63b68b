"""Copies of messages on their way to queues of other nodes, until these have them for sure.

A message that is handed over (a dead letter, a delayed or a staged message) stays where it is until
its copies have arrived. A copy that the other node has not confirmed is sent again when that node
is up; it may be there twice then, and is never lost. Copies for queues of this node follow behind,
with the record of the hand-over (`handovers.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64, mypyc_attr

from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.remote_queue import RemoteQueue
from warrenmq.queues.remote_session import RemoteParty
from warrenmq.store.confirm_run import ConfirmRun, ConfirmWaiter
from warrenmq.store.message import Message

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


class _Copies(ConfirmWaiter):
    """The copies of one message that have not arrived; `waiter` None: nobody waits for them."""

    def __init__(
        self,
        copies: RemoteCopies,
        waiter: CopyWaiter | None,
        queues: list[RemoteQueue],
        message: Message,
        options: CopyOptions,
    ) -> None:
        self.waiter: CopyWaiter | None = waiter
        self._copies: RemoteCopies = copies
        # Queues that have to get a copy, again if they are here a second time.
        self._queues: list[RemoteQueue] = queues
        self._message: Message = message
        self._options: CopyOptions = options
        # The queues and parties of the copies that are on their way.
        self._sent: list[RemoteQueue] = []
        self._parties: list[RemoteParty] = []

    def send(self, now_ms: i64) -> None:
        """Send the copies that must be sent, as far as their nodes are up."""
        options = self._options
        run = ConfirmRun(self, 1, 0)
        left: list[RemoteQueue] = []
        for each in self._queues:
            # Its master may have moved since the last round.
            taker = each.current()
            if taker.is_deleted:
                continue
            is_taken = taker.publish(
                self._message,
                options.expiration_ms,
                now_ms,
                options.is_known,
                options.priority,
                options.may_refuse,
            )
            if not isinstance(taker, RemoteQueue):
                # This node's journal has the copy before the record that lets the message go.
                continue
            queue = taker
            party = queue.own_party() if is_taken else None
            if party is None:
                left.append(queue)
                continue
            self._sent.append(queue)
            self._parties.append(party)
            party.runs.append(run)
            run.parties_left += 1
        self._queues = left
        if run.parties_left == 0:
            self._end_round()

    def on_decided(self, run: ConfirmRun) -> None:
        for place in range(len(self._sent)):
            party = self._parties[place]
            if not party.is_done and not party.is_refused:
                self._queues.append(self._sent[place])
        self._sent = []
        self._parties = []
        self._end_round()

    def _end_round(self) -> None:
        if len(self._queues) == 0:
            self._copies.arrived(self)
        else:
            self._copies.delay(self)


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
        queues: list[RemoteQueue],
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


def remote_of(queues: list[MessageTaker]) -> list[RemoteQueue]:
    """Those of `queues` that live on other nodes."""
    return [queue for queue in queues if isinstance(queue, RemoteQueue)]


def local_of(queues: list[MessageTaker]) -> list[MessageTaker]:
    """Those of `queues` that live on this node."""
    return [queue for queue in queues if not isinstance(queue, RemoteQueue)]
