"""Reader groups in a history: real admin requests over a session that is a function call.

One group for each queue, by its number; every other one has a pattern. It reserves ranges, reads them again and again,
and acks them; the oracle holds what an answer said is held, transient messages included, and compares every reading of
a range with the one before, across restarts too. What a request that is not answered yet will hold, nobody knows: see RESERVING.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from warren.admin.protocol import (
    LENGTH_BYTES,
    Ack,
    Acked,
    DeleteGroup,
    ErrorReply,
    Fetch,
    Fetched,
    GroupDeleted,
    GroupOpened,
    LoggedIn,
    Login,
    OpenGroup,
    Reply,
    Request,
    Reserve,
    Reserved,
    decode_reply,
    encode_frame,
)
from warren.admin.server import AdminSession
from warren.store.publish_body import decode_message
from warren.store.record import (
    FILE_HEADER_BYTES,
    INDEX_MAGIC,
    RECORD_HEADER_BYTES,
    body_is_valid,
    crc_seed,
    file_header_is_valid,
    file_header_number,
    record_length,
)
from warren.testing.operations import Operation
from warren.testing.oracle import (
    HELD,
    READY,
    RESERVING,
    UNSURE,
    Copy,
    GroupRecord,
    Oracle,
    QueueModel,
    Violation,
    number_of,
)
from warren.testing.simulated_node import VHOST, SimulatedNode

EVERYTHING: Final = 1 << 40
_FETCH_BYTES: Final = 1 << 20


class GroupSession:
    """One admin connection of one group."""

    def __init__(self, node: SimulatedNode) -> None:
        self.node = node
        self.output = bytearray()
        self.then: Callable[[Reply], None] | None = None
        self.is_closed = False
        self.session = AdminSession(node.admin, self, node.clock, "simulated", True)
        self.session.receive(bytes(encode_frame(Login("guest", "guest", "/"))))
        reply = self._take()
        assert isinstance(reply, LoggedIn), reply

    def write(self, data: bytearray, /) -> None:
        """The session answers."""
        self.output += data

    def close(self) -> None:
        """The session closes the connection."""
        self.is_closed = True

    def ask(self, request: Request, then: Callable[[Reply], None]) -> None:
        """Send `request`; `then` gets the answer, now or in a later turn."""
        self.then = then
        self.session.receive(bytes(encode_frame(request)))

    def look(self) -> None:
        """Has an answer come?"""
        if self.output and self.then is not None:
            then, self.then = self.then, None
            then(self._take())

    def _take(self) -> Reply:
        end = LENGTH_BYTES + int.from_bytes(self.output[:LENGTH_BYTES], "big")
        reply = decode_reply(bytes(self.output[LENGTH_BYTES:end]))
        del self.output[:end]
        return reply


class GroupSessions:
    """The reader groups' clients of one node, until it goes down."""

    def __init__(self, node: SimulatedNode, oracle: Oracle) -> None:
        self.node = node
        self.oracle = oracle
        self._sessions: dict[int, GroupSession] = {}

    def look(self) -> None:
        """Take what has been answered in this turn."""
        for index in sorted(self._sessions):
            self._sessions[index].look()

    def is_waiting(self) -> bool:
        """Is an answer outstanding?"""
        return any(session.then is not None for session in self._sessions.values())

    def close_all(self) -> None:
        """Nobody is connected any more; what groups hold stays held."""
        for session in self._sessions.values():
            session.session.connection_lost()
        self._sessions.clear()

    def run(self, operation: Operation, index: int, queue: QueueModel) -> bool:
        """One operation of the group of that queue; False when it means nothing now."""
        if not queue.durable or queue.is_deleting or queue.ttl_ms:
            return False
        session = self._sessions.get(index)
        if session is None:
            session = self._sessions[index] = GroupSession(self.node)
        if session.then is not None:
            return False
        group = self.oracle.groups.get(index)
        if group is None or group.queue is not queue or not group.is_open:
            self._open(session, index, queue)
            return True
        match operation.kind:
            case "group_reserve":
                self._reserve(session, group, operation.number(1), bool(operation.number(2)))
            case "group_fetch":
                self._fetch(session, group)
            case "group_ack":
                self._ack(session, group, operation.number(1))
            case _:
                self._delete(session, index, group)
        return True

    def _open(self, session: GroupSession, index: int, queue: QueueModel) -> None:
        def opened(reply: Reply) -> None:
            if isinstance(reply, GroupOpened):
                self._on_opened(index, queue, reply)
            elif not queue.is_deleting:
                self._check_failure(reply)

        record = self.oracle.groups.get(index)
        if record is None or record.queue is not queue:
            self.oracle.groups[index] = GroupRecord(queue)
        # The broker journals transient messages, too, from now on.
        queue.has_group = True
        session.ask(_opening(index, queue), opened)

    def _on_opened(self, index: int, queue: QueueModel, reply: GroupOpened) -> None:
        group = self.oracle.groups.get(index)
        if group is None or group.queue is not queue:
            return
        # A queue before it that had been read to its end may still be listed.
        member = reply.members[-1]
        if member.reserved < group.reserved or member.acked > group.ack_asked:
            raise Violation(
                "group",
                f"the group of {queue.name} is at {member.acked} to {member.reserved}; it had reserved up to {group.reserved} "
                f"and acked at most up to {group.ack_asked}",
            )
        group.is_open = True
        queue.journals_all = True
        group.epoch = reply.epoch
        group.acked = member.acked
        group.reserved = member.reserved

    def _reserve(self, session: GroupSession, group: GroupRecord, count: int, goes_on: bool) -> None:
        start = group.reserved if goes_on else group.acked
        self._let_go(group, start)
        group.queue.is_reserving = True
        for copy in group.queue.copies.values():
            if copy.state == READY:
                copy.state = RESERVING

        def reserved(reply: Reply) -> None:
            group.queue.is_reserving = False
            if isinstance(reply, Reserved):
                self._on_reserved(group, start, reply.members[0].end)
            else:
                self._check_failure(reply)
                # What it took before its commit failed stays with the group.
                group.has_failed = True
                for copy in group.queue.copies.values():
                    if copy.state == READY:
                        copy.state = RESERVING

        session.ask(
            Reserve(_name_of(self.oracle, group), group.epoch, {group.queue.id: start}, count, EVERYTHING),
            reserved,
        )

    def _on_reserved(self, group: GroupRecord, start: int, end: int) -> None:
        group.reserved = max(group.reserved, end)
        group.acked = max(group.acked, min(start, group.reserved))
        engine = self.node.vhost.queues.get(group.queue.name.encode())
        indexed_upto = engine.log.indexed_upto if engine is not None else 0
        for copy in list(group.queue.copies.values()):
            if start <= copy.seq < end and copy.state in (RESERVING, READY):
                # What was over before it could be taken is not held, and nobody says so.
                copy.state = UNSURE if copy.is_expired(self.node.now_ms) else HELD
                copy.is_must = copy.is_kept = not (copy.is_early and copy.seq < indexed_upto)
            elif copy.state == RESERVING and not group.has_failed:
                self.oracle.requeue(copy)

    def _let_go(self, group: GroupRecord, end: int) -> list[Copy]:
        group.ack_asked = max(group.ack_asked, end)
        settled = [copy for copy in group.queue.copies.values() if copy.state == HELD and copy.seq < end]
        for copy in settled:
            self.oracle.settle(copy)
        return settled

    def _fetch(self, session: GroupSession, group: GroupRecord) -> None:
        start, end = group.acked, group.reserved
        if start == end:
            return

        def ask(first: int) -> None:
            name = _name_of(self.oracle, group)
            session.ask(
                Fetch(name, group.epoch, group.queue.id, first, end, 100_000, _FETCH_BYTES),
                lambda reply: fetched(first, reply),
            )

        def fetched(first: int, reply: Reply) -> None:
            if not isinstance(reply, Fetched):
                self._check_failure(reply)
                return
            numbers = read_numbers(reply.block, self.oracle)
            expected = [
                copy.content.number
                for copy in sorted(group.queue.copies.values(), key=lambda copy: copy.seq)
                if copy.state == HELD and first <= copy.seq < reply.next
            ]
            if [number for number in numbers if number in expected] != expected or reply.next <= first:
                raise Violation(
                    "group",
                    f"the range {first} to {reply.next} of {group.queue.name} has {numbers}, not {expected}",
                )
            if reply.next < end and group.is_open:
                ask(reply.next)

        ask(start)

    def _ack(self, session: GroupSession, group: GroupRecord, count: int) -> None:
        end = min(group.reserved, group.acked + count)
        self._let_go(group, end)

        def acked(reply: Reply) -> None:
            if isinstance(reply, Acked):
                group.acked = max(group.acked, *reply.acked.values())
            else:
                self._check_failure(reply)

        session.ask(Ack(_name_of(self.oracle, group), group.epoch, {group.queue.id: end}), acked)

    def _delete(self, session: GroupSession, index: int, group: GroupRecord) -> None:
        for copy in group.queue.copies.values():
            if copy.state in (HELD, RESERVING):
                self.oracle.requeue(copy)
        self.oracle.groups.pop(index)
        group.is_open = False

        def deleted(reply: Reply) -> None:
            if not isinstance(reply, GroupDeleted):
                self._check_failure(reply)

        session.ask(DeleteGroup(_name(index)), deleted)

    def _check_failure(self, reply: Reply) -> None:
        if not isinstance(reply, ErrorReply):
            raise Violation("answer", f"unexpected {reply}")
        is_disk = reply.code == "storage_failed" and self.node.failed_commits > 0
        if not is_disk and reply.code not in ("data_loss", "not_found"):
            raise Violation("group", f"{reply.code}: {reply.text}")


