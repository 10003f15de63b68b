"""A sink of a simulated cluster: each batch is staged at two nodes and committed at one of them.

A committed batch is promised: each of its messages comes once to its queue, which may have its
master at another node, when that and one of the two nodes run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

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
from warrenmq.vocabulary.error_codes import STORAGE_FAILED
from warrenmq.wire.properties import Properties

# A record's length, position count and timestamp, and the flags, all 0.
_NO_HEAD: Final = bytes(4 + 8 + 1)
_SIZE: Final = 30


class _Stager:
    """Stages the batch of a sink at one node; `done` gets the id of the stage, None if it fails."""

    def __init__(self, name: str, member: Member, client: AdminClient) -> None:
        self._name = name
        self._member = member
        self._client = client

    def stage(
        self, batch: int, block: bytes, count: int, done: Callable[[int | None], None]
    ) -> None:
        """Stage `count` messages."""

        def on_opened(reply: Reply) -> None:
            if not is_answer(reply, StageOpened):
                done(None)
                return
            assert isinstance(reply, StageOpened)
            stage = reply.stage
            request = StageMessages(stage, memoryview(block))
            self.ask(request, lambda reply: on_staged(stage, reply))

        def on_staged(stage: int, reply: Reply) -> None:
            if is_answer(reply, Staged):
                self.ask(FinishStage(stage, count), lambda reply: on_finished(stage, reply))
            else:
                done(None)

        def on_finished(stage: int, reply: Reply) -> None:
            done(stage if is_answer(reply, StageFinished) else None)

        self.ask(OpenStage(self._name, batch), on_opened)

    def ask(self, request: Request, then: Callable[[Reply], None]) -> None:
        """Send a request; `then` gets the answer."""
        self._client.ask(request, then)
        self._member.has_news = True
        self._client.take_answers()


class SinkWriter:
    """The sink `name`, which writes through the node `member` of `world`; `other` has copies."""

    def __init__(self, world: World, name: str, member: Member, other: Member) -> None:
        self._world = world
        self._name = name
        self._member = member
        self._other = other
        self._client = AdminClient(member)
        self._copier = AdminClient(other)
        # Commits the batch that is being staged without the other node.
        self._go_alone: Callable[[], None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether the writer waits for an answer."""
        return (
            self._member.is_frozen or self._client.then is not None or self._copier.then is not None
        )

    @property
    def is_lost(self) -> bool:
        """Whether a node of the writer is gone."""
        members = self._world.members
        return any(members.get(member.name) is not member for member in (self._member, self._other))

    def take_answers(self) -> None:
        """Take what the nodes have answered."""
        members = self._world.members
        if members.get(self._other.name) is self._other:
            self._copier.take_answers()
        elif self._go_alone is not None and members.get(self._member.name) is self._member:
            go_alone, self._go_alone = self._go_alone, None
            go_alone()
        if members.get(self._member.name) is self._member:
            self._client.take_answers()

    def write(self, queue: bytes, batch: int, count: int) -> None:
        """Stage and commit a batch of `count` messages for `queue`."""
        recording = self._world.recording
        properties = Properties(delivery_mode=2).encode()
        messages = [recording.next_body(_SIZE) for _ in range(count)]
        block = b"".join(_record(queue, properties, body) for _name, body in messages)
        here = _Stager(self._name, self._member, self._client)
        there = _Stager(self._name, self._other, self._copier)

        def on_staged(stage: int | None) -> None:
            if stage is not None:
                self._go_alone = lambda: commit(stage, [])
                there.stage(batch, block, count, lambda copy: on_copied(stage, copy))

        def on_copied(stage: int, copy: int | None) -> None:
            if self._go_alone is not None:
                self._go_alone = None
                commit(stage, [] if copy is None else [StageCopies(self._other.name, [copy])])

        def commit(stage: int, copies: list[StageCopies]) -> None:
            if self._world.members.get(self._member.name) is not self._member:
                return
            queues = route(self._member, b"", queue)
            for name, body in messages:
                recording.staged(name, body, queues)
            request = CommitBatch(self._name, batch, [stage], False, copies=copies)
            here.ask(request, on_committed)

        def on_committed(reply: Reply) -> None:
            if is_answer(reply, BatchCommitted):
                for name, _body in messages:
                    recording.confirmed(name)

        here.stage(batch, block, count, on_staged)


def is_answer(reply: Reply, expected: type[Reply]) -> bool:
    """Whether a reply is the expected one, and no failure of the disk or of etcd."""
    if isinstance(reply, expected):
        return True
    if not isinstance(reply, ErrorReply) or reply.code != STORAGE_FAILED:
        raise Violation("sink", f"{reply}")
    return False


def _record(queue: bytes, properties: bytes, body: bytes) -> bytes:
    """A message for `queue` as a record of `StageMessages`."""
    record = _NO_HEAD + b"\0" + bytes([len(queue)]) + queue
    record += len(properties).to_bytes(4, "big") + properties
    record += len(body).to_bytes(4, "big") + body
    return len(record).to_bytes(4, "big") + record
