"""The clients of one other node, as users of the queues of this node.

`take_frame` handles their operations in order; what becomes of them goes back as events. The
formats are in `queues/remote/link_records.py`. A publish is confirmed (FINISHED) when the journal's
batch with it is durable, a transient one when it is in the queue.

When the link goes down, it is as if a channel had closed: the consumers are gone, and what was
unacked returns to its place, marked redelivered.
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.broker.connection.connection import ConnectionHost
from warrenmq.cluster.remote.link_consumer import LinkConsumers
from warrenmq.cluster.remote.link_events import LinkEvents, LinkUnacked, PartyOutcomes
from warrenmq.cluster.remote.queue_calls import QueueCalls
from warrenmq.cluster.remote.used_queues import UsedQueue, UsedQueues
from warrenmq.queues.entry import Entry
from warrenmq.queues.leave_reason import ACKED, REJECTED
from warrenmq.queues.queue import Queue
from warrenmq.queues.remote import link_records
from warrenmq.queues.remote.queue_link import QueueLink, TurnEnd
from warrenmq.queues.settings import NO_LIMIT
from warrenmq.store.model.runs import Runs
from warrenmq.vocabulary.fail_points import fail_point


class RemoteClients(TurnEnd):
    """The clients of the node at the other end of `link`; `host` has the vhosts."""

    def __init__(self, host: ConnectionHost, link: QueueLink) -> None:
        self._host: ConnectionHost = host
        self._events: LinkEvents = LinkEvents(link, host.wake)
        self._unacked: LinkUnacked = LinkUnacked()
        self._consumers: LinkConsumers = LinkConsumers()
        self._outcomes: PartyOutcomes = PartyOutcomes(self._events)
        self._queues: UsedQueues = UsedQueues(host, self._unacked)
        # Queues whose publishes the other node does not know to be applied.
        self._applied: dict[UsedQueue, None] = {}
        self._calls: QueueCalls = QueueCalls(
            host, self._events, self._unacked, self._consumers, self._queues
        )

    # -- operations --------------------------------------------------------------------------------

    def take_frame(self, data: bytes, now_ms: i64) -> None:
        """Handle a frame of operations; raises MalformedRecordError."""
        reader = link_records.RecordReader(data)
        while reader.has_more():
            kind = reader.octet()
            if kind == link_records.PUBLISH:
                self._publish(reader, now_ms)
            elif kind == link_records.SETTLE:
                self._settle(reader, now_ms)
            elif kind == link_records.CREDIT:
                self._add_credit(reader, now_ms)
            elif kind == link_records.AWAIT:
                used = self._queue(reader)
                self._await(used, reader.integer(), used.has_refused)
            elif kind == link_records.AWAIT_LAST:
                used = self._queue(reader)
                self._await(used, reader.integer(), used.has_refused_last)
            elif kind == link_records.RETURN:
                self._take_back(reader, now_ms)
            elif kind == link_records.OPEN:
                used = UsedQueue(reader.number(), reader.integer(), reader.name(), reader.name())
                self._queues.by_number[used.number] = used
            elif kind == link_records.CALL:
                self._calls.take(reader, now_ms)
            elif kind == link_records.CANCEL:
                self._cancel(reader.number(), now_ms)
            elif kind == link_records.CLOSE:
                self._close(self._queue(reader), now_ms)
            elif kind == link_records.REPLY:
                self._reply(reader, now_ms)
            elif kind == link_records.STALE:
                self._settle_stale(reader, now_ms)
            else:
                raise link_records.MalformedRecordError(f"a record of the unknown kind {kind}")
        fail_point("operations.applied")
        self._host.wake()

    def _queue(self, reader: link_records.RecordReader) -> UsedQueue:
        used = self._queues.by_number.get(reader.number())
        if used is None:
            raise link_records.MalformedRecordError("a record for a queue that was not opened")
        return used

    def _publish(self, reader: link_records.RecordReader, now_ms: i64) -> None:
        start = reader.at - 1
        used = self._queue(reader)
        flags = reader.octet()
        priority = reader.octet()
        expiration_ms: i64 = reader.integer() if (flags & link_records.EXPIRES) != 0 else NO_LIMIT
        message = reader.message((flags & link_records.PERSISTENT) != 0, now_ms)
        used.applied_bytes += reader.at - start
        self._applied[used] = None
        queue = self._queues.find(used)
        source = None if queue is None else queue.confirm_source
        if queue is None or (source is not None and source.refuses()):
            used.has_failed = True
            return
        used.source = source
        is_taken = queue.publish(
            message,
            expiration_ms,
            now_ms,
            (flags & link_records.KNOWN) != 0,
            priority,
            (flags & link_records.REFUSABLE) != 0,
        )
        used.has_refused_last = not is_taken
        if not is_taken:
            used.has_refused = True
        elif message.persistent and queue.durable:
            used.is_for_disk = True

    def _await(self, used: UsedQueue, party: i64, has_refused: bool) -> None:
        vhost = used.vhost
        queue = self._queues.find(used)
        source = None if queue is None else queue.confirm_source
        before = used.source
        if before is not None and before.refuses():
            # This node was the master when it took the publishes; other copies may lack them.
            used.has_failed = True
        if used.has_failed or vhost is None:
            self._outcomes.report(party, party, link_records.FAILED)
        elif has_refused:
            self._outcomes.report(party, party, link_records.REFUSED)
        elif source is not None:
            self._outcomes.wait_for(source.party(), party)
        elif used.is_for_disk:
            self._outcomes.wait_for(vhost.journal.batch, party)
        else:
            self._outcomes.report(party, party, link_records.DONE)
        used.has_failed = False
        used.has_refused = False
        used.is_for_disk = False
        used.source = None

    def _settle(self, reader: link_records.RecordReader, now_ms: i64) -> None:
        used = self._queue(reader)
        level = reader.octet()
        reason = reader.octet()
        first, last = reader.run()
        _check_reason(reason)
        queue = self._queues.find(used)
        backing = None if queue is None else queue.level_at(level)
        if queue is None or backing is None:
            return
        used.is_for_disk = True
        for entry in self._unacked.take(backing.ledger, first, last):
            consumer = entry.consumer
            if consumer is not None:
                consumer.unacked_count -= 1
            queue.leave(entry, reason, now_ms)

    def _settle_stale(self, reader: link_records.RecordReader, now_ms: i64) -> None:
        used = self._queue(reader)
        level = reader.octet()
        reason = reader.octet()
        epoch = reader.integer()
        seq = reader.integer()
        _check_reason(reason)
        queue = self._queues.find(used)
        if queue is not None:
            used.is_for_disk = True
            queue.settle_stale(level, seq, epoch, reason, now_ms)

    def _take_back(self, reader: link_records.RecordReader, now_ms: i64) -> None:
        """Take messages back. What comes unseen by consecutive records returns as one."""
        unseen: dict[Queue, list[Entry]] = {}
        try:
            while True:
                self._take_back_some(reader, unseen, now_ms)
                if not reader.skip(link_records.RETURN):
                    break
        finally:
            # Of a malformed record nothing is taken, but the records before it are in force.
            for returning, entries in unseen.items():
                returning.put_back(entries, now_ms)

    def _take_back_some(
        self, reader: link_records.RecordReader, unseen: dict[Queue, list[Entry]], now_ms: i64
    ) -> None:
        """Take the messages of one record back, or add them to those that are `unseen`."""
        used = self._queue(reader)
        level = reader.octet()
        flags = reader.octet()
        # Take nothing before the record is read to its end: if it is malformed the link ends, and
        # that returns all messages that are still unacked.
        runs: Runs = []
        for _ in range(reader.number()):
            runs.append(reader.run())
        queue = self._queues.find(used)
        backing = None if queue is None else queue.level_at(level)
        if queue is None or backing is None:
            return
        entries: list[Entry] = []
        for first, last in runs:
            entries.extend(self._unacked.take(backing.ledger, first, last))
        if len(entries) == 0:
            return
        _release(entries)
        if (flags & link_records.UNSEEN) != 0:
            unseen.setdefault(queue, []).extend(entries)
        else:
            queue.requeue(entries, now_ms)

    def _add_credit(self, reader: link_records.RecordReader, now_ms: i64) -> None:
        consumer = self._consumers.by_number.get(reader.number())
        flags = reader.octet()
        messages = reader.number()
        size = reader.integer()
        if consumer is not None:
            consumer.add_credit(messages, size, (flags & link_records.ASKS) != 0, now_ms)

    def _cancel(self, number: i64, now_ms: i64) -> None:
        consumer = self._consumers.by_number.pop(number, None)
        if consumer is None:
            # The queue was deleted meanwhile, and the other node is told already.
            return
        link_records.write_number(self._events.begin(), link_records.CANCELLED, number)
        queue = consumer.target
        if queue.remove_consumer(consumer, now_ms):
            self._queues.delete(queue, now_ms)

    def _close(self, used: UsedQueue, now_ms: i64) -> None:
        del self._queues.by_number[used.number]
        self._applied.pop(used, None)
        # The queue may be deleted here already; then its messages are settled.
        queue = used.queue
        if queue is not None:
            for backing in queue.backings():
                entries = self._unacked.take_all(backing.ledger)
                if len(entries) > 0:
                    _release(entries)
                    queue.requeue(entries, now_ms)

    def _reply(self, reader: link_records.RecordReader, now_ms: i64) -> None:
        vhost = self._host.vhosts.get(reader.name())
        name = reader.name()
        message = reader.message(False, now_ms)
        receiver = None if vhost is None else vhost.reply_channels.get(name)
        if receiver is not None:
            receiver.take_reply(message.address, message.properties, message.body)

    # -- turns -------------------------------------------------------------------------------------

    def end_turn(self, now_ms: i64) -> None:
        if len(self._applied) > 0:
            self._report_applied()
        if len(self._consumers.waiting) > 0 and self._events.has_room():
            waiting = self._consumers.waiting
            self._consumers.waiting = []
            for consumer in waiting:
                if not consumer.is_cancelled:
                    consumer.come_back(now_ms)
        self._events.send()

    def _report_applied(self) -> None:
        """Make room for more publishes, but not while the disk or the memory is short."""
        node = self._host
        if node.alarms.is_on:
            return
        for used in list(self._applied):
            vhost = used.vhost
            queue = used.queue
            if queue is not None and not queue.has_room():
                continue
            if vhost is None or not node.disk_flow.is_full(vhost.journal):
                del self._applied[used]
                link_records.write_number_and(
                    self._events.begin(), link_records.APPLIED, used.number, used.applied_bytes
                )
                used.applied_bytes = 0

    # -- end ---------------------------------------------------------------------------------------

    def end(self, now_ms: i64) -> None:
        """Take everything back that the clients have, as the link is down."""
        self._events.is_over = True
        consumers = list(self._consumers.by_number.values())
        self._consumers.by_number = {}
        idle: list[Queue] = []
        for consumer in consumers:
            if consumer.target.remove_consumer(consumer, now_ms):
                idle.append(consumer.target)
        for entries in self._unacked.take_rest():
            entries[0].queue.requeue(entries, now_ms)
        self._queues.end()
        for queue in idle:
            self._queues.delete(queue, now_ms)


def _release(entries: list[Entry]) -> None:
    """Count `entries` as unacked by their consumers no more."""
    for entry in entries:
        consumer = entry.consumer
        if consumer is not None:
            consumer.unacked_count -= 1


def _check_reason(reason: i64) -> None:
    if reason != ACKED and reason != REJECTED:
        raise link_records.MalformedRecordError(f"a message cannot leave for the reason {reason}")
