"""A consumer of this node's client at a queue of another node, and the credit that it gives.

A consumer has credit at its queue: so many messages, and bytes, may come unasked. There are two
ways to give it.

Window. The consumer's own prefetch, if it has one, less what it has unacked; at most
WINDOW_MESSAGES and WINDOW_BYTES. Credit, deferred messages and unacked messages together never
exceed the prefetch. A message that comes while the channel or its socket has no room is deferred.
If it is deferred for two ticks, it returns to the queue, where another consumer may get it: it
counts as never delivered.

Asking. Where the consumers of a channel share one prefetch (`Consumer.shares_room`), messages that
came unasked could exceed it. The consumer therefore has no credit while nothing is there for it.
The other node reports a message (READY); then the consumer, when its turn comes, reserves room in
its channel and asks for as many messages. What was asked for comes, or the reservation ends
(UNUSED).

The client of a no-ack consumer has no way to return a message, and its queue has forgotten the
message. So what comes for it is deferred until there is room, and is lost if the client goes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from warrenmq.queues.entry import Consumer, WaitingPlace
from warrenmq.queues.remote.session import (
    RemoteEntry,
    RemoteSession,
    SessionConsumer,
    SessionQueue,
)

WINDOW_MESSAGES: Final = 1024
WINDOW_BYTES: Final = 524288


class RemotePlace(WaitingPlace):
    """The place of a queue's consumers here: they wait for messages from the queue's node.

    `on_waiting` is called when a consumer waits until it is subscribed again.
    """

    def __init__(self, on_waiting: Callable[[], None]) -> None:
        self.receivers: dict[Consumer, RemoteConsumer] = {}
        # Consumers that outlive the loss of the queue's node, with how often they were refused
        # since then; see `RemoteQueue.keep_consumers`.
        self.waiting: dict[Consumer, int] = {}
        self.keeps: bool = False
        self._on_waiting: Callable[[], None] = on_waiting
        # Messages that these consumers have no room for.
        self.deferred_count: i64 = 0

    def remove(self, consumer: Consumer) -> None:
        consumer.waits_in = None

    def wait(self, consumer: Consumer, refusals: int) -> None:
        """Let a consumer wait that waits nowhere else, and was refused so many times already."""
        consumer.waits_in = self
        self.waiting[consumer] = refusals
        self._on_waiting()

    def forget(self, consumer: Consumer) -> None:
        """Forget a waiting consumer, which is cancelled."""
        self.waiting.pop(consumer, None)
        consumer.is_cancelled = True
        consumer.stop_waiting()

    def serve(self) -> None:
        """Hand over deferred messages to consumers with room."""
        for receiver in list(self.receivers.values()):
            receiver.serve()


class RemoteConsumer(SessionConsumer):
    """`consumer` at a queue on the other end of `session`; it waits at `place`."""

    def __init__(
        self,
        session: RemoteSession,
        queue: SessionQueue,
        consumer: Consumer,
        place: RemotePlace,
    ) -> None:
        super().__init__(session.next_number(), queue)
        self.consumer: Consumer = consumer
        place.receivers[consumer] = self
        # The client has asked to cancel the consumer, and still gets what is on its way.
        self.is_leaving: bool = False
        # The client has not got its consume-ok.
        self.is_new: bool = False
        # The consumer gets nothing more from here, whether it is cancelled or moves.
        self.is_over: bool = False
        # Messages that the channel had no room for, oldest first.
        self.deferred: deque[RemoteEntry] = deque()
        self._session: RemoteSession = session
        self._place: RemotePlace = place
        # Credit that was given and is not used, in messages and bytes.
        self._credit: i64 = 0
        self._credit_bytes: i64 = 0
        # Messages that were asked for, for which the channel keeps room; part of `_credit`.
        self._asked: i64 = 0
        # The part of `_asked` for which the credit is not written yet.
        self._to_ask: i64 = 0
        # A message is there that the consumer has no credit for.
        self._is_ready: bool = False
        # `deferred` was not empty at the last tick.
        self._was_deferring: bool = False

    # -- credit ------------------------------------------------------------------------------------

    def first_credit(self) -> i64:
        """The messages that may come at once; notes them as credit, with WINDOW_BYTES."""
        self.consumer.waits_in = self._place
        self._credit = self._wanted()
        self._credit_bytes = WINDOW_BYTES
        return self._credit

    def expect_credit(self) -> None:
        """Have the credit raised soon: a message has left the consumer."""
        if not self.is_listed:
            self._session.list_due(self)

    def raise_credit(self) -> None:
        if self.is_leaving or self.is_over or self.consumer.is_cancelled:
            return
        messages = self._wanted()
        size = self._wanted_bytes()
        if messages > 0 or (size > 0 and self._credit > 0):
            self._credit += messages
            self._credit_bytes += size
            self._session.give_credit(self, False, messages, size)

    def write_asked(self) -> None:
        asked = self._to_ask
        self._to_ask = 0
        if asked > 0:
            size = self._wanted_bytes()
            self._credit_bytes += size
            self._session.give_credit(self, True, asked, size)

    def _wanted_bytes(self) -> i64:
        if self._credit_bytes * 2 <= WINDOW_BYTES:
            return WINDOW_BYTES - self._credit_bytes
        return 0

    def _wanted(self) -> i64:
        """The messages by which the window may grow now."""
        consumer = self.consumer
        if len(self.deferred) > 0 or consumer.waits_in is not self._place or consumer.shares_room():
            return 0
        wanted: i64 = WINDOW_MESSAGES - self._credit
        if consumer.prefetch_count != 0 and not consumer.no_ack:
            return min(wanted, consumer.prefetch_count - consumer.unacked_count - self._credit)
        # Raise the credit in large steps: each message of a long queue would raise it otherwise.
        return wanted if wanted * 2 >= WINDOW_MESSAGES else 0

    def come_back(self) -> None:
        """Wait for messages again: the consumer has room."""
        consumer = self.consumer
        consumer.waits_in = self._place
        if not consumer.shares_room():
            self.expect_credit()
        elif self._is_ready and len(self.deferred) == 0:
            self._ask()

    def _ask(self) -> None:
        """Reserve room for messages, and ask for them."""
        consumer = self.consumer
        count: i64 = WINDOW_MESSAGES - self._credit
        if consumer.prefetch_count != 0 and not consumer.no_ack:
            count = min(count, consumer.prefetch_count - consumer.unacked_count - self._credit)
        count = consumer.reserve(count)
        if count <= 0:
            self._wait()
        else:
            self._is_ready = False
            self._asked += count
            self._credit += count
            if self._to_ask == 0:
                self._session.list_asking(self)
            self._to_ask += count

    def _end_asking(self, count: i64) -> None:
        self._asked -= count
        self.consumer.release(count)

    # -- events ------------------------------------------------------------------------------------

    def take(self, entry: RemoteEntry, now_ms: i64) -> None:
        consumer = self.consumer
        self._credit -= 1
        self._credit_bytes -= entry.content_bytes
        if self._asked > 0:
            self._end_asking(1)
        if consumer.is_cancelled or self.is_over:
            if not consumer.no_ack:
                self._session.give_back(self.queue, [entry], True)
            elif not consumer.is_cancelled:
                consumer.deliver(entry)
            return
        if len(self.deferred) == 0 and consumer.can_take():
            self._hand_over(entry)
            if consumer.no_ack and consumer.shares_room():
                consumer.serve_others(now_ms)
        else:
            self.deferred.append(entry)
            self._place.deferred_count += 1
            self._wait()

    def on_ready(self, now_ms: i64) -> None:
        consumer = self.consumer
        self._is_ready = True
        if consumer.is_cancelled or self.is_over or consumer.waits_in is not self._place:
            return
        if consumer.shares_room():
            self._wait()
        else:
            self.expect_credit()

    def serve_room(self, now_ms: i64) -> None:
        self.consumer.serve_others(now_ms)

    def on_unused(self, messages: i64, now_ms: i64) -> None:
        self._credit -= messages
        unused = min(messages, self._asked - self._to_ask)
        if unused > 0:
            self._end_asking(unused)
            self.consumer.serve_others(now_ms)

    def on_gone(self, now_ms: i64) -> None:
        consumer = self.consumer
        if self.is_leaving or self.is_over or consumer.is_cancelled:
            return
        if self._place.keeps:
            self.move(now_ms)
        else:
            self.stop(now_ms)
            consumer.on_queue_deleted()

    # -- deferred messages -------------------------------------------------------------------------

    def serve(self) -> None:
        """Hand over deferred messages while the consumer has room."""
        deferred = self.deferred
        while len(deferred) > 0 and self.consumer.can_take():
            self._place.deferred_count -= 1
            self._hand_over(deferred.popleft())
        consumer = self.consumer
        if len(deferred) > 0 and consumer.waits_in is self._place:
            # The messages are here, so what is missing may be room in the output as well.
            consumer.waits_in = None
            consumer.wait_for_room()

    def look_after(self) -> None:
        if len(self.deferred) == 0 or not self._was_deferring:
            self._was_deferring = len(self.deferred) > 0
        elif not self.consumer.no_ack:
            self._was_deferring = False
            self._is_ready = True
            self._return_deferred()

    def _hand_over(self, entry: RemoteEntry) -> None:
        consumer = self.consumer
        if not consumer.no_ack:
            consumer.unacked_count += 1
            entry.consumer = consumer
        consumer.deliver(entry)
        if not self.is_listed:
            self._session.list_due(self)

    def _wait(self) -> None:
        consumer = self.consumer
        if consumer.waits_in is self._place:
            consumer.waits_in = None
            if consumer.shares_room():
                consumer.wait_in_turn()
            else:
                consumer.wait_for_room()

    def _return_deferred(self) -> None:
        entries = list(self.deferred)
        self.deferred.clear()
        self._place.deferred_count -= len(entries)
        if len(entries) > 0 and not self.consumer.no_ack:
            self._session.give_back(self.queue, entries, True)

    # -- end ---------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Cancel the consumer at its queue; what is on its way still goes to the client."""
        self.is_leaving = True
        self._session.cancel(self)

    def finish(self, now_ms: i64) -> None:
        """End a consumer that has left, and whose last message has come."""
        consumer = self.consumer
        if consumer.no_ack:
            self._hand_over_all()
        self.stop(now_ms)

    def _hand_over_all(self) -> None:
        """Send what the queue has forgotten, with room or without: it goes out before the end."""
        while len(self.deferred) > 0:
            self._place.deferred_count -= 1
            self._hand_over(self.deferred.popleft())

    def stop(self, now_ms: i64) -> None:
        """Give the consumer no more messages."""
        self.consumer.is_cancelled = True
        self._end(now_ms)

    def move(self, now_ms: i64) -> None:
        """Let the consumer wait until it is subscribed again, unless it does not want to."""
        consumer = self.consumer
        self.pause(now_ms, 0)
        if not consumer.on_queue_moved():
            self._place.forget(consumer)

    def pause(self, now_ms: i64, refusals: int) -> None:
        """Let the consumer wait, which was refused so many times already."""
        consumer = self.consumer
        if consumer.no_ack:
            self._hand_over_all()
        self._end(now_ms)
        self._place.wait(consumer, refusals)

    def _end(self, now_ms: i64) -> None:
        consumer = self.consumer
        self.is_over = True
        consumer.stop_waiting()
        self._place.receivers.pop(consumer, None)
        self._return_deferred()
        self._to_ask = 0
        if self._asked > 0:
            self._end_asking(self._asked)
            consumer.serve_others(now_ms)
