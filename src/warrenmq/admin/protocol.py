"""Vocabulary of the admin protocol: one struct per request and per reply.

A connection begins with `PROTOCOL_HEADER` where an AMQP client sends its own. Then both sides send frames: the payload's
length (u32, big-endian) and the payload (msgpack of one tagged struct). The client sends `Login` first, then one
request at a time; each gets one reply, in order. A refusal is an `ErrorReply`; the connection stays usable unless the
frame itself was unreadable or the login was refused, then it is closed after the reply.

Numbers from a client are bounded here, when a request is decoded: what passes fits an i64 and may be computed with.
Messages in bulk travel as one binary value, a block (queues/record_block.py).
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from warrenmq.admin.fields import (
    Count,
    FetchBytes,
    FetchMessages,
    GroupName,
    Position,
    QueueCount,
    ShortStr,
    WaitMs,
)
from warrenmq.admin.sink_protocol import SinkReply, SinkRequest

PROTOCOL_HEADER: Final = b"WRN\x00\x00\x00\x00\x01"
LENGTH_BYTES: Final = 4
# Requests are small, but those that stage messages, which hold a block of STAGE_BYTES or one larger message; replies hold a
# block, whose largest message may be as large as the broker takes.
REQUEST_BYTES_MAX: Final = 64 * 1024
# So much is staged with one request, unless one message is larger.
STAGE_BYTES: Final = 1024 * 1024
REPLY_BYTES_MAX: Final = 1 << 30

# Codes of ErrorReply; those of queues/reader_group.py (fenced, data_loss, not_found, precondition) are the others.
BAD_REQUEST: Final = "bad_request"
ACCESS_REFUSED: Final = "access_refused"
# What was asked could not be made durable (disk full ...). Nothing is lost; asking again may succeed.
STORAGE_FAILED: Final = "storage_failed"
# Messages of a batch would get to no queue.
UNROUTABLE: Final = "unroutable"
# Steps of a backup that has ended.
BACKUP_DONE: Final = "done"
BACKUP_FAILED: Final = "failed"


class Login(Struct, tag="login", forbid_unknown_fields=True, frozen=True):
    """First request. Names and password as the AMQP login of the same user."""

    user: str
    password: str
    vhost: str
    # Who asks, for messages to people: "host:process id, query name".
    client: Annotated[str, Meta(max_length=255)] = ""

    def __repr__(self) -> str:
        return f"Login(user={self.user!r}, vhost={self.vhost!r})"


class OpenGroup(Struct, tag="open_group", forbid_unknown_fields=True, frozen=True):
    """Create a reader group or take it over; it reads `queues`, or those that `pattern` matches whole. Reply: GroupOpened.

    Queues it has had and that are not named any more leave it: what it holds of them goes back.
    """

    group: GroupName
    queues: list[ShortStr] = []
    # A regular expression. It is matched again at every Reserve; a queue that joins then is read from its first message.
    pattern: Annotated[str, Meta(max_length=1000)] = ""
    # Where a queue that joins now is begun: a position in milliseconds since 1970 means the first message from then on.
    start: Literal["earliest", "latest"] | Position = "earliest"
    # The same for some queues, by name: the seq id.
    start_at: dict[str, Position] = {}
    # A queue was deleted, or declared anew: go on without it, or begin the new one, instead of refusing.
    may_rebind: bool = False


class Reserve(Struct, tag="reserve", forbid_unknown_fields=True, frozen=True):
    """Ack everything below `starts`, then hold what comes from there on, a fair share of each queue. Reply: Reserved.

    Without `acks` what lies below stays held, until an Ack. It is answered as soon as `min_messages` are there, or `max_delay_ms` after any was; with nothing after `wait_ms`.
    """

    group: GroupName
    epoch: Position
    # By incarnation; a queue that is not named goes on where it is acked.
    starts: dict[Position, Position]
    max_messages: Count
    max_bytes: Count
    min_messages: Count = 1
    max_delay_ms: Annotated[int, Meta(ge=0, le=86_400_000)] = 0
    wait_ms: WaitMs = 0
    # Nothing from these positions on, by incarnation, and nothing of a queue that is not named. None: no such limits.
    until: dict[Position, Position] | None = None
    acks: bool = True


class PlanRange(Struct, tag="plan_range", forbid_unknown_fields=True, frozen=True):
    """Cut a reserved range of one queue at multiples of `slice_size`. Reply: RangePlan."""

    group: GroupName
    epoch: Position
    incarnation: Position
    start: Position
    end: Position
    slice_size: Count
    # Cut off what is acked already instead of refusing the range.
    is_lenient: bool = False
    # Name the files that have a slice, for a reader on the same disk.
    with_files: bool = False


class Fetch(Struct, tag="fetch", forbid_unknown_fields=True, frozen=True):
    """Messages of a reserved range, from its beginning, as many as the limits allow. Reply: Fetched."""

    group: GroupName
    epoch: Position
    incarnation: Position
    start: Position
    end: Position
    max_messages: FetchMessages
    max_bytes: FetchBytes
    with_bodies: bool = True


class Ack(Struct, tag="ack", forbid_unknown_fields=True, frozen=True):
    """Let go of everything below `ends`, by incarnation. May be repeated. Reply: Acked."""

    group: GroupName
    epoch: Position
    ends: dict[Position, Position]


class DeleteGroup(Struct, tag="delete_group", forbid_unknown_fields=True, frozen=True):
    """Forget a group; what it holds is ready again. Reply: GroupDeleted."""

    group: GroupName


class ListGroups(Struct, tag="list_groups", forbid_unknown_fields=True, frozen=True):
    """All groups of the vhost. Reply: GroupList."""


class DescribeQueue(Struct, tag="describe_queue", forbid_unknown_fields=True, frozen=True):
    """Where a queue's messages begin and end. Reply: QueueDescription."""

    queue: ShortStr


