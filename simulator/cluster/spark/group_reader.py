"""A reader group of a simulated cluster, as a stream uses it: it reads one queue at its master.

To the history it is a consumer. Its session lasts as long as the queue lives: the group keeps what
it has reserved over restarts, and follows the queue to its next master, sometimes with the epoch
that it has, sometimes by opening the group again. There it reads what it has not acked once more:
exactly the same messages. An unsafe promotion is data loss, and begins another session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from simulator.cluster.clients import life_of
from simulator.cluster.member import Member
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
        # Messages that the session has got and not acked, by seq id, and those that it has acked.
        self._unacked: set[int] = set()
        self._done: set[int] = set()
        # Seq ids from this one on are new to the session.
        self._next_new = 0
        # What the range that is read has had so far: messages known before, and new ones.
        self._again: set[int] = set()
        self._new: set[int] = set()

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
            self._done.add(seq)
            recording.acked(session, seq)
        recording.called(session)

        def on_acked(reply: Reply) -> None:
            if not isinstance(reply, Acked):
                self._refused(reply)
            elif epoch == self._master_epoch():
                recording.answered(session, epoch)

        # A stream goes on from here, whether it hears of the ack or not.
        self._acked = acked[-1] + 1
        self._ask(
            client, Ack(self._name, self._epoch, {self._incarnation: acked[-1] + 1}), on_acked
        )

    def take_answers(self) -> None:
        """Take what the broker has answered."""
        if self._client is not None and not self._is_lost():
            self._client.take_answers()

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
        members = self._world.members.values()
        masters = [
            each for each in members if self._queue in each.vhost.queues and not each.is_frozen
        ]
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
        if found.incarnation != self._incarnation or self._accepts_loss:
            self._begin_session(self._member, found.incarnation, found.acked)
        elif found.reserved < self._answered:
            text = f"{self._name} had reserved up to {self._answered}, and now {found.reserved}"
            raise Violation("group", text)
        self._accepts_loss = False
        self._epoch = reply.epoch
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
        self._done.clear()
        self._acked = self._next_new = acked
        self._answered = 0
        recording.started(self._session, self._life, member.name, 0)

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
        promises = self._world.recording.promises
        if is_same and not promises.is_unsafe_since(self._life, self._since_us):
            raise Violation("group", f"{self._name}: {text}")

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
        found = reply.members[0]
        self._reserved = found.end
        self._answered = max(self._answered, int(found.end))
        if found.start < found.end:
            self._again, self._new = set(), set()
            self._fetch(found.start, found.start, found.end)

    def _fetch(self, first: int, start: int, end: int) -> None:
        """Fetch from `start` on; the range is [first, end)."""

        def on_fetched(reply: Reply) -> None:
            if not isinstance(reply, Fetched):
                self._refused(reply)
                return
            for each in _messages(bytes(reply.block)):
                self._take(each)
            if reply.next < end:
                self._fetch(first, reply.next, end)
            else:
                self._check_again(first, end)

        assert self._client is not None
        request = Fetch(self._name, self._epoch, self._incarnation, start, end, 1000, _BYTES)
        self._ask(self._client, request, on_fetched)

    def _take(self, each: _Read) -> None:
        if each.seq < self._next_new:
            # The session reads what it had reserved once more.
            self._again.add(each.seq)
            return
        self._next_new = each.seq + 1
        self._unacked.add(each.seq)
        self._new.add(each.seq)
        self._world.recording.delivered(
            self._session, each.seq, each.redelivered, each.properties, each.body, False
        )

    def _check_again(self, first: int, end: int) -> None:
        """Violation unless the messages of a range that had been read before are all there."""
        before = {seq for seq in self._unacked if first <= seq < min(end, self._next_new)}
        # What this reading has brought is new.
        missing = {seq for seq in before if seq not in self._again and seq not in self._new}
        strange = self._again - self._unacked - self._done
        if missing or strange:
            text = f"{self._name} reads {sorted(missing)} no more, and {sorted(strange)} as well"
            raise Violation("group", text)


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
