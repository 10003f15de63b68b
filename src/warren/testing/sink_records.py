"""Sinks, staging logs and staged messages as a history knows them; sink_models.py says what becomes of them."""

from __future__ import annotations

from typing import Final

from warren.testing.message_models import Content, Copy

NONE: Final = -1


class StagedMessage:
    """One message of a staging log; `exchange`, `key` and `expiration_ms` say what becomes of it when it is published."""

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
        # Who published it last, a node's watch; and its copies in the queues.
        self.published_by: object = None
        self.copies: list[Copy] = []
        self.is_durable = False
        # The one before it in the batch.
        self.previous: StagedMessage | None = None


class StageModel:
    """A staging log as its client knows it; `id` is the broker's."""

    def __init__(self, sink: SinkModel, stage_id: int, batch: int, target: bytes) -> None:
        self.sink = sink
        self.id = stage_id
        self.batch = batch
        # The queue that all of it goes to; empty: where its exchanges route it.
        self.target = target
        self.messages: list[StagedMessage] = []
        # Of them those that no queue would have got.
        self.unroutable = 0
        # Its end was announced, and that is durable.
        self.is_ending = False
        self.is_finished = False
        # It was given up, or a commit has left it out: it may be gone.
        self.is_dropped = False
        # A commit has named it.
        self.is_named = False


class SinkModel:
    """A sink as its clients know it."""

    def __init__(self, name: str) -> None:
        self.name = name
        # The last batch that it was said to have committed, and the one that was asked for without an answer.
        self.batch = NONE
        self.asked = NONE
        # Its deletion was asked for; or was said to have failed, and it had committed this batch.
        self.is_deleting = False
        self.former = NONE
        # By id; those of committed batches stay.
        self.stages: dict[int, StageModel] = {}

    def next_batch(self) -> int:
        """The number of a batch that is begun now."""
        return max(self.batch, self.asked) + 1

    def finished(self) -> list[StageModel]:
        """Logs that wait for their commit."""
        return [
            stage
            for stage in self.stages.values()
            if stage.is_finished and not stage.is_dropped and not stage.is_named
        ]

    def left_out(self, batch: int) -> None:
        """A commit of `batch` was asked for: what it does not name, up to this number, goes with it."""
        for stage in self.stages.values():
            if stage.batch <= batch and not stage.is_named:
                stage.is_dropped = True

    def forget_committed(self) -> None:
        """It is deleted, so its batches are all in their queues; numbers begin anew."""
        self.stages = {stage.id: stage for stage in self.stages.values() if not stage.is_named}

    def committed_messages(self) -> list[StagedMessage]:
        """Of all batches that are committed."""
        return [
            message
            for stage in self.stages.values()
            if stage.is_named and stage.batch <= self.batch
            for message in stage.messages
        ]
