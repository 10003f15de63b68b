"""tx.commit: a transaction takes effect, and is durable on all nodes before the client is told."""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.broker.channel.channel import Channel
from warrenmq.broker.transaction import Transaction
from warrenmq.broker.vhost.arrival import arrive
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.stale_entry import StaleEnd
from warrenmq.store.journal.confirm_run import ConfirmParty, ConfirmRun, ConfirmWaiter
from warrenmq.wire.errors import (
    PRECONDITION_FAILED,
    RESOURCE_ERROR,
    ChannelException,
    ConnectionException,
)
from warrenmq.wire.methods import TxCommitOk


def commit(channel: Channel, transaction: Transaction) -> None:
    """Apply `transaction`, suspend the channel until all of it is durable, then send commit-ok."""
    connection = channel.connection
    now_ms = connection.now_ms
    # Publishes come first, then acks and rejects in order (P25). While the commit applies them, the
    # channel is not transactional.
    channel.transaction = None
    connection.throttle.end_transaction(connection, transaction.size_bytes)
    is_whole = True
    touched: dict[MessageTaker, None] = {}
    for publish in transaction.publishes:
        queues: list[MessageTaker] = []
        for name in publish.queue_names:
            queue = channel.vhost.taker(name)
            if queue is not None:
                queues.append(queue)
                touched[queue] = None
        message = publish.message
        if not arrive(queues, message, publish.expiration_ms, publish.priority, now_ms, False):
            is_whole = False
        channel.vhost.delayed.keep_all(message, publish.waits, publish.headers, False, now_ms)
        channel.counters.routed += len(queues)
        exchange = channel.vhost.router.exchanges.get(message.exchange())
        if exchange is not None:
            exchange.publish_in += 1
            exchange.publish_out += len(queues)
        if len(queues) == 0:
            channel.count_unroutable(publish.mandatory, len(publish.waits) > 0)
            if publish.mandatory:
                channel.return_message(message)
    for settle in transaction.settles:
        for entry in settle.entries:
            end = entry.queue
            if isinstance(end, StaleEnd):
                touched[end.taker()] = None
            elif isinstance(end, MessageTaker):
                touched[end.current()] = None
        channel.settle_entries(settle.entries, settle.requeue, settle.reason)
    channel.transaction = Transaction()
    if not is_whole:
        raise _partial()
    parties: list[ConfirmParty] = []
    for queue in touched:
        party = queue.confirm_party()
        if party is not None:
            parties.append(party)
    channel.suspend()
    _CommitWait(channel, parties).begin()


def _partial() -> ChannelException:
    # A queue has refused a message; everything else is done.
    return ChannelException(PRECONDITION_FAILED, "partial tx completion")


class _CommitWait(ConfirmWaiter):
    """A transaction that waits for this node's journal, and for `parties` on other nodes."""

    def __init__(self, channel: Channel, parties: list[ConfirmParty]) -> None:
        self._channel: Channel = channel
        self._parties: list[ConfirmParty] = parties
        self._is_stored: bool = False
        self._is_stored_here: bool = False
        # The other nodes have everything, or one of them has not.
        self._is_decided: bool = len(parties) == 0
        self._is_complete: bool = True

    def begin(self) -> None:
        """Wait for the journal and all parties."""
        parties = self._parties
        self._parties = []
        if len(parties) > 0:
            run = ConfirmRun(self, 1, len(parties))
            for party in parties:
                party.runs.append(run)
        self._channel.vhost.commit(self.on_stored)

    def on_decided(self, run: ConfirmRun) -> None:
        self._is_decided = True
        self._is_complete = run.ok
        if self._is_stored:
            # The journal calls back with the time.
            self._channel.vhost.commit(self.on_time)

    def on_stored(self, ok: bool, now_ms: int) -> None:
        """Take the outcome of the journal's batch with the transaction."""
        self._is_stored = True
        self._is_stored_here = ok
        if self._is_decided:
            self._finish(now_ms)

    def on_time(self, _ok: bool, now_ms: int) -> None:
        """Finish: everything was decided before."""
        self._finish(now_ms)

    def _finish(self, now_ms: i64) -> None:
        channel = self._channel
        connection = channel.connection
        if not channel.is_closed:
            connection.now_ms = now_ms
            if not self._is_stored_here:
                channel.is_suspended = False
                connection.fail(
                    ConnectionException(
                        RESOURCE_ERROR, "the transaction could not be written to disk"
                    )
                )
            elif not self._is_complete:
                channel.is_suspended = False
                connection.refuse(channel.number, _partial())
            else:
                connection.out.method(channel.number, TxCommitOk())
        channel.resume(now_ms)
        connection.touch()
