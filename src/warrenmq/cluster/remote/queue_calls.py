"""Calls of another node about queues of this node: basic.get, consume, purge, counts, delete.

The checks and texts are those of a client of this node, so that it makes no difference where a
client is.
"""

from __future__ import annotations

from librt.strings import write_i64_be
from mypy_extensions import i64

from warrenmq.broker.connection.connection import ConnectionHost
from warrenmq.broker.vhost.queue_checks import (
    check_consume,
    check_delete,
    purge_refusal,
)
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.cluster.remote.link_consumer import LinkConsumer, LinkConsumers
from warrenmq.cluster.remote.link_events import LinkEvents, LinkUnacked
from warrenmq.cluster.remote.used_queues import UsedQueue, UsedQueues
from warrenmq.queues.backing.purging import QueuePurge
from warrenmq.queues.backing.variable_queue import LOADING
from warrenmq.queues.entry import Entry
from warrenmq.queues.queue import Queue
from warrenmq.queues.remote import link_records
from warrenmq.routing.equivalence import resource_text
from warrenmq.wire.errors import (
    NOT_FOUND,
    RESOURCE_ERROR,
    AmqpError,
    ChannelException,
    ConnectionException,
)


class _MovedError(Exception):
    """The queue of a call has another master."""


class CallAnswers:
    """Writes the answers to calls."""

    def __init__(self, events: LinkEvents) -> None:
        self._events: LinkEvents = events

    def done(self, call: i64, first: i64 = 0, second: i64 = 0) -> None:
        """Answer a call that is done, with what its kind says."""
        link_records.write_answer(self._events.begin(), call, 0, False, b"", first, second)

    def refused(self, call: i64, error: AmqpError) -> None:
        """Answer a call that is refused for `error`."""
        is_fatal = isinstance(error, ConnectionException)
        link_records.write_answer(
            self._events.begin(), call, error.code, is_fatal, error.text.encode(), 0, 0
        )

    def moved(self, call: i64) -> None:
        """Answer a call about a queue whose master is another node."""
        link_records.write_answer(self._events.begin(), call, link_records.MOVED, False, b"", 0, 0)

    def got(self, call: i64, queue: Queue, entry: Entry) -> None:
        """Answer basic.get with the message that it gets."""
        out = self._events.begin()
        out.append(link_records.GOT)
        write_i64_be(out, call)
        write_i64_be(out, queue.ready_count)
        level = queue.level_of(entry.ledger)
        link_records.write_delivery(
            out, level, entry.seq, entry.redelivered, queue.return_count(entry)
        )
        link_records.write_message(out, entry.message)


class _PendingGet:
    """A basic.get that waits until the head of its queue is read from disk."""

    def __init__(
        self,
        call: i64,
        queue: Queue,
        no_ack: bool,
        events: LinkEvents,
        unacked: LinkUnacked,
        answers: CallAnswers,
    ) -> None:
        self._call: i64 = call
        self._queue: Queue = queue
        self._no_ack: bool = no_ack
        self._events: LinkEvents = events
        self._unacked: LinkUnacked = unacked
        self._answers: CallAnswers = answers

    def on_head(self, now_ms: int) -> None:
        """Answer, or wait for the head again."""
        queue = self._queue
        if self._events.is_over:
            return
        if queue.is_hidden:
            self._answers.moved(self._call)
            return
        entry = queue.get(self._no_ack, now_ms)
        if entry is not None:
            if not self._no_ack:
                entry.consumer = None
                self._unacked.add(entry)
            self._answers.got(self._call, queue, entry)
        elif queue.head_state(now_ms) == LOADING:
            queue.when_head(self.on_head)
        else:
            queue.count_empty_get()
            self._answers.done(self._call)


class _PendingPurge:
    """A purge whose messages are being settled, or are with copies of the queue still."""

    def __init__(
        self, call: i64, vhost: Vhost, queue: Queue, purge: QueuePurge, answers: CallAnswers
    ) -> None:
        self._call: i64 = call
        self._vhost: Vhost = vhost
        self._queue: Queue = queue
        self._purge: QueuePurge = purge
        self._answers: CallAnswers = answers

    def on_done(self, _now_ms: int) -> None:
        """Answer."""
        if not self._purge.has_failed:
            self._answers.done(self._call, self._purge.count)
        elif self._queue.is_hidden:
            self._answers.moved(self._call)
        else:
            self._answers.refused(self._call, purge_refusal(self._vhost, self._queue))


