"""A reader group of a simulated cluster, as a stream uses it: it reads one queue at its master.

To the history it is a consumer. Its session lasts as long as the queue stays at its node: there a
group keeps what it has reserved, also over a restart. A group that finds its queue at another node
begins there anew: what it had reserved is in the queue again.
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
    NOT_FOUND,
    PRECONDITION,
    STORAGE_FAILED,
)

# Codes of a node that is not the queue's master any more, or whose disk fails.
_REFUSALS: Final = frozenset(
    (ACCESS_REFUSED, DATA_LOSS, FENCED, NOT_FOUND, PRECONDITION, STORAGE_FAILED)
)
_BYTES: Final = 1 << 20
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
        # Where the client is connected, and which life of the queue the session reads there.
        self._member: Member | None = None
        self._place = ("", 0)
        self._session = ""
        self._session_count = 0
        self._epoch = 0
        self._acked = 0
        self._reserved = 0
        # Messages to reserve when the group is open.
        self._wanted = 0
        # Messages that the session has got and not acked, by seq id.
        self._unacked: set[int] = set()
        # Seq ids from this one on are new to the session.
        self._next_new = 0

    # -- steps -------------------------------------------------------------------------------------

    def read(self, count: int) -> None:
        """Reserve up to `count` more messages and read them, as soon as the group is open."""
        self._wanted = count
        client = self._idle()
        if client is not None:
            self._reserve(client)

    def _reserve(self, client: AdminClient) -> None:
        count, self._wanted = self._wanted, 0
        starts = {self._place[1]: self._reserved}
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
            if isinstance(reply, Acked):
                self._acked = max(self._acked, acked[-1] + 1)
                if epoch == self._master_epoch():
                    recording.answered(session, epoch)
            else:
                self._refused(reply)

        self._ask(client, Ack(self._name, self._epoch, {self._place[1]: acked[-1] + 1}), on_acked)

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
        self._epoch = 0
        request = OpenGroup(self._name, [self._queue], may_rebind=True)
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
        place = (self._member.name, found.incarnation)
        if place != self._place or found.acked < self._acked:
            self._begin_session(self._member, place, found.acked)
        self._epoch = reply.epoch
        self._acked = found.acked
        # The range that was reserved is read again.
        self._reserved = found.acked
        if self._wanted and self._client is not None:
            self._reserve(self._client)

    def _begin_session(self, member: Member, place: tuple[str, int], acked: int) -> None:
        recording = self._world.recording
        if self._session:
            recording.ended(self._session)
        self._session_count += 1
        self._session = f"{self._name}.{self._session_count}"
        self._place = place
        self._unacked.clear()
        self._next_new = acked
        recording.started(self._session, life_of(member, self._queue), member.name, 0)

    def _refused(self, reply: Reply) -> None:
        """Begin anew: the node has refused a request."""
        if not isinstance(reply, ErrorReply) or reply.code not in _REFUSALS:
            raise Violation("group", f"{self._name}: {reply}")
        self._world.recording.tell(f"            {self._name}: {reply.code} {reply.text}")
        self.leave()
        if reply.code != STORAGE_FAILED:
            self._place = ("", 0)

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
        if found.start < found.end:
            self._fetch(found.start, found.end)

    def _fetch(self, start: int, end: int) -> None:
        def on_fetched(reply: Reply) -> None:
            if not isinstance(reply, Fetched):
                self._refused(reply)
                return
            for each in _messages(bytes(reply.block)):
                self._take(each)
            if reply.next < end:
                self._fetch(reply.next, end)

        assert self._client is not None
        request = Fetch(self._name, self._epoch, self._place[1], start, end, 1000, _BYTES)
        self._ask(self._client, request, on_fetched)

    def _take(self, each: _Read) -> None:
        if each.seq < self._next_new:
            # The session reads what it had reserved once more.
            return
        self._next_new = each.seq + 1
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
