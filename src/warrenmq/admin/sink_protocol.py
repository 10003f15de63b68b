"""Requests and replies of the admin protocol that concern sinks (`protocol.py` has the others, and how they travel)."""

from msgspec import Struct

from warrenmq.admin.fields import BatchBefore, GroupName, Position, ShortStr, WaitMs


class OpenStage(Struct, tag="open_stage", forbid_unknown_fields=True, frozen=True):
    """Begin a staging log for a part of a sink's batch. With `queue`, for administrators only: all of its messages go to
    that queue, whatever exchange and routing key they name. Reply: StageOpened."""

    sink: GroupName
    batch: Position
    queue: ShortStr = b""


class StageMessages(Struct, tag="stage_messages", forbid_unknown_fields=True, frozen=True):
    """Append messages to a staging log that this session has opened. `block`: of each message the size of what follows (u32,
    big-endian), then the body of a PUBLISH record (docs/storage.md) without positions. Reply: Staged, when the node has
    room for more."""

    stage: Position
    block: memoryview


class FinishStage(Struct, tag="finish_stage", forbid_unknown_fields=True, frozen=True):
    """The staging log is complete, with so many messages. Reply: StageFinished, when it is durable."""

    stage: Position
    messages: Position


class CommitBatch(Struct, tag="commit_batch", forbid_unknown_fields=True, frozen=True):
    """Publish these staging logs, in this order, as a batch of the sink; may be repeated. With `mandatory`, not if some
    message would get to no queue (code `unroutable`). With `after`, only when that was the sink's last batch (-1: when it
    had none; code `precondition`). Reply: BatchCommitted, when that is durable, and all is published or `wait_ms` are
    over."""

    sink: GroupName
    batch: Position
    stages: list[Position]
    mandatory: bool = True
    wait_ms: WaitMs = 0
    after: BatchBefore | None = None


class AbortStages(Struct, tag="abort_stages", forbid_unknown_fields=True, frozen=True):
    """Drop staging logs, but for committed ones. Reply: StagesAborted."""

    stages: list[Position]


class DescribeSink(Struct, tag="describe_sink", forbid_unknown_fields=True, frozen=True):
    """One sink. Reply: SinkStatus."""

    sink: GroupName


class ListSinks(Struct, tag="list_sinks", forbid_unknown_fields=True, frozen=True):
    """All sinks of the vhost. Reply: SinkList."""


class DeleteSink(Struct, tag="delete_sink", forbid_unknown_fields=True, frozen=True):
    """Forget a sink, and drop its staging logs. Reply: SinkDeleted."""

    sink: GroupName


class StageOpened(Struct, tag="stage_opened", frozen=True):
    """The staging log `stage` is the session's, until it is finished. A block may have so many bytes; a larger request ends
    the session."""

    stage: int
    block_bytes_max: int


class Staged(Struct, tag="staged", frozen=True):
    """The node has so many more messages."""

    messages: int


class StageFinished(Struct, tag="stage_finished", frozen=True):
    """The staging log is durable; it outlives the session. So many of its messages would get to no queue."""

    unroutable: int


class BatchCommitted(Struct, tag="batch_committed", frozen=True):
    """The batch is committed, durably; before this request, if `is_repeated`. `is_moved`: all of it is in its queues."""

    is_repeated: bool
    is_moved: bool


class StagesAborted(Struct, tag="stages_aborted", frozen=True):
    """So many staging logs were dropped."""

    count: int


class SinkStatus(Struct, tag="sink_status", frozen=True):
    """One sink: the last batch it committed (None: none yet), whether that is being published and how many messages are
    left of it; its other staging logs, and the messages in them."""

    sink: str
    batch: int | None
    is_busy: bool
    messages_left: int
    stages: int
    staged_messages: int


class SinkList(Struct, tag="sink_list", frozen=True):
    """By name."""

    sinks: list[SinkStatus]


class SinkDeleted(Struct, tag="sink_deleted", frozen=True):
    """The sink is gone, durably."""


SinkRequest = (
    OpenStage
    | StageMessages
    | FinishStage
    | CommitBatch
    | AbortStages
    | DescribeSink
    | ListSinks
    | DeleteSink
)
SinkReply = (
    StageOpened
    | Staged
    | StageFinished
    | BatchCommitted
    | StagesAborted
    | SinkStatus
    | SinkList
    | SinkDeleted
)