class SeekTime(Struct, tag="seek_time", forbid_unknown_fields=True, frozen=True):
    """Which ready message of a queue was the first to arrive at `ms` since 1970, or later. Reply: TimeSought."""

    queue: ShortStr
    incarnation: Position
    ms: Position


class Peek(Struct, tag="peek", forbid_unknown_fields=True, frozen=True):
    """Ready messages of [start, end) of a queue, which stay there. Reply: Fetched."""

    queue: ShortStr
    incarnation: Position
    start: Position
    end: Position
    max_messages: FetchMessages
    max_bytes: FetchBytes
    with_bodies: bool = True


class StartBackup(Struct, tag="start_backup", forbid_unknown_fields=True, frozen=True):
    """Make a backup of the node in a new directory on its machine; administrators only. Reply: BackupStatus."""

    target: Annotated[str, Meta(min_length=1, max_length=4096)]


class GetBackup(Struct, tag="get_backup", forbid_unknown_fields=True, frozen=True):
    """How the backup that was started last is doing; administrators only. Reply: BackupStatus."""


class DescribeNode(Struct, tag="describe_node", forbid_unknown_fields=True, frozen=True):
    """The node and its stores: of all vhosts for users with the tag administrator or monitoring, of the session's vhost
    for others. Reply: NodeStatus."""


class ListQueues(Struct, tag="list_queues", forbid_unknown_fields=True, frozen=True):
    """Figures of the vhost's queues with an id above `after`, `max_queues` at most. Reply: QueueList."""

    after: Position = 0
    max_queues: QueueCount = 1000


class LoggedIn(Struct, tag="logged_in", frozen=True):
    """The login is accepted."""

    version: str


class Member(Struct, frozen=True):
    """A queue of a group. `tail` is its next seq id: everything that is there lies below it."""

    queue: bytes
    incarnation: int
    acked: int
    reserved: int
    tail: int


class GroupOpened(Struct, tag="group_opened", frozen=True):
    """The group is the caller's, under `epoch`; members by name of their queue."""

    epoch: int
    members: list[Member]


class MemberRange(Struct, frozen=True):
    """[start, end) of a queue is held, durably; `end == start` when nothing came."""

    queue: bytes
    incarnation: int
    start: int
    end: int
    tail: int