class _PendingDelete:
    """A deletion that is not stored, or not decided, yet."""

    def __init__(self, call: i64, count: i64, answers: CallAnswers) -> None:
        self._call: i64 = call
        self._count: i64 = count
        self._answers: CallAnswers = answers

    def on_stored(self, ok: bool, _now_ms: int) -> None:
        """Answer: the definition is removed from the node's own metadata, or not."""
        self.on_decided("" if ok else "definitions could not be written to disk", 0)

    def on_decided(self, failure: str, _now_ms: int) -> None:
        """Answer: the cluster has decided, or not in time."""
        if failure:
            self._answers.refused(self._call, ChannelException(RESOURCE_ERROR, failure))
        else:
            self._answers.done(self._call, self._count)


class _ProposedDelete:
    """A deletion of a mirrored queue, for the cluster to decide."""

    def __init__(self, call: i64, queue: Queue, answers: CallAnswers) -> None:
        self._call: i64 = call
        self._queue: Queue = queue
        self._count: i64 = queue.ready_count
        self._answers: CallAnswers = answers

    def on_decided(self, failure: str, _now_ms: int) -> None:
        """Answer; if something else was decided first, the other node asks again."""
        if failure:
            self._answers.refused(self._call, ChannelException(RESOURCE_ERROR, failure))
        elif self._queue.is_deleted:
            self._answers.done(self._call, self._count)
        else:
            self._answers.moved(self._call)


class _HeldCall:
    """A call that uses a queue while the cluster decides whether the queue goes."""

    def __init__(self, call: i64, answers: CallAnswers) -> None:
        self._call: i64 = call
        self._answers: CallAnswers = answers

    def on_decided(self, failure: str, _now_ms: int) -> None:
        """Let the other node ask again, which knows the decision by then, or soon after."""
        if failure:
            text = f"the cluster has not decided in time: {failure}"
            self._answers.refused(self._call, ChannelException(RESOURCE_ERROR, text))
        else:
            self._answers.moved(self._call)


