"""A queue that lives on another node, as the clients of this node use it.

It stands in for the queue as a destination of bindings, and passes publishes, settles and returns
on to the queue's node (`session.py`). The other node has the messages and decides who gets
them; what it delivers are entries here as well, so that the unacked messages of a channel are the
same for all kinds of queues.

While the queue's node is down, publishes are refused, which is a nack where confirms are on (F8).

A queue with copies on other nodes gets a new master when its node is lost, and another object then
stands for it here (`MessageTaker.replaced_by`). Its consumers wait for that (`keep_consumers`), and
messages that the old node delivered are settled at the new one (`settle_stale`).
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.queues.definition import QueueDefinition
from warrenmq.queues.entry import Consumer, Entry, QueueEnd
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.remote import link_records
from warrenmq.queues.remote.consumer import WINDOW_BYTES, RemoteConsumer, RemotePlace
from warrenmq.queues.remote.node import RemoteNode
from warrenmq.queues.remote.session import (
    CallAnswer,
    RemoteEntry,
    RemoteLedger,
    RemoteParty,
    RemoteSession,
    SessionCall,
    SessionQueue,
)
from warrenmq.queues.settings import DROP_HEAD, DeadLetterRule, QueueSettings
from warrenmq.store.journal.confirm_run import ConfirmParty
from warrenmq.store.model.message import Message
from warrenmq.wire.errors import NOT_FOUND

# Bytes of publishes on their way to one queue above which its publishers have to wait.
UNAPPLIED_BYTES_MAX: Final = 8 * 1024 * 1024
# How often a consumer is refused at a new master before it is cancelled: another one, which will
# go too, may have exclusive access for a moment.
REFUSALS_MAX: Final = 20


class _Attached(SessionQueue):
    """`queue` in one session."""

    def __init__(self, number: i64, queue: RemoteQueue) -> None:
        super().__init__(number)
        self._queue: RemoteQueue = queue

    def end(self) -> QueueEnd:
        return self._queue

    def on_session_over(self, now_ms: i64) -> None:
        self._queue.on_session_over()


class StaleSettle:
    """A message of `level` that an earlier master delivered in `epoch`; it leaves for `reason`."""

    def __init__(self, level: i64, seq: i64, epoch: i64, reason: i64) -> None:
        self.level: i64 = level
        self.seq: i64 = seq
        self.epoch: i64 = epoch
        self.reason: i64 = reason


class RemoteQueue(MessageTaker):
    """The queue of `definition` in the vhost `vhost`, which lives on `home`.

    `epoch`: the number of the decision that made `home` its master; 0: there was none.
    """

    def __init__(
        self, definition: QueueDefinition, vhost: bytes, home: RemoteNode, epoch: i64 = 0
    ) -> None:
        super().__init__(definition)
        self.vhost: bytes = vhost
        self.home: RemoteNode = home
        self.epoch: i64 = epoch
        # Publishes that no client was told about although they are lost: nobody asked for confirms.
        self.dropped_count: i64 = 0
        self._is_deleted: bool = False
        self._place: RemotePlace = RemotePlace(self._expect_home)
        # The queue in the current session, None until it is used there.
        self._attached: _Attached | None = None
        self._session: RemoteSession | None = None
        # Messages that clients have settled since their deliverer is gone, until a master is there.
        self._late: list[StaleSettle] = []

    @property
    def is_deleted(self) -> bool:
        return self._is_deleted

    def attach(self) -> SessionQueue | None:
        """The queue in the session with its node, None while the node is down."""
        attached = self._attached
        if attached is None:
            session = self.home.session
            if session is None or self._is_deleted:
                return None
            attached = _Attached(session.next_number(), self)
            session.open_queue(attached, self.definition.birth, self.vhost, self.name)
            self._attached = attached
            self._session = session
            for late in self.take_late():
                session.settle_stale(attached, late.level, late.seq, late.epoch, late.reason)
        return attached

    def on_session_over(self) -> None:
        """Forget the session, and everything that it has delivered."""
        self._attached = None
        self._session = None

    def apply(self, settings: QueueSettings) -> None:
        self.settings = settings

    # -- publishes ---------------------------------------------------------------------------------

    def publish(
        self,
        message: Message,
        expiration_ms: i64,
        now_ms: i64,
        is_known: bool = False,
        priority: i64 = 0,
        may_refuse: bool = True,
    ) -> bool:
        attached = self.attach()
        session = self._session
        if attached is None or session is None:
            self.dropped_count += 1
            return False
        session.publish(attached, message, expiration_ms, is_known, priority, may_refuse)
        return True

    def confirm_party(self, is_for_last: bool = False) -> ConfirmParty | None:
        limit = self.settings.limit
        return self._party(limit is not None and limit.overflow != DROP_HEAD, is_for_last)

    def own_party(self) -> RemoteParty | None:
        """The party of the last publish alone; None if the queue's node is down."""
        return self._party(True, True)

    def _party(self, is_alone: bool, is_for_last: bool) -> RemoteParty | None:
        attached = self.attach()
        session = self._session
        if attached is None or session is None:
            return None
        return session.party(attached, is_alone, is_for_last)

    def is_full_for(self, message: Message) -> bool:
        return False

    def refused_rule(self) -> DeadLetterRule | None:
        return None

    def is_behind(self, now_ms: i64) -> bool:
        return False

    def has_room(self) -> bool:
        attached = self._attached
        return attached is None or attached.unapplied_bytes <= UNAPPLIED_BYTES_MAX

    def is_drained(self) -> bool:
        attached = self._attached
        return attached is None or attached.unapplied_bytes * 2 <= UNAPPLIED_BYTES_MAX

    # -- unacked messages --------------------------------------------------------------------------

    def leave(self, entry: Entry, reason: i64, now_ms: i64) -> None:
        assert isinstance(entry, RemoteEntry)
        session = self._session
        ledger = entry.ledger
        assert isinstance(ledger, RemoteLedger)
        if session is not None and ledger.source is self._attached:
            session.settle(ledger, entry.seq, reason)
            receiver = entry.receiver
            if receiver is not None and not receiver.is_listed:
                session.list_due(receiver)
        else:
            self._leave_late(entry, ledger.queue_id, reason, now_ms)

    def _leave_late(self, entry: Entry, level: i64, reason: i64, now_ms: i64) -> None:
        """Settle a message whose deliverer has taken it back: the link is lost, or it has moved."""
        taker = self.current()
        if taker is not self or self.keeps_consumers:
            taker.settle_stale(level, entry.seq, self.epoch, reason, now_ms)
        if entry.consumer is not None:
            taker.on_stale_freed(entry.consumer)

    def settle_stale(self, level: i64, seq: i64, epoch: i64, reason: i64, now_ms: i64) -> None:
        attached = self.attach()
        session = self._session
        if attached is not None and session is not None:
            session.settle_stale(attached, level, seq, epoch, reason)
        elif not self._is_deleted:
            self._late.append(StaleSettle(level, seq, epoch, reason))

    def take_late(self) -> list[StaleSettle]:
        """Remove and return what has to be settled at the next master."""
        late = self._late
        if len(late) > 0:
            self._late = []
        return late

    def on_stale_freed(self, consumer: Consumer) -> None:
        receiver = self._place.receivers.get(consumer)
        if receiver is not None:
            receiver.expect_credit()

    def requeue(self, entries: list[Entry], now_ms: i64) -> None:
        self.give_back(entries, False)

    def give_back(self, entries: list[Entry], is_unseen: bool) -> None:
        """Return unacked messages to their places; `is_unseen`: no client has had them."""
        attached = self._attached
        session = self._session
        taker = self.current()
        own: list[RemoteEntry] = []
        for entry in entries:
            ledger = entry.ledger
            assert isinstance(entry, RemoteEntry) and isinstance(ledger, RemoteLedger)
            if ledger.source is attached:
                own.append(entry)
                receiver = entry.receiver
                if receiver is not None and session is not None:
                    session.list_due(receiver)
            elif entry.consumer is not None:
                taker.on_stale_freed(entry.consumer)
        if attached is not None and session is not None:
            session.give_back(attached, own, is_unseen)

    def return_count(self, entry: Entry) -> i64:
        return entry.return_count if isinstance(entry, RemoteEntry) else 0

    # -- consumers ---------------------------------------------------------------------------------

    def consume(self, consumer: Consumer, call: SessionCall) -> RemoteConsumer | None:
        """Ask the queue's node to accept `consumer`; None if it is down.

        Messages may come right behind the answer. If the answer is an error, call `drop`.
        """
        attached = self.attach()
        session = self._session
        if attached is None or session is None:
            return None
        receiver = self._consume(session, attached, consumer, call)
        receiver.is_new = True
        return receiver

    def _consume(
        self,
        session: RemoteSession,
        attached: SessionQueue,
        consumer: Consumer,
        call: SessionCall,
    ) -> RemoteConsumer:
        receiver = RemoteConsumer(session, attached, consumer, self._place)
        session.consumers[receiver.number] = receiver
        call.queue = attached
        session.call(call, link_records.CALL_CONSUME)
        flags: i64 = link_records.NO_ACK if consumer.no_ack else 0
        if consumer.exclusive:
            flags |= link_records.EXCLUSIVE
        link_records.write_consumer(
            session.out,
            receiver.number,
            flags,
            consumer.priority,
            consumer.prefetch_count,
            consumer.tag,
            receiver.first_credit(),
            WINDOW_BYTES,
        )
        return receiver

    def drop(self, receiver: RemoteConsumer, now_ms: i64) -> None:
        """Forget a consumer that the queue's node has refused."""
        receiver.stop(now_ms)
        if self._session is not None:
            self._session.consumers.pop(receiver.number, None)

    def leave_consumer(self, consumer: Consumer, call: SessionCall) -> RemoteConsumer | None:
        """Cancel `consumer`; `call` is answered when the last message has come for it.

        None if it is gone already, as is its queue or the link.
        """
        receiver = self._place.receivers.get(consumer)
        if receiver is None or self._session is None:
            return None
        receiver.leave()
        self.call(call, link_records.CALL_SYNC)
        return receiver

    def remove_consumer(self, consumer: Consumer, now_ms: i64) -> bool:
        receiver = self._place.receivers.get(consumer)
        if receiver is not None:
            if self._session is not None:
                self._session.cancel(receiver)
            receiver.stop(now_ms)
        else:
            self._place.forget(consumer)
        return False

    def consumer_can_take(self, consumer: Consumer) -> None:
        receiver = self._place.receivers.get(consumer)
        if receiver is not None and consumer.waits_in is None and not consumer.is_cancelled:
            receiver.come_back()

    def deliver_ready(self, now_ms: i64) -> None:
        if self._place.deferred_count > 0:
            self._place.serve()
        elif self.replaced_by is not None:
            # A client has settled a message that was delivered before.
            self.current().deliver_ready(now_ms)

    # -- a master that moves -----------------------------------------------------------------------

    @property
    def keeps_consumers(self) -> bool:
        """Whether consumers outlive the loss of the queue's node: another one may become master."""
        return self._place.keeps

    def keep_consumers(self, keeps: bool = True) -> None:
        """Let consumers wait when the queue's node is lost, until a master is there again."""
        self._place.keeps = keeps

    def take_over(self, consumer: Consumer) -> None:
        """Let a consumer, which waits nowhere, wait until the master accepts it (`subscribe`)."""
        self._place.wait(consumer, 0)

    def _expect_home(self) -> None:
        self.home.waiters[self] = self.subscribe

    def subscribe(self) -> None:
        """Ask the master to accept the waiting consumers; if it is down, when it is up."""
        waiting = self._place.waiting
        if len(waiting) == 0:
            self.home.waiters.pop(self, None)
            return
        attached = self.attach()
        session = self._session
        if attached is None or session is None:
            return
        self.home.waiters.pop(self, None)
        self._place.waiting = {}
        for consumer, refusals in waiting.items():
            consumer.stop_waiting()
            call = _Subscription(self, refusals)
            call.receiver = self._consume(session, attached, consumer, call)

    def on_subscription_refused(
        self, receiver: RemoteConsumer, code: i64, refusals: int, now_ms: i64
    ) -> None:
        """Try again to subscribe a consumer, or cancel it: the master has refused it once more."""
        if self._session is not None:
            self._session.consumers.pop(receiver.number, None)
        if receiver.is_over or receiver.is_leaving:
            return
        if code != link_records.MOVED and code != NOT_FOUND:
            # The master knows the queue. Before, there was no master, or it is about to follow.
            refusals += 1
        receiver.pause(now_ms, refusals)
        if refusals > REFUSALS_MAX:
            self._place.forget(receiver.consumer)
            receiver.consumer.on_queue_deleted()

    def leave_home(self, now_ms: i64) -> list[Consumer]:
        """Let go of the home, as the queue has another master; returns the consumers that stay."""
        for receiver in list(self._place.receivers.values()):
            if receiver.is_leaving:
                continue
            if self._session is not None:
                self._session.cancel(receiver)
            if receiver.is_new:
                # The basic.consume of a new receiver is handled again.
                receiver.stop(now_ms)
            else:
                receiver.move(now_ms)
        self._close()
        consumers = list(self._place.waiting)
        self._place.waiting = {}
        self.home.waiters.pop(self, None)
        for consumer in consumers:
            consumer.stop_waiting()
        return consumers

    # -- calls -------------------------------------------------------------------------------------

    def call(self, call: SessionCall, kind: i64) -> bool:
        """Begin a call without arguments; False if the queue's node is down."""
        return self._begin_call(call, kind) is not None

    def get(self, call: SessionCall, no_ack: bool) -> bool:
        """Begin basic.get, which answers a message or none; False if the queue's node is down."""
        session = self._begin_call(call, link_records.CALL_GET)
        if session is None:
            return False
        session.out.append(1 if no_ack else 0)
        return True

    def ask_deletion(self, call: SessionCall, if_empty: bool, if_unused: bool) -> bool:
        """Ask the queue's node to delete the queue; False if it is down."""
        session = self._begin_call(call, link_records.CALL_DELETE)
        if session is None:
            return False
        flags: i64 = link_records.IF_EMPTY if if_empty else 0
        if if_unused:
            flags |= link_records.IF_UNUSED
        session.out.append(flags)
        return True

    def _begin_call(self, call: SessionCall, kind: i64) -> RemoteSession | None:
        attached = self.attach()
        session = self._session
        if attached is None or session is None:
            return None
        call.queue = attached
        session.call(call, kind)
        return session

    # -- end ---------------------------------------------------------------------------------------

    def delete(self, now_ms: i64) -> None:
        """Forget the queue, which is deleted; its consumers are told."""
        self._is_deleted = True
        self._place.keeps = False
        for receiver in list(self._place.receivers.values()):
            if self._session is not None:
                self._session.cancel(receiver)
            receiver.on_gone(now_ms)
        for consumer in list(self._place.waiting):
            self._place.forget(consumer)
            consumer.on_queue_deleted()
        self.home.waiters.pop(self, None)
        self._late = []
        self._close()

    def _close(self) -> None:
        attached = self._attached
        if attached is not None and self._session is not None:
            self._session.close_queue(attached)
        self.on_session_over()


class _Subscription(SessionCall):
    """Subscribes a consumer again, which the client knows already."""

    def __init__(self, queue: RemoteQueue, refusals: int) -> None:
        super().__init__(None)
        self.receiver: RemoteConsumer | None = None
        self._queue: RemoteQueue = queue
        self._refusals: int = refusals

    def on_answer(self, answer: CallAnswer, now_ms: i64) -> None:
        receiver = self.receiver
        if answer.code != 0 and receiver is not None:
            self._queue.on_subscription_refused(receiver, answer.code, self._refusals, now_ms)

    def on_session_over(self, now_ms: i64) -> None:
        """The consumer waits for the next session already, or will in a moment."""
