"""One life of a link, at the node whose clients use queues of the node at the other end.

What clients do in a turn gathers as operations, in order, and goes out as one frame at the end of
the turn, or earlier when much has gathered. `take_frame` handles the events that come back. The
formats are in `link_records.py`.

When the link goes down, the session is over: parties fail, so no publish that the other node may
not have is confirmed; calls and consumers are told. Messages that the session delivered can be
settled no more: the other node has taken them back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr

from warrenmq.queues.entry import Entry, QueueEnd
from warrenmq.queues.remote import link_records
from warrenmq.queues.remote.queue_link import FRAME_BYTES, OPERATIONS, QueueLink
from warrenmq.queues.settings import NO_LIMIT
from warrenmq.store.journal.confirm_run import ConfirmParty, finish_together
from warrenmq.store.model.message import Message, QueueLedger
from warrenmq.vocabulary.fail_points import fail_point

# The largest reply code of the protocol, u16.
_CODE_MAX: Final = 0xFFFF


class RemoteParty(ConfirmParty):
    """Publishes to one queue on another node that are confirmed together."""

    def __init__(self) -> None:
        super().__init__()
        # The queue has all messages, or it has refused one of them and has the others.
        self.is_done: bool = False
        self.is_refused: bool = False


class SessionQueue:
    """A queue on the other node, for one session. `number` names it there."""

    def __init__(self, number: i64) -> None:
        self.number: i64 = number
        # Bytes of publishes for which the other node has not made room again.
        self.unapplied_bytes: i64 = 0
        # The party of the publishes since the last AWAIT, None if nobody waits for them yet.
        self.party: RemoteParty | None = None
        # Whether the other node has forgotten the number.
        self.is_closed: bool = False
        # Stand-ins for the ledgers of the queue's levels, by priority.
        self._ledgers: dict[int, RemoteLedger] = {}

    def ledger(self, level: i64) -> RemoteLedger:
        """The ledger of messages of `level` that this session delivers."""
        ledger = self._ledgers.get(level)
        if ledger is None:
            ledger = RemoteLedger(self, level)
            self._ledgers[level] = ledger
        return ledger

    def end(self) -> QueueEnd:
        """The queue as holders of its messages know it."""
        raise RuntimeError("abstract")

    def on_session_over(self, now_ms: i64) -> None:
        """Forget this object: the link is down."""
        raise RuntimeError("abstract")


class SessionConsumer:
    """A consumer of a queue on the other node, for one session. `number` names it there."""

    def __init__(self, number: i64, queue: SessionQueue) -> None:
        self.number: i64 = number
        self.queue: SessionQueue = queue
        # The session has the consumer on its list of those whose credit may have to be raised.
        self.is_listed: bool = False

    def take(self, entry: RemoteEntry, now_ms: i64) -> None:
        """Take a delivery."""
        raise RuntimeError("abstract")

    def on_ready(self, now_ms: i64) -> None:
        """A message is there that the consumer has no credit for; `serve_room` follows."""
        raise RuntimeError("abstract")

    def serve_room(self, now_ms: i64) -> None:
        """Serve the consumers that share room with this one, which has become ready."""
        raise RuntimeError("abstract")

    def on_unused(self, messages: i64, now_ms: i64) -> None:
        """Credit for so many messages is over: it asked for them, and none are there."""
        raise RuntimeError("abstract")

    def on_gone(self, now_ms: i64) -> None:
        """The consumer gets nothing more: it was cancelled, or the queue is deleted or down."""
        raise RuntimeError("abstract")

    def raise_credit(self) -> None:
        """Write the credit that the consumer should have beyond what it has."""
        raise RuntimeError("abstract")

    def write_asked(self) -> None:
        """Write the credit that asks for messages."""
        raise RuntimeError("abstract")

    def look_after(self) -> None:
        """Return messages for which there has been no room since the last call but one."""
        raise RuntimeError("abstract")


class RemoteLedger(QueueLedger):
    """Stands for the ledger of a level of a queue on another node, for one session.

    Its `queue_id` is the priority of the level.
    """

    def __init__(self, source: SessionQueue, level: i64) -> None:
        super().__init__(level)
        self.source: SessionQueue = source


@mypyc_attr(acyclic=True)
class RemoteEntry(Entry):
    """A message that a session has delivered; `return_count`: how often it was returned."""

    def __init__(
        self, message: Message, ledger: RemoteLedger, seq: i64, end: QueueEnd, return_count: i64
    ) -> None:
        super().__init__(message, ledger, seq, 0, end)
        self.return_count: i64 = return_count
        # None for basic.get.
        self.receiver: SessionConsumer | None = None


class CallAnswer:
    """The answer to a call: `code` 0, or an error code of the protocol and its `text`.

    `is_fatal`: the error closes the connection. `first` and `second` are what the kind says,
    `entry` is the message that basic.get got.
    """

    def __init__(
        self,
        code: i64,
        is_fatal: bool,
        text: str,
        first: i64,
        second: i64,
        entry: RemoteEntry | None,
    ) -> None:
        self.code: i64 = code
        self.is_fatal: bool = is_fatal
        self.text: str = text
        self.first: i64 = first
        self.second: i64 = second
        self.entry: RemoteEntry | None = entry


@mypyc_attr(allow_interpreted_subclasses=True)
class SessionCall:
    """A question to the other node, about `queue` if it is not None."""

    def __init__(self, queue: SessionQueue | None) -> None:
        self.queue: SessionQueue | None = queue

    def on_answer(self, answer: CallAnswer, now_ms: i64) -> None:
        """Take the answer."""
        raise RuntimeError("abstract")

    def on_session_over(self, now_ms: i64) -> None:
        """There will be no answer: the link is down."""
        raise RuntimeError("abstract")


class RemoteSession:
    """The session over `link`; it calls `wake` for a turn when something has gathered."""

    def __init__(self, link: QueueLink, wake: Callable[[], None]) -> None:
        self.out: BytesWriter = BytesWriter()
        self._link: QueueLink = link
        self._wake: Callable[[], None] = wake
        self._is_over: bool = False
        # Queues, consumers, calls and parties by number. Parties have numbers of their own, so that
        # those that are finished together have neighbouring ones.
        self._queues: dict[int, SessionQueue] = {}
        self.consumers: dict[int, SessionConsumer] = {}
        self._calls: dict[int, SessionCall] = {}
        self._parties: dict[int, RemoteParty] = {}
        self._last_number: i64 = 0
        self._last_party: i64 = 0
        # Queues with an open party.
        self._awaited: list[SessionQueue] = []
        self._due: list[SessionConsumer] = []
        # Consumers that ask for messages, in the order of their turns.
        self._asking: list[SessionConsumer] = []
        # The run of settled messages that is not written yet; no ledger: there is none.
        self._run_ledger: RemoteLedger | None = None
        self._run_reason: i64 = 0
        self._run_first: i64 = 0
        self._run_last: i64 = 0

    # -- operations --------------------------------------------------------------------------------

    def next_number(self) -> i64:
        """A number that nothing else in this session has."""
        self._last_number += 1
        return self._last_number

    def open_queue(self, queue: SessionQueue, birth: i64, vhost: bytes, name: bytes) -> None:
        """Tell the other node which queue the number of `queue` means."""
        self._begin()
        self._queues[queue.number] = queue
        link_records.write_open(self.out, queue.number, birth, vhost, name)

    def close_queue(self, queue: SessionQueue) -> None:
        """Forget a queue that is deleted, or that another node has now.

        What it delivers meanwhile returns to it.
        """
        self._begin()
        self._await_party(queue)
        self._queues.pop(queue.number, None)
        queue.is_closed = True
        link_records.write_number(self.out, link_records.CLOSE, queue.number)

    def publish(
        self,
        queue: SessionQueue,
        message: Message,
        expiration_ms: i64,
        is_known: bool,
        priority: i64,
        may_refuse: bool,
    ) -> None:
        """Publish `message` to `queue`; see `MessageTaker.publish`."""
        self._begin()
        flags: i64 = link_records.PERSISTENT if message.persistent else 0
        if is_known:
            flags |= link_records.KNOWN
        if may_refuse:
            flags |= link_records.REFUSABLE
        if expiration_ms != NO_LIMIT:
            flags |= link_records.EXPIRES
        before: i64 = len(self.out)
        link_records.write_publish(self.out, queue.number, flags, priority, expiration_ms, message)
        queue.unapplied_bytes += len(self.out) - before

    def party(self, queue: SessionQueue, is_alone: bool, is_for_last: bool) -> RemoteParty:
        """The party that is finished when the other node has all that was published to `queue`.

        `is_alone`: later publishes are not to share it. `is_for_last`: the queue may have refused
        earlier ones, which nobody waits for.
        """
        party = queue.party
        kind = link_records.AWAIT
        if party is None:
            party = RemoteParty()
            queue.party = party
            self._awaited.append(queue)
            if is_for_last:
                kind = link_records.AWAIT_LAST
        if is_alone:
            self._await_party(queue, kind)
        return party

    def _await_party(self, queue: SessionQueue, kind: i64 = link_records.AWAIT) -> None:
        party = queue.party
        if party is not None:
            queue.party = None
            self._begin()
            self._last_party += 1
            self._parties[self._last_party] = party
            link_records.write_number_and(self.out, kind, queue.number, self._last_party)

    def settle(self, ledger: RemoteLedger, seq: i64, reason: i64) -> None:
        """Let an unacked message go for `reason` (`queues/leave_reason.py`)."""
        if self._run_ledger is ledger and seq == self._run_last + 1 and self._run_reason == reason:
            self._run_last = seq
            return
        self._begin()
        self._run_ledger = ledger
        self._run_reason = reason
        self._run_first = seq
        self._run_last = seq

    def settle_stale(
        self, queue: SessionQueue, level: i64, seq: i64, epoch: i64, reason: i64
    ) -> None:
        """Settle a message of `queue` that this session has not delivered (`link_records.py`)."""
        self._begin()
        link_records.write_stale(self.out, queue.number, level, reason, epoch, seq)

    def give_back(self, queue: SessionQueue, entries: list[RemoteEntry], is_unseen: bool) -> None:
        """Return messages of `queue` to their places; `is_unseen`: no client has had them."""
        if queue.is_closed:
            return
        by_level: dict[int, list[i64]] = {}
        for entry in entries:
            ledger = entry.ledger
            assert isinstance(ledger, RemoteLedger)
            by_level.setdefault(ledger.queue_id, []).append(entry.seq)
        for level, seqs in by_level.items():
            seqs.sort()
            self._begin()
            link_records.write_runs(
                self.out, queue.number, level, link_records.UNSEEN if is_unseen else 0, seqs
            )

    def give_credit(self, consumer: SessionConsumer, asks: bool, messages: i64, size: i64) -> None:
        """Let the queue deliver so many more messages, and bytes, to `consumer`."""
        self._begin()
        link_records.write_credit(
            self.out, consumer.number, link_records.ASKS if asks else 0, messages, size
        )

    def list_due(self, consumer: SessionConsumer) -> None:
        """Have `raise_credit` of `consumer` called before the next call, or at the turn's end."""
        if not consumer.is_listed:
            if len(self._due) == 0:
                self._wake()
            consumer.is_listed = True
            self._due.append(consumer)

    def list_asking(self, consumer: SessionConsumer) -> None:
        """Have `write_asked` of `consumer` called before the next call, or at the turn's end."""
        if len(self._asking) == 0:
            self._wake()
        self._asking.append(consumer)

    def cancel(self, consumer: SessionConsumer) -> None:
        """Let the other node forget `consumer`, which may still get what is on its way."""
        self._begin()
        link_records.write_number(self.out, link_records.CANCEL, consumer.number)

    def reply(self, vhost: bytes, name: bytes, message: Message) -> None:
        """Pass on a direct reply to the channel that consumes the replies to `name`."""
        self._begin()
        self.out.append(link_records.REPLY)
        link_records.write_name(self.out, vhost)
        link_records.write_name(self.out, name)
        link_records.write_message(self.out, message)

    def call(self, call: SessionCall, kind: i64) -> None:
        """Begin a call: the caller appends the arguments of the kind to `out` at once."""
        self._raise_credits()
        self._begin()
        number = self.next_number()
        self._calls[number] = call
        queue = call.queue
        link_records.write_call(self.out, number, kind, 0 if queue is None else queue.number)

    def _begin(self) -> None:
        """Prepare for a record: ask for a turn, and write what has to come first."""
        if len(self.out) == 0:
            self._wake()
        elif len(self.out) >= FRAME_BYTES:
            self._send_frame()
        ledger = self._run_ledger
        if ledger is not None:
            self._run_ledger = None
            number, reason = ledger.source.number, self._run_reason
            first, last = self._run_first, self._run_last
            link_records.write_settle(self.out, number, ledger.queue_id, reason, first, last)

    # -- turns -------------------------------------------------------------------------------------

    def send(self) -> None:
        """Send what has gathered, as one frame."""
        self._raise_credits()
        awaited = self._awaited
        self._awaited = []
        for queue in awaited:
            self._await_party(queue)
        if self._run_ledger is not None:
            self._begin()
        if len(self.out) > 0:
            self._send_frame()

    def _send_frame(self) -> None:
        frame = self.out.getvalue()
        self.out.truncate(0)
        if not self._is_over:
            self._link.send(OPERATIONS, frame)
            fail_point("operations.queued")

    def _raise_credits(self) -> None:
        while len(self._due) > 0:
            due = self._due
            self._due = []
            for consumer in due:
                consumer.is_listed = False
                consumer.raise_credit()
        asking = self._asking
        self._asking = []
        for consumer in asking:
            consumer.write_asked()

    # -- events ------------------------------------------------------------------------------------

    def take_frame(self, data: bytes, now_ms: i64) -> None:
        """Handle a frame of events; raises MalformedRecordError."""
        reader = link_records.RecordReader(data)
        # Consumers that become ready in one frame share the room evenly.
        ready: list[SessionConsumer] = []
        while reader.has_more():
            kind = reader.octet()
            if kind == link_records.DELIVER:
                consumer = self._consumer(reader)
                entry = _read_delivery(reader, consumer.queue, now_ms)
                entry.receiver = consumer
                consumer.take(entry, now_ms)
            elif kind == link_records.FINISHED:
                first, last = reader.run()
                self._finish(first, last, reader.octet())
            elif kind == link_records.APPLIED:
                queue = self._queues.get(reader.number())
                size = reader.integer()
                if queue is not None:
                    queue.unapplied_bytes -= size
            elif kind == link_records.READY:
                consumer = self._consumer(reader)
                consumer.on_ready(now_ms)
                ready.append(consumer)
            elif kind == link_records.UNUSED:
                consumer = self._consumer(reader)
                consumer.on_unused(reader.number(), now_ms)
            elif kind == link_records.CANCELLED:
                consumer = self._consumer(reader)
                del self.consumers[consumer.number]
                consumer.on_gone(now_ms)
            else:
                self._take_answer(kind, reader, now_ms)
        for consumer in ready:
            consumer.serve_room(now_ms)

    def _consumer(self, reader: link_records.RecordReader) -> SessionConsumer:
        consumer = self.consumers.get(reader.number())
        if consumer is None:
            raise link_records.MalformedRecordError("an event for an unknown consumer")
        return consumer

    def _finish(self, first: i64, last: i64, outcome: i64) -> None:
        if last - first >= len(self._parties):
            raise link_records.MalformedRecordError("more parties are finished than there are")
        finished: list[ConfirmParty] = []
        for number in range(first, last + 1):
            party = self._parties.pop(number, None)
            if party is not None:
                party.is_done = outcome == link_records.DONE
                party.is_refused = outcome == link_records.REFUSED
                finished.append(party)
        finish_together(finished, outcome == link_records.DONE)
        fail_point("outcome.taken")

    def _take_answer(self, kind: i64, reader: link_records.RecordReader, now_ms: i64) -> None:
        number = reader.integer()
        call = self._calls.pop(number, None)
        if call is None or (kind != link_records.ANSWER and kind != link_records.GOT):
            raise link_records.MalformedRecordError(
                f"a record of the unknown kind {kind}, or without a call"
            )
        if kind == link_records.ANSWER:
            code = reader.number()
            if code > _CODE_MAX:
                raise link_records.MalformedRecordError(f"an answer has the code {code}")
            is_fatal = reader.octet() != 0
            text = reader.text().decode("utf-8", "replace")
            answer = CallAnswer(code, is_fatal, text, reader.integer(), reader.integer(), None)
        else:
            ready_count = reader.integer()
            assert call.queue is not None
            entry = _read_delivery(reader, call.queue, now_ms)
            answer = CallAnswer(0, False, "", ready_count, 0, entry)
        call.on_answer(answer, now_ms)

    # -- end ---------------------------------------------------------------------------------------

    def end(self, now_ms: i64) -> None:
        """Tell everybody that the link is down; what they still do here goes nowhere."""
        self._is_over = True
        queues = list(self._queues.values())
        consumers = list(self.consumers.values())
        calls = list(self._calls.values())
        parties: list[ConfirmParty] = list(self._parties.values())
        for queue in self._awaited:
            if queue.party is not None:
                parties.append(queue.party)
        for queue in queues:
            queue.on_session_over(now_ms)
        finish_together(parties, False)
        # Before consumers: one of them may not have been accepted yet.
        for call in calls:
            call.on_session_over(now_ms)
        for consumer in consumers:
            consumer.on_gone(now_ms)


def _read_delivery(
    reader: link_records.RecordReader, source: SessionQueue, now_ms: i64
) -> RemoteEntry:
    level = reader.octet()
    flags = reader.octet()
    seq = reader.integer()
    return_count: i64 = reader.number() if (flags & link_records.COUNTED) != 0 else 0
    ledger = source.ledger(level)
    message = reader.message(False, now_ms)
    entry = RemoteEntry(message, ledger, seq, source.end(), return_count)
    entry.redelivered = (flags & link_records.REDELIVERED) != 0
    return entry