class Reserved(Struct, tag="reserved", frozen=True):
    """All members of the group, by name of their queue."""

    members: list[MemberRange]


class SliceFile(Struct, frozen=True):
    """Bytes [first_byte, end_byte) of a segment of the queue's index: whole records, some of other slices, or settled."""

    path: str
    first_byte: int
    end_byte: int


class Slice(Struct, tag="slice", frozen=True):
    """[start, end) with messages in it.

    `files` have all of them, if there are any: they are hints, because a file may be written anew at any time. Who finds not
    exactly `message_count` messages of the slice there fetches it. What records of messages say about redelivery may
    be out of date; `is_redelivered` is not.
    """

    start: int
    end: int
    message_count: int
    bytes: int
    files: list[SliceFile] = []
    # Which seq ids they are, inclusive; only with files.
    runs: list[tuple[int, int]] = []
    is_redelivered: bool = False


class RangePlan(Struct, tag="range_plan", frozen=True):
    """The slices that have messages, in order."""

    slices: list[Slice]


class Fetched(Struct, tag="fetched", frozen=True):
    """A block, and where to ask next; `next` is the range's end when there is no more."""

    next: int
    block: memoryview


class Acked(Struct, tag="acked", frozen=True):
    """Up to where each queue that was named is let go, durably."""

    acked: dict[int, int]


class TimeSought(Struct, tag="time_sought", frozen=True):
    """The message's seq id; the queue's next one when there is none."""

    seq: int


class GroupDeleted(Struct, tag="group_deleted", frozen=True):
    """The group is gone, durably."""


class MemberStatus(Struct, frozen=True):
    """A queue of a group. `lag` counts the messages that are not acked yet, `lag_seconds` is the age of the oldest."""

    queue: bytes
    incarnation: int
    acked: int
    reserved: int
    held: int
    lag: int
    lag_seconds: float
    # Its queue is deleted; the group's next opening must accept that.
    is_lost: bool


class GroupStatus(Struct, frozen=True):
    """One group; `pattern` is empty when its queues were named. Counts are those of all members, `lag_seconds` is the
    largest; members by name of their queue."""

    group: str
    pattern: str
    epoch: int
    opener: str
    held: int
    lag: int
    lag_seconds: float
    members: list[MemberStatus]


class GroupList(Struct, tag="group_list", frozen=True):
    """By name."""

    groups: list[GroupStatus]


class QueueDescription(Struct, tag="queue_description", frozen=True):
    """`first_ready` is the lowest seq id among the ready messages (= `tail` when there is none)."""

    incarnation: int
    durable: bool
    ready: int
    first_ready: int
    tail: int


class BackupStatus(Struct, tag="backup_status", frozen=True):
    """`step` is what is being done, and one of BACKUP_DONE and BACKUP_FAILED at the end; `text` says why it failed."""

    target: str
    step: str
    done_bytes: int
    total_bytes: int
    text: str = ""


class JournalStatus(Struct, frozen=True):
    """A journal; `live_bytes` are those of records that some queue needs."""

    bytes: int
    live_bytes: int
    files: int


class IndexStatus(Struct, frozen=True):
    """The indexes of all queues; `live_bytes` is the share that live positions have of their segments."""

    bytes: int
    live_bytes: int
    segments: int
    live_positions: int


class ContentStatus(Struct, frozen=True):
    """A content store; garbage = total - valid."""

    total_bytes: int
    valid_bytes: int
    garbage_bytes: int
    files: int
    compactions: int


class VhostStatus(Struct, frozen=True):
    """What one vhost stores. Counts are since the start, but for the generation of the last checkpoint."""

    vhost: str
    queues: int
    disk_bytes: int
    live_bytes: int
    # What is on disk beyond 2 x live + 1 GiB.
    debt_bytes: int
    # Of files that go with the next checkpoints.
    deletable_bytes: int
    # Handed over to be written beside the journal, and whether that is too much.
    waiting_bytes: int
    is_behind: bool
    journal: JournalStatus
    index: IndexStatus
    persistent: ContentStatus
    transient: ContentStatus
    checkpoints: int
    failed_checkpoints: int
    generation: int
    damaged: int
    lost: int
    # Reader groups, messages they hold, and how many they have not acked.
    groups: int
    group_held: int
    group_lag: int


