"""Sinks, stages and staged messages as a history knows them; `sinks.py` follows their fate."""

from __future__ import annotations

from typing import Final

from simulator.models.messages import Content, Copy

NONE: Final = -1


class StagedMessage:
    """One message of a stage; it is published with `exchange`, `key` and `expiration_ms`."""

    __slots__ = (
        "content", "copies", "exchange", "expiration_ms", "is_durable", "key", "previous", "published_by", "stage",
    )  # fmt: skip

    def __init__(
        self, stage: StageModel, content: Content, exchange: bytes, key: bytes, expiration_ms: int
    ) -> None:
        self.stage = stage
        self.content = content
        self.exchange = exchange
        self.key = key
        self.expiration_ms = expiration_ms
        # Watch of the node that published the message last; None: no node did.
        self.published_by: object = None
        # Copies of the message in the queues it was routed to.
        self.copies: list[Copy] = []
        # The batch that moved the message to its queues is on disk.
        self.is_durable = False
        # The message before this one in the batch.
        self.previous: StagedMessage | None = None


class StageModel:
    """A stage as its client knows it; `id` is the broker's."""

    def __init__(self, sink: SinkModel, stage_id: int, batch: int, target: bytes) -> None:
        self.sink = sink
        self.id = stage_id
        self.batch = batch
        # Name of the queue that gets all messages; empty: exchanges route them.
        self.target = target
        self.messages: list[StagedMessage] = []
        # Number of messages that no queue would have got when they were staged.
        self.unroutable = 0
        # The client has asked to finish the log.
        self.is_ending = False
        # The node has answered that the finished log is durable.
        self.is_finished = False
        # The client aborted the log, or a commit left it out: the node may have deleted it.
        self.is_dropped = False
        # A commit names this log.
        self.is_named = False


class SinkModel:
    """A sink as its clients know it."""

    def __init__(self, name: str) -> None:
        self.name = name
        # The last batch whose commit the node has confirmed.
        self.batch = NONE
        # A batch whose commit was requested and not answered yet.
        self.asked = NONE
        # The deletion of the sink was requested and not answered yet.
        self.is_deleting = False
        # The last batch before a deletion that the node said had failed.
        self.former = NONE
        # Staging logs by id, those of committed batches included.
        self.stages: dict[int, StageModel] = {}

    def next_batch(self) -> int:
        """The number for a new batch."""
        return max(self.batch, self.asked) + 1

    def finished(self) -> list[StageModel]:
        """Finished stages that no commit has named yet."""
        return [
            stage
            for stage in self.stages.values()
            if stage.is_finished and not stage.is_dropped and not stage.is_named
        ]

    def left_out(self, batch: int) -> None:
        """Drop every log of batches up to `batch` that the requested commit does not name."""
        for stage in self.stages.values():
            if stage.batch <= batch and not stage.is_named:
                stage.is_dropped = True

    def forget_committed(self) -> None:
        """Forget committed logs of a deleted sink; the next sink of that name counts anew.

        All messages of the logs are in queues.
        """
        self.stages = {stage.id: stage for stage in self.stages.values() if not stage.is_named}

    def committed_messages(self) -> list[StagedMessage]:
        """The messages of all committed batches."""
        return [
            message
            for stage in self.stages.values()
            if stage.is_named and stage.batch <= self.batch
            for message in stage.messages
        ]