class QueueCalls:
    """Handles the calls of one link."""

    def __init__(
        self,
        host: ConnectionHost,
        events: LinkEvents,
        unacked: LinkUnacked,
        consumers: LinkConsumers,
        queues: UsedQueues,
    ) -> None:
        self._host: ConnectionHost = host
        self._events: LinkEvents = events
        self._unacked: LinkUnacked = unacked
        self._consumers: LinkConsumers = consumers
        self._queues: UsedQueues = queues
        self._answers: CallAnswers = CallAnswers(events)

    def take(self, reader: link_records.RecordReader, now_ms: i64) -> None:
        """Handle a call; raises MalformedRecordError."""
        call = reader.integer()
        kind = reader.octet()
        used = self._queues.by_number.get(reader.number())
        # Each `except` needs its own name: in compiled code a variable has one type.
        try:
            if kind == link_records.CALL_PROBE:
                self._probe(call, reader)
            elif kind == link_records.CALL_SYNC:
                self._answers.done(call)
            elif used is None:
                raise link_records.MalformedRecordError(
                    f"a call of the unknown kind {kind}, or for no queue"
                )
            elif kind == link_records.CALL_CONSUME:
                self._consume(call, used, reader, now_ms)
            else:
                self._ask(call, kind, used, reader, now_ms)
        except ChannelException as refusal:
            self._answers.refused(call, refusal)
        except ConnectionException as fault:
            self._answers.refused(call, fault)
        except _MovedError:
            self._answers.moved(call)

    def _expect(self, used: UsedQueue) -> Queue:
        queue = self._queues.find(used)
        if queue is None:
            if self._queues.has_moved(used):
                raise _MovedError
            text = resource_text("queue", used.name, used.vhost_name)
            raise ChannelException(NOT_FOUND, f"no {text}")
        return queue

    def _probe(self, call: i64, reader: link_records.RecordReader) -> None:
        vhost = self._host.vhosts.get(reader.name())
        name = reader.name()
        is_there = vhost is not None and name in vhost.reply_channels
        self._answers.done(call, 1 if is_there else 0)

    def _consume(
        self, call: i64, used: UsedQueue, reader: link_records.RecordReader, now_ms: i64
    ) -> None:
        number = reader.number()
        flags = reader.octet()
        priority = reader.integer()
        prefetch = reader.number()
        tag = reader.name()
        messages = reader.number()
        size = reader.integer()
        if number in self._consumers.by_number:
            raise link_records.MalformedRecordError(f"there is a consumer {number} already")
        queue = self._expect(used)
        if self._awaits_deletion(call, queue):
            return
        vhost = used.vhost
        assert vhost is not None
        exclusive = (flags & link_records.EXCLUSIVE) != 0
        check_consume(vhost, queue, exclusive)
        consumer = LinkConsumer(
            queue,
            tag,
            (flags & link_records.NO_ACK) != 0,
            exclusive,
            priority,
            prefetch,
            number,
            self._events,
            self._unacked,
            self._consumers,
        )
        self._consumers.by_number[number] = consumer
        queue.add_consumer(consumer)
        self._answers.done(call)
        consumer.add_credit(messages, size, False, now_ms)

    def _ask(
        self, call: i64, kind: i64, used: UsedQueue, reader: link_records.RecordReader, now_ms: i64
    ) -> None:
        argument: i64 = 0
        if kind in (link_records.CALL_GET, link_records.CALL_DELETE):
            argument = reader.octet()
        queue = self._expect(used)
        vhost = used.vhost
        assert vhost is not None
        is_use = kind in (link_records.CALL_COUNTS, link_records.CALL_GET)
        if is_use and self._awaits_deletion(call, queue):
            return
        if kind == link_records.CALL_COUNTS:
            queue.last_used_ms = now_ms
            self._answers.done(call, queue.ready_count, len(queue.consumers))
        elif kind == link_records.CALL_GET:
            queue.last_used_ms = now_ms
            no_ack = argument != 0
            get = _PendingGet(call, queue, no_ack, self._events, self._unacked, self._answers)
            get.on_head(now_ms)
        elif kind == link_records.CALL_PURGE:
            purge = queue.purge(now_ms)
            if purge.is_done:
                self._answers.done(call, purge.count)
            else:
                pending = _PendingPurge(call, vhost, queue, purge, self._answers)
                purge.when_done = pending.on_done
        elif kind == link_records.CALL_DELETE:
            is_if_empty = (argument & link_records.IF_EMPTY) != 0
            is_if_unused = (argument & link_records.IF_UNUSED) != 0
            check_delete(vhost, queue, is_if_empty, is_if_unused)
            decider = vhost.decider_of(queue)
            if decider is not None:
                proposed = _ProposedDelete(call, queue, self._answers)
                decider.propose(vhost.deletion_of(queue), proposed.on_decided)
            else:
                self._delete(call, vhost, queue, now_ms)
        else:
            raise link_records.MalformedRecordError(f"a call of the unknown kind {kind}")

    def _awaits_deletion(self, call: i64, queue: Queue) -> bool:
        """Whether the cluster is deciding that `queue` goes; then the call waits for that."""
        source = queue.confirm_source
        if source is None or not source.is_leaving:
            return False
        source.leaving_waits.append(_HeldCall(call, self._answers).on_decided)
        return True

    def _delete(self, call: i64, vhost: Vhost, queue: Queue, now_ms: i64) -> None:
        pending = _PendingDelete(call, queue.ready_count, self._answers)
        changes = vhost.remove_queue(queue, now_ms)
        shared = vhost.node.shared
        if shared is not None:
            vhost.remove_shared(shared, changes, pending.on_decided)
        elif len(changes) > 0:
            vhost.store_changes(changes, True).callbacks.append(pending.on_stored)
        else:
            pending.on_decided("", now_ms)