class NodeStatus(Struct, tag="node_status", frozen=True):
    """The node. What was not measured yet is None; `alarms` are "memory" and "disk" while they are on."""

    node: str
    version: str
    build: str
    connections: int
    alarms: list[str]
    memory_used_bytes: int | None
    memory_limit_bytes: int
    # Parts of `memory_bytes`: messages in queues; messages that clients have not finished or not committed.
    message_bytes: int
    unfinished_bytes: int
    disk_free_bytes: int | None
    disk_limit_bytes: int
    # How often a connection was stopped as the disk could not follow.
    flow_stops: int
    vhosts: list[VhostStatus]


class FormStatus(Struct, frozen=True):
    """Ready messages of one form, and the bytes of their contents."""

    count: int
    bytes: int


class PartStatus(Struct, frozen=True):
    """Ready messages in each part of the queue."""

    q1: int
    q2: int
    delta: int
    q3: int
    q4: int


class RateStatus(Struct, frozen=True):
    """Messages per second: published, taken out, waiting for an ack from now on, acked."""

    published: float
    taken: float
    ack_awaited: float
    acked: float


class QueueGroupStatus(Struct, frozen=True):
    """What a reader group has of a queue: messages it holds, and how many it has not acked."""

    group: str
    held: int
    lag: int


class QueueStatus(Struct, frozen=True):
    """One queue. Counts are since the start of the node; `target_ram_count` is None when it need not page. `name_raw` is
    its name where that is not UTF-8."""

    name: str
    name_raw: bytes | None
    id: int
    mode: str
    durable: bool
    consumers: int
    ready: int
    unacked: int
    parts: PartStatus
    alpha: FormStatus
    beta: FormStatus
    gamma: FormStatus
    delta: FormStatus
    ram_count: int
    ram_bytes: int
    target_ram_count: int | None
    rates: RateStatus
    published: int
    delivered: int
    settled: int
    requeued: int
    expired: int
    next_seq: int
    indexed_upto: int
    groups: list[QueueGroupStatus]


class QueueList(Struct, tag="queue_list", frozen=True):
    """By id; `is_last`: there are no more."""

    queues: list[QueueStatus]
    is_last: bool


class ErrorReply(Struct, tag="error", frozen=True):
    """The request is refused; `text` says why in one line."""

    code: str
    text: str


Request = (
    Login
    | OpenGroup
    | Reserve
    | PlanRange
    | Fetch
    | Ack
    | DeleteGroup
    | ListGroups
    | DescribeQueue
    | SeekTime
    | Peek
    | StartBackup
    | GetBackup
    | DescribeNode
    | ListQueues
    | SinkRequest
)
Reply = (
    LoggedIn
    | GroupOpened
    | Reserved
    | RangePlan
    | Fetched
    | Acked
    | TimeSought
    | GroupDeleted
    | GroupList
    | QueueDescription
    | BackupStatus
    | NodeStatus
    | QueueList
    | SinkReply
    | ErrorReply
)

_encoder = msgspec.msgpack.Encoder()
_request_decoder: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_reply_decoder: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def encode_frame(struct: Request | Reply) -> bytearray:
    """A request or reply with its length in front."""
    frame = bytearray(LENGTH_BYTES)
    _encoder.encode_into(struct, frame, LENGTH_BYTES)
    frame[:LENGTH_BYTES] = (len(frame) - LENGTH_BYTES).to_bytes(LENGTH_BYTES, "big")
    return frame


def decode_request(payload: bytes) -> Request:
    """Raises ValueError, in words, for anything that is not a request."""
    try:
        return _request_decoder.decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def decode_reply(payload: bytes | bytearray | memoryview) -> Reply:
    """Raises ValueError, in words, for anything that is not a reply. A block in it refers to `payload`."""
    try:
        return _reply_decoder.decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
