"""A program that writes batches to a sink of a simulated cluster, as a query of Spark does.

It stages each batch at two nodes and commits it through one of them, which may die before it
answers: the program goes on with the other one, or stages the batch anew, until a node says that it
is committed. Each message of a committed batch comes to its queue exactly once, in the order of the
sink, whatever dies meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from simulator.cluster.clients import route
from simulator.cluster.member import Member
from simulator.cluster.world import World
from simulator.models.messages import Violation
from simulator.simulated.admin import AdminClient
from warrenmq.admin.protocol.requests import ErrorReply, Reply, Request
from warrenmq.admin.protocol.sinks import (
    BatchCommitted,
    CommitBatch,
    FinishStage,
    OpenStage,
    StageCopies,
    Staged,
    StageFinished,
    StageMessages,
    StageOpened,
)
from warrenmq.vocabulary.error_codes import NOT_FOUND, PRECONDITION, STORAGE_FAILED
from warrenmq.wire.properties import Properties

# A record's length, position count and timestamp, and the flags, all 0.
_NO_HEAD: Final = bytes(4 + 8 + 1)
_SIZE: Final = 30
# Nodes at which a batch is staged.
_COPIES: Final = 2
# The chance that the program commits with one copy when it cannot have two.
_GOES_ALONE: Final = 0.3
# Codes of a disk that fails, of a decision that nobody has made in time, and of stages that a later
# decision has dropped.
_REFUSALS: Final = frozenset((NOT_FOUND, PRECONDITION, STORAGE_FAILED))


class _Staged(NamedTuple):
    """A message of a batch: its name, its body, its queue, and its place in the sink."""

    name: str
    body: bytes
    queue: bytes
    place: int


class _Side:
    """The batch at one node."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.client = AdminClient(member)
        self.stage = 0
        self.is_finished = False
        # The node has refused something.
        self.is_over = False


class SinkWriter:
    """The sink `name` of `world`, and the one program that writes to it."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self._batch = 0
        # How many messages all batches so far have.
        self._count = 0
        self._messages: list[_Staged] = []
        # The history knows that the batch may be committed.
        self._is_told = False
        self._sides: list[_Side] = []
        # The node that was asked to commit, and has not answered.
        self._asked: _Side | None = None

    @property
    def is_idle(self) -> bool:
        """Whether all batches are known to be committed."""
        return not self._messages

    @property
    def nodes(self) -> list[str]:
        """The nodes that have the batch, the one that was asked to commit it first."""
        sides = sorted(self._sides, key=lambda side: side is not self._asked)
        return [side.member.name for side in sides if self._is_up(side.member)]

    @property
    def is_committing(self) -> bool:
        """Whether the writer waits for the answer to its commit."""
        return self._asked is not None

    def write(self, queues: list[bytes], count: int) -> None:
        """Begin a batch of `count` messages for `queues`, unless one is under way."""
        if self._messages:
            return
        self._batch += 1
        self._is_told = False
        for _ in range(count):
            name, body = self._world.recording.next_body(_SIZE)
            self._count += 1
            queue = self._world.rng.choice(queues)
            self._messages.append(_Staged(name, body, queue, self._count))
        self.resume()

    def resume(self) -> None:
        """Take what nodes have answered, and do what is next."""
        for side in self._sides:
            if self._is_up(side.member):
                side.client.take_answers()
        self._sides = [
            each for each in self._sides if self._is_up(each.member) and not each.is_over
        ]
        if self._asked not in self._sides:
            self._asked = None
        if not self._messages or self._asked is not None:
            return
        ready = [side for side in self._sides if side.is_finished]
        if len(self._sides) < _COPIES and not (ready and self._world.rng.random() < _GOES_ALONE):
            self._stage_at_another()
        elif ready and len(ready) == len(self._sides):
            self._commit(self._world.rng.choice(ready), ready)

    def _is_up(self, member: Member) -> bool:
        return self._world.members.get(member.name) is member and not member.is_frozen

    # -- stages ------------------------------------------------------------------------------------

    def _stage_at_another(self) -> None:
        used = [side.member for side in self._sides]
        free = [
            each
            for each in self._world.members.values()
            if each not in used and not each.is_frozen and not each.is_alarmed
        ]
        if not free:
            return
        side = _Side(self._world.rng.choice(free))
        self._sides.append(side)
        messages = self._messages
        properties = Properties(delivery_mode=2).encode()
        block = b"".join(_record(each.queue, properties, each.body) for each in messages)

        def on_opened(reply: Reply) -> None:
            if self._is(side, reply, StageOpened):
                assert isinstance(reply, StageOpened)
                side.stage = reply.stage
                self._ask(side, StageMessages(side.stage, memoryview(block)), on_staged)

        def on_staged(reply: Reply) -> None:
            if self._is(side, reply, Staged):
                self._ask(side, FinishStage(side.stage, len(messages)), on_finished)

        def on_finished(reply: Reply) -> None:
            side.is_finished = self._is(side, reply, StageFinished)

        self._ask(side, OpenStage(self._name, self._batch), on_opened)

    def _commit(self, asked: _Side, ready: list[_Side]) -> None:
        self._asked = asked
        if not self._is_told:
            self._is_told = True
            for each in self._messages:
                queues = route(asked.member, b"", each.queue)
                self._world.recording.staged(each.name, each.body, self._name, each.place, queues)

        def on_committed(reply: Reply) -> None:
            self._asked = None
            if self._is(asked, reply, BatchCommitted):
                for each in self._messages:
                    self._world.recording.confirmed(each.name)
                self._messages = []
                for side in self._sides:
                    side.client.leave()
                self._sides = []

        copies = [
            StageCopies(side.member.name, [side.stage]) for side in ready if side is not asked
        ]
        request = CommitBatch(self._name, self._batch, [asked.stage], copies=copies)
        self._ask(asked, request, on_committed)

    def _ask(self, side: _Side, request: Request, then: Callable[[Reply], None]) -> None:
        side.client.ask(request, then)
        side.member.has_news = True
        side.client.take_answers()

    def _is(self, side: _Side, reply: Reply, expected: type[Reply]) -> bool:
        """Whether a reply is the expected one; if the node refuses, its side is over."""
        if isinstance(reply, expected):
            return True
        if not isinstance(reply, ErrorReply) or reply.code not in _REFUSALS:
            raise Violation("sink", f"{self._name}: {reply}")
        self._world.recording.tell(f"            {self._name}: {reply.code} {reply.text}")
        side.is_over = True
        return False


def _record(queue: bytes, properties: bytes, body: bytes) -> bytes:
    """A message for `queue` as a record of `StageMessages`."""
    record = _NO_HEAD + b"\0" + bytes([len(queue)]) + queue
    record += len(properties).to_bytes(4, "big") + properties
    record += len(body).to_bytes(4, "big") + body
    return len(record).to_bytes(4, "big") + record
