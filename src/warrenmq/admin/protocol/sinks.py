"""Requests and replies of the admin protocol for sinks; `requests.py` has the others."""

from typing import Annotated

from msgspec import Meta, Struct

from warrenmq.admin.protocol import fields


class OpenStage(Struct, tag="open_stage", forbid_unknown_fields=True, frozen=True):
    """Begin a stage for a part of a sink's batch. Reply: StageOpened.

    With `queue`, for administrators only, all of its messages go to that queue, whatever exchange
    and routing key they name.
    """

    sink: fields.GroupName
    batch: fields.Position
    queue: fields.ShortStr = b""


class StageMessages(Struct, tag="stage_messages", forbid_unknown_fields=True, frozen=True):
    """Append messages to a stage of this session. Reply: Staged, when there is room for more.

    `block` has for each message the size of the rest (u32, big-endian), then the body of a PUBLISH
    record (docs/storage/format.md) without positions. With `room_ms`, refused when the batch has
    found no room for so long (code `no_room`).
    """

    stage: fields.Position
    block: memoryview
    room_ms: fields.RoomMs | None = None


class FinishStage(Struct, tag="finish_stage", forbid_unknown_fields=True, frozen=True):
    """Finish a stage that has `messages` messages. Reply: StageFinished, when it is durable."""

    stage: fields.Position
    messages: fields.Position


class StageCopies(Struct, forbid_unknown_fields=True, frozen=True):
    """The stages of a batch at the node `node`, in the order of the batch."""

    node: Annotated[str, Meta(min_length=1, max_length=255)]
    stages: list[fields.Position]


class CommitBatch(Struct, tag="commit_batch", forbid_unknown_fields=True, frozen=True):
    """Publish `stages`, in this order, as a batch of the sink. Reply: BatchCommitted.

    May be repeated. With `mandatory`, refused when a message would reach no queue (code
    `unroutable`). With `after`, refused unless that was the sink's last batch (-1: it had none;
    code `precondition`). With `room_ms`, refused when the batch before it has messages left for so
    long (code `no_room`). The reply comes when the commit is durable and either all messages are
    published or `wait_ms` are over.

    In a cluster, `copies` names the nodes that have the same messages in stages of their own, all
    of the batch, beside the node that is asked: any of them may publish the batch.
    """

    sink: fields.GroupName
    batch: fields.Position
    stages: list[fields.Position]
    mandatory: bool = True
    wait_ms: fields.WaitMs = 0
    after: fields.BatchBefore | None = None
    room_ms: fields.RoomMs | None = None
    copies: list[StageCopies] = []


class AbortStages(Struct, tag="abort_stages", forbid_unknown_fields=True, frozen=True):
    """Drop stages, except committed ones. Reply: StagesAborted."""

    stages: list[fields.Position]


class DescribeSink(Struct, tag="describe_sink", forbid_unknown_fields=True, frozen=True):
    """Describe one sink. Reply: SinkStatus."""

    sink: fields.GroupName


class ListSinks(Struct, tag="list_sinks", forbid_unknown_fields=True, frozen=True):
    """List all sinks of the vhost. Reply: SinkList."""


class DeleteSink(Struct, tag="delete_sink", forbid_unknown_fields=True, frozen=True):
    """Forget a sink and drop its stages. Reply: SinkDeleted."""

    sink: fields.GroupName


class StageOpened(Struct, tag="stage_opened", frozen=True):
    """The session has the stage `stage` until it finishes it.

    A block may have up to `block_bytes_max` bytes; a larger request ends the session.
    """

    stage: int
    block_bytes_max: int


class Staged(Struct, tag="staged", frozen=True):
    """The node has staged `messages` more messages."""

    messages: int


class StageFinished(Struct, tag="stage_finished", frozen=True):
    """The stage is durable and outlives the session; `unroutable` messages would reach no queue."""

    unroutable: int


class BatchCommitted(Struct, tag="batch_committed", frozen=True):
    """The batch is durably committed; `is_repeated`: by an earlier request.

    `is_moved`: all of its messages are in their queues; if not, `shortage` says what the broker is
    short of, or nothing.
    """

    is_repeated: bool
    is_moved: bool
    shortage: str = ""


class StagesAborted(Struct, tag="stages_aborted", frozen=True):
    """`count` stages were dropped."""

    count: int


class SinkStatus(Struct, tag="sink_status", frozen=True):
    """One sink.

    `batch` is the last one committed (None: none yet). `is_busy` says whether it is still being
    published, and `messages_left` how many of its messages are left. `stages` counts the
    uncommitted stages, `staged_messages` their messages. In a cluster, `node` publishes the last
    batch ("": nobody has to), `nodes` have its stages, and the counts are those of the node that is
    asked.
    """

    sink: str
    batch: int | None
    is_busy: bool
    messages_left: int
    stages: int
    staged_messages: int
    node: str = ""
    nodes: list[str] = []


class SinkList(Struct, tag="sink_list", frozen=True):
    """All sinks of the vhost, by name."""

    sinks: list[SinkStatus]


class SinkDeleted(Struct, tag="sink_deleted", frozen=True):
    """The sink is durably deleted."""


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
