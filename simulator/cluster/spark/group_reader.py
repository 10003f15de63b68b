"""A reader group of a simulated cluster, as a stream uses it: it reads one queue at its master.

To the history it is a consumer. Its session lasts as long as the queue lives: the group keeps what
it has reserved over restarts, and follows the queue to its next master, sometimes with the epoch
that it has, sometimes by opening the group again. There it reads what it has not acked once more:
exactly the same messages. An unsafe promotion is data loss, and begins another session.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final, NamedTuple

from simulator.cluster.clients import life_of
from simulator.cluster.member import Member
from simulator.cluster.recording.letters import message_name
from simulator.cluster.spark.rows import Row, Rows
from simulator.cluster.world import World
from simulator.models.messages import Violation
from simulator.simulated.admin import AdminClient
from warrenmq.admin.protocol.requests import (
    Ack,
    Acked,
    ErrorReply,
    Fetch,
    Fetched,
    GroupOpened,
    OpenGroup,
    Reply,
    Request,
    Reserve,
    Reserved,
)
from warrenmq.cluster.mirrors.replica.in_sync import InSync
from warrenmq.store.records.publish_body import decode_message
from warrenmq.store.records.record import (
    FILE_HEADER_BYTES,
    FLAG_REDELIVERED,
    RECORD_HEADER_BYTES,
    crc_seed,
    file_header_number,
    record_length,
)
from warrenmq.vocabulary.error_codes import (
    ACCESS_REFUSED,
    DATA_LOSS,
    FENCED,
    MOVED,
    NOT_FOUND,
    PRECONDITION,
    STORAGE_FAILED,
)

# Codes of a node that is not the queue's master any more, or whose disk fails; of a group whose
# queue was deleted, or has lost messages; and of an epoch that an opening without answer has ended.
_REFUSALS: Final = frozenset(
    (ACCESS_REFUSED, DATA_LOSS, FENCED, MOVED, NOT_FOUND, PRECONDITION, STORAGE_FAILED)
)
_BYTES: Final = 1 << 20
# The chance that a reader goes on with the epoch that it has.
_KEEPS_EPOCH: Final = 0.5
# Offsets in a PUBLISH record of a block: of the message's seq id, and of its flags.
_SEQ_AT: Final = 8
_FLAGS_AT: Final = 24


class _Read(NamedTuple):
    """A message of a block: its seq id, its flag, and the message."""

    seq: int
    redelivered: bool
    properties: bytes
    body: bytes


class GroupReader:
    """The group `name`, which reads `queue` in `world`."""

    def __init__(self, world: World, name: str, queue: bytes) -> None:
        self._world = world
        self._name = name
        self._queue = queue
        self._client: AdminClient | None = None
        # Where the client is connected.
        self._member: Member | None = None
        # The life of the queue that the session reads, by its number and its name, and since when.
        self._incarnation = 0
        self._life = ""
        self._since_us = 0
        self._session = ""
        self._session_count = 0
        # 0: the group has to be opened.
        self._epoch = 0
        self._acked = 0
        # The end of what was read last, and the highest end that was answered.
        self._reserved = 0
        self._answered = 0
        # The next opening accepts data loss.
        self._accepts_loss = False
        # Messages to reserve when the group is open.
        self._wanted = 0
        self._opened_epoch = 0
        # The epoch before the present one, which may do nothing any more; 0: there was none.
        self._past_epoch = 0
        # Somebody who still has the past epoch.
        self._late: AdminClient | None = None
        # Messages that the session has got and not acked, by seq id.
        self._unacked: set[int] = set()
        self._rows = Rows(name, 0, self._may_double, self._may_miss)

    # -- steps -------------------------------------------------------------------------------------

    def read(self, count: int) -> None:
        """Reserve up to `count` more messages and read them, as soon as the group is open."""
        self._wanted = count
        client = self._idle()
        if client is not None:
            self._reserve(client)

    def _reserve(self, client: AdminClient) -> None:
        count, self._wanted = self._wanted, 0
        starts = {self._incarnation: max(self._reserved, self._acked)}
        request = Reserve(self._name, self._epoch, starts, count, _BYTES, acks=False)
        self._ask(client, request, self._on_reserved)

    def ack(self, count: int) -> None:
        """Ack up to `count` of the messages that were read."""
        client = self._idle()
        if client is None or not self._unacked:
            return
        acked = sorted(self._unacked)[:count]
        recording, session, epoch = self._world.recording, self._session, self._master_epoch()
        for seq in acked:
            self._unacked.remove(seq)
            recording.acked(session, seq)
        recording.called(session)

        def on_acked(reply: Reply) -> None:
            if not isinstance(reply, Acked):
                self._refused(reply)
                return
            self._check_silence()
            if epoch == self._master_epoch():
                recording.answered(session, epoch)

        # A stream goes on from here, whether it hears of the ack or not.
        self._acked = acked[-1] + 1
        self._rows.forget(self._acked)
        self._ask(
            client, Ack(self._name, self._epoch, {self._incarnation: acked[-1] + 1}), on_acked
        )

    def read_again(self) -> None:
        """Read a batch once more that was read and is not acked, as a task that is repeated."""
        client = self._idle()
        batches = [batch for batch in self._rows.batches if batch[0] >= self._acked]
        if client is not None and batches:
            self._fetch(*self._world.rng.choice(batches))

    def call_late(self) -> None:
        """Let somebody who has the past epoch ack what is acked already, which must be refused."""
        masters = self._masters()
        if not self._past_epoch or not self._epoch or not masters:
            return
        session, member = self._session, self._world.rng.choice(masters)
        self._late = AdminClient(member)

        def on_answer(reply: Reply) -> None:
            is_lost = self._world.recording.promises.is_unsafe_since(self._life, self._since_us)
            if isinstance(reply, Acked) and session == self._session and not is_lost:
                raise Violation("group", f"{self._name}: an epoch that is over may ack")

        request = Ack(self._name, self._past_epoch, {self._incarnation: self._acked})
        self._late.ask(request, on_answer)
        member.has_news = True

    def take_answers(self) -> None:
        """Take what the broker has answered."""
        if self._client is not None and not self._is_lost():
            self._client.take_answers()
        if self._late is not None:
            self._late.take_answers()

    @property
    def has_all(self) -> bool:
        """Whether everything in the queue has been read, as its master knows it."""
        is_idle = self._client is not None and self._client.then is None and not self._wanted
        queues = [each.vhost.queues[self._queue] for each in self._masters()]
        return is_idle and len(queues) == 1 and not queues[0].ready_count

    def leave(self) -> None:
        """Disconnect; the group stays, with what it has reserved."""
        if self._client is not None and not self._is_lost():
            self._client.leave()
        self._client = None

    def end(self) -> None:
        """Leave for good."""
        self.leave()
        if self._session:
            self._world.recording.ended(self._session)

    # -- connections -------------------------------------------------------------------------------

    def _is_lost(self) -> bool:
        member = self._member
        return member is None or self._world.members.get(member.name) is not member

    def _idle(self) -> AdminClient | None:
        """The client, if it has opened the group and waits for nothing; opens it if need be."""
        if self._is_lost():
            self._client = None
        elif self._member is not None and self._member.is_frozen:
            return None
        if self._client is None:
            self._open()
            return None
        return self._client if self._client.then is None and self._epoch else None

    def _open(self) -> None:
        masters = self._masters()
        if not masters:
            return
        self._member = self._world.rng.choice(masters)
        self._client = AdminClient(self._member)
        # What was not acked is read again.
        self._reserved = self._acked
        if self._epoch and self._world.rng.random() < _KEEPS_EPOCH:
            return
        self._epoch = 0
        request = OpenGroup(self._name, [self._queue], may_rebind=self._accepts_loss)
        self._ask(self._client, request, self._on_opened)

    def _masters(self) -> list[Member]:
        """The nodes that serve the queue, as far as they know."""
        members = self._world.members.values()
        return [each for each in members if self._queue in each.vhost.queues and not each.is_frozen]

    def _ask(self, client: AdminClient, request: Request, then: Callable[[Reply], None]) -> None:
        assert self._member is not None
        client.ask(request, then)
        self._member.has_news = True
        client.take_answers()

    def _on_opened(self, reply: Reply) -> None:
        if not isinstance(reply, GroupOpened):
            self._refused(reply)
            return
        assert self._member is not None
        found = reply.members[0]
        has_less = not self._answered or found.reserved < self._answered
        is_reset = has_less and self._may_have_lost()
        if found.incarnation != self._incarnation or self._accepts_loss or is_reset:
            # A copy that knew nothing of the group has no range: the reader sees that by itself, if
            # it had one.
            self._begin_session(self._member, found.incarnation, found.acked)
        elif found.reserved < self._answered:
            text = f"{self._name} had reserved up to {self._answered}, and now {found.reserved}"
            raise Violation("group", text)
        self._accepts_loss = False
        if self._opened_epoch < reply.epoch:
            self._past_epoch = self._opened_epoch
        self._epoch = self._opened_epoch = reply.epoch
        self._acked = max(self._acked, found.acked)
        self._reserved = self._acked
        if self._wanted and self._client is not None:
            self._reserve(self._client)

    def _begin_session(self, member: Member, incarnation: int, acked: int) -> None:
        recording = self._world.recording
        if self._session:
            recording.ended(self._session)
        self._session_count += 1
        self._session = f"{self._name}.{self._session_count}"
        self._incarnation = incarnation
        self._life = life_of(member, self._queue)
        self._since_us = recording.at_us
        self._unacked.clear()
        self._acked = acked
        self._answered = self._past_epoch = self._opened_epoch = 0
        self._rows = Rows(self._session, acked, self._may_double, self._may_miss)
        recording.started(self._session, self._life, member.name, 0)
        recording.grouped(self._life)

    def _refused(self, reply: Reply) -> None:
        """Begin anew: the node has refused a request."""
        if not isinstance(reply, ErrorReply) or reply.code not in _REFUSALS:
            raise Violation("group", f"{self._name}: {reply}")
        self._world.recording.tell(f"            {self._name}: {reply.code} {reply.text}")
        self.leave()
        if reply.code in (FENCED, NOT_FOUND, DATA_LOSS):
            self._epoch = 0
        if reply.code == DATA_LOSS:
            self._check_loss(reply.text)
            self._accepts_loss = True

    def _check_loss(self, text: str) -> None:
        """Violation if no rule explains that the group has lost something."""
        assert self._member is not None
        queue = self._member.vhost.queues.get(self._queue)
        is_same = queue is not None and queue.incarnation == self._incarnation
        if is_same and not self._may_have_lost():
            raise Violation("group", f"{self._name}: {text}")

    def _may_have_lost(self) -> bool:
        """Whether an unsafe promotion may have lost something of the session."""
        return self._world.recording.promises.is_unsafe_since(self._life, self._since_us)

    def _check_silence(self) -> None:
        """Violation if a master goes on that may have lost something, and has not said so."""
        if self._may_have_lost():
            epoch = self._world.recording.promises.unsafe_epoch(self._life)
            if self._master_epoch() >= epoch:
                raise Violation("silent loss", f"{self._name} reads on in {self._life}")

    def _may_double(self, message: str) -> bool:
        return self._world.recording.may_be_double(message)

    def _may_miss(self, message: str) -> bool:
        return self._world.recording.may_leave_batches(message, self._life)

    def _master_epoch(self) -> int:
        """The epoch of the master that the group reads from."""
        assert self._member is not None
        queue = self._member.vhost.queues.get(self._queue)
        source = None if queue is None else queue.confirm_source
        return source.epoch if isinstance(source, InSync) else 0

    # -- messages ----------------------------------------------------------------------------------

    def _on_reserved(self, reply: Reply) -> None:
        if not isinstance(reply, Reserved):
            self._refused(reply)
            return
        self._check_silence()
        found = reply.members[0]
        self._reserved = found.end
        self._answered = max(self._answered, int(found.end))
        if found.start < found.end:
            self._fetch(found.start, found.end)

    def _fetch(self, first: int, end: int) -> None:
        """Fetch the range [first, end), to its end unless the node refuses."""
        seqs: list[int] = []

        def on_fetched(reply: Reply) -> None:
            if not isinstance(reply, Fetched):
                self._refused(reply)
                return
            self._check_silence()
            for each in _messages(bytes(reply.block)):
                seqs.append(each.seq)
                self._take(each)
            if reply.next < end:
                ask(reply.next)
            else:
                self._rows.end(first, end, seqs)

        def ask(start: int) -> None:
            assert self._client is not None
            request = Fetch(self._name, self._epoch, self._incarnation, start, end, 1000, _BYTES)
            self._ask(self._client, request, on_fetched)

        ask(first)

    def _take(self, each: _Read) -> None:
        row = Row(message_name(each.properties, each.body), zlib.crc32(each.body))
        if self._rows.take(each.seq, row):
            self._unacked.add(each.seq)
            self._world.recording.delivered(
                self._session, each.seq, each.redelivered, each.properties, each.body, False
            )


def _messages(block: bytes) -> list[_Read]:
    """The messages of a block (`queues/readers/record_block.py`)."""
    seed = crc_seed(block[12:28], file_header_number(block))
    at = FILE_HEADER_BYTES
    found = []
    while at < len(block):
        length = record_length(block, at, seed)
        start = at + RECORD_HEADER_BYTES
        message = decode_message(block, start, at + length)
        if length < 0 or message is None:
            raise Violation("corrupt", f"a block has no record at {at}")
        seq = int.from_bytes(block[start + _SEQ_AT : start + _SEQ_AT + 8], "big")
        redelivered = bool(block[start + _FLAGS_AT] & FLAG_REDELIVERED)
        found.append(_Read(seq, redelivered, bytes(message.properties), bytes(message.body)))
        at += length
    return found
