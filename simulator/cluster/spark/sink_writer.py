"""A sink of a simulated cluster: each batch is staged at one node and committed there.

A committed batch is promised: its messages come to their queue, which may have its master at
another node, when both nodes run. A death on the way may double them.
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


class SinkWriter:
    """The sink `name`, which writes to `queue` through the node `member` of `world`."""

    def __init__(self, world: World, name: str, member: Member) -> None:
        self._world = world
        self._name = name
        self._member = member
        self._client = AdminClient(member)

    @property
    def is_busy(self) -> bool:
        """Whether the writer waits for an answer, or its node is gone."""
        is_gone = self._world.members.get(self._member.name) is not self._member
        return is_gone or self._member.is_frozen or self._client.then is not None

    @property
    def is_lost(self) -> bool:
        """Whether the node of the writer is gone."""
        return self._world.members.get(self._member.name) is not self._member

    def take_answers(self) -> None:
        """Take what the broker has answered."""
        if not self.is_lost:
            self._client.take_answers()

    def write(self, queue: bytes, batch: int, count: int) -> None:
        """Stage and commit a batch of `count` messages for `queue`."""
        recording = self._world.recording
        properties = Properties(delivery_mode=2).encode()
        messages = [recording.next_body(_SIZE) for _ in range(count)]
        block = b"".join(_record(queue, properties, body) for _name, body in messages)

        def on_opened(reply: Reply) -> None:
            if self._is(reply, StageOpened):
                assert isinstance(reply, StageOpened)
                stage = reply.stage
                request = StageMessages(stage, memoryview(block))
                self._ask(request, lambda reply: on_staged(stage, reply))

        def on_staged(stage: int, reply: Reply) -> None:
            if self._is(reply, Staged):
                self._ask(FinishStage(stage, count), lambda reply: on_finished(stage, reply))

        def on_finished(stage: int, reply: Reply) -> None:
            if self._is(reply, StageFinished):
                queues = route(self._member, b"", queue)
                for name, body in messages:
                    recording.handed_over(name, body, queues)
                self._ask(CommitBatch(self._name, batch, [stage], False), on_committed)

        def on_committed(reply: Reply) -> None:
            if self._is(reply, BatchCommitted):
                for name, _body in messages:
                    recording.confirmed(name)

        self._ask(OpenStage(self._name, batch), on_opened)

    def _ask(self, request: Request, then: Callable[[Reply], None]) -> None:
        self._client.ask(request, then)
        self._member.has_news = True
        self._client.take_answers()

    def _is(self, reply: Reply, expected: type[Reply]) -> bool:
        """Whether a reply is the expected one, and no failure of the disk."""
        if isinstance(reply, expected):
            return True
        if not isinstance(reply, ErrorReply) or reply.code != STORAGE_FAILED:
            raise Violation("sink", f"{self._name}: {reply}")
        return False


def _record(queue: bytes, properties: bytes, body: bytes) -> bytes:
    """A message for `queue` as a record of `StageMessages`."""
    record = _NO_HEAD + b"\0" + bytes([len(queue)]) + queue
    record += len(properties).to_bytes(4, "big") + properties
    record += len(body).to_bytes(4, "big") + body
    return len(record).to_bytes(4, "big") + record