def take_back(node: SimulatedNode, oracle: Oracle) -> dict[int, list[int]]:
    """Delete every group of the node; what they held, by queue id: the numbers of the messages."""
    held: dict[int, list[int]] = {}
    vhost = node.admin.vhost(VHOST)
    assert vhost is not None
    groups = vhost.reader_groups.by_name
    for name in sorted(groups):
        group = groups[name]
        session = GroupSession(node)
        for member in group.ordered():
            queue = member.queue
            if queue is not None:
                first = member.acked
                while first < member.reserved:
                    fetch = Fetch(
                        name.decode(), group.epoch, queue.id, first, member.reserved, 100_000, _FETCH_BYTES
                    )
                    found = _answer(session, fetch)
                    assert isinstance(found, Fetched), found
                    assert found.next > first
                    held.setdefault(queue.id, []).extend(read_numbers(found.block, oracle))
                    first = found.next
        _answer(session, DeleteGroup(name.decode()))
        session.session.connection_lost()
    return held


def _answer(session: GroupSession, request: Request) -> Reply:
    replies: list[Reply] = []
    session.ask(request, replies.append)
    session.look()
    if not replies:
        session.node.drain()
        session.look()
    return replies[0]


def _opening(index: int, queue: QueueModel) -> OpenGroup:
    """Every other group finds its queue by a pattern."""
    if index % 2:
        return OpenGroup(_name(index), pattern=re.escape(queue.name), may_rebind=True)
    return OpenGroup(_name(index), [queue.name.encode()], may_rebind=True)


def _name(index: int) -> str:
    return f"g{index}"


def _name_of(oracle: Oracle, group: GroupRecord) -> str:
    return next(_name(index) for index, other in oracle.groups.items() if other is group)


def read_numbers(block: memoryview, oracle: Oracle) -> list[int]:
    """The numbers of the messages in a block (`queues/record_block.py`), whose content is as published."""
    data = bytes(block)
    assert file_header_is_valid(data, INDEX_MAGIC, b"")
    seed = crc_seed(data[12:28], file_header_number(data))
    at = FILE_HEADER_BYTES
    numbers: list[int] = []
    while at < len(data):
        length = record_length(data, at, seed)
        message = decode_message(data, at + RECORD_HEADER_BYTES, at + length)
        if length < 0 or not body_is_valid(data, at, length) or message is None:
            raise Violation("corrupt", f"a block has no record at {at}")
        number = number_of(message.body)
        content = oracle.contents.get(number)
        if content is None or content.body != message.body:
            raise Violation("corrupt", f"a range has {message.body[:16]!r}..., which nobody published")
        numbers.append(number)
        at += length
    return numbers
