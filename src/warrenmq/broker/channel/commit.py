"""tx.commit: a transaction takes effect, and is durable on all nodes before the client is told."""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.broker.channel.channel import Channel
from warrenmq.broker.flow.publish_turns import COSTLY_STEPS
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
from warrenmq.wire.methods import TX_COMMIT, TxCommitOk


def commit(channel: Channel, transaction: Transaction) -> None:
    """Apply `transaction`, suspend the channel until all of it is durable, then send commit-ok.

    A turn applies as many publishes as its share allows (`PublishTurns`), and all of them if that
    is little work. The frame of the method then waits for the next turn with the others.
    """
    turns = channel.connection.node.publish_turns
    is_costly = transaction.steps >= COSTLY_STEPS
    if not is_costly or turns.steps_left >= 0:
        steps = transaction.steps
        wait = _apply_publishes(channel, transaction, turns.steps_left if is_costly else steps)
        if is_costly:
            turns.steps_left -= steps - transaction.steps
        if len(transaction.publishes) == 0:
            _apply_settles(channel, transaction, wait)
            return
    channel.backlog.put_back(channel.connection, TX_COMMIT.to_bytes(4, "big"))
    turns.wait(channel)


def _apply_publishes(channel: Channel, transaction: Transaction, steps: i64) -> _CommitWait:
    """Apply the first publishes, of `steps` or a few more; returns what has to wait for them."""
    connection = channel.connection
    now_ms = connection.now_ms
    wait = transaction.wait
    if not isinstance(wait, _CommitWait):
        wait = _CommitWait(channel)
        transaction.wait = wait
    # Publishes come first, then acks and rejects in order (P25). While the commit applies them, the
    # channel is not transactional.
    channel.transaction = None
    size_bytes = transaction.size_bytes
    publishes = transaction.take_publishes(steps)
    connection.throttle.end_transaction(connection, size_bytes - transaction.size_bytes)
    touched: dict[MessageTaker, None] = {}
    for publish in publishes:
        queues: list[MessageTaker] = []
        for name in publish.queue_names:
            queue = channel.vhost.taker(name)
            if queue is not None:
                queues.append(queue)
                touched[queue] = None
        message = publish.message
        if not arrive(queues, message, publish.expiration_ms, publish.priority, now_ms, False):
            wait.is_whole = False
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
    channel.transaction = transaction
    wait.add(touched)
    return wait


def _apply_settles(channel: Channel, transaction: Transaction, wait: _CommitWait) -> None:
    """Apply the acks and rejects, and wait until everything is durable."""
    channel.transaction = None
    touched: dict[MessageTaker, None] = {}
    for settle in transaction.settles:
        for entry in settle.entries:
            end = entry.queue
            if isinstance(end, StaleEnd):
                touched[end.taker()] = None
            elif isinstance(end, MessageTaker):
                touched[end.current()] = None
        channel.settle_entries(settle.entries, settle.requeue, settle.reason)
    channel.transaction = Transaction()
    if not wait.is_whole:
        raise _partial()
    channel.suspend()
    wait.add(touched)
    wait.end()


def _partial() -> ChannelException:
    # A queue has refused a message; everything else is done.
    return ChannelException(PRECONDITION_FAILED, "partial tx completion")


class _CommitWait(ConfirmWaiter):
    """A commit that waits for this node's journal, and for parties on other nodes.

    What is applied in several turns is in several batches of the journal.
    """

    def __init__(self, channel: Channel) -> None:
        # No queue has refused a message so far.
        self.is_whole: bool = True
        self._channel: Channel = channel
        # Answers that have not come.
        self._missing: i64 = 0
        # Everything is applied.
        self._is_ended: bool = False
        self._is_stored_here: bool = True
        # No other node has said that it lacks something.
        self._is_complete: bool = True

    def add(self, touched: dict[MessageTaker, None]) -> None:
        """Wait until the journal and copies on other nodes have what `touched` has just got."""
        parties: list[ConfirmParty] = []
        for queue in touched:
            party = queue.confirm_party()
            if party is not None:
                parties.append(party)
        if len(parties) > 0:
            self._missing += 1
            run = ConfirmRun(self, 1, len(parties))
            for party in parties:
                party.runs.append(run)
        self._ask_journal()

    def end(self) -> None:
        """Send commit-ok as soon as the journal and the nodes have answered: all is applied."""
        self._is_ended = True

    def _ask_journal(self) -> None:
        self._missing += 1
        self._channel.vhost.commit(self.on_stored)

    def on_decided(self, run: ConfirmRun) -> None:
        self._missing -= 1
        self._is_complete = self._is_complete and run.ok
        if self._is_ended and self._missing == 0:
            # The journal calls back with the time.
            self._ask_journal()

    def on_stored(self, ok: bool, now_ms: int) -> None:
        """Take the outcome of a batch of the journal."""
        self._missing -= 1
        self._is_stored_here = self._is_stored_here and ok
        if self._is_ended and self._missing == 0:
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
