"""Vocabulary of the admin protocol: one struct per request and per reply.

A connection begins with `PROTOCOL_HEADER` where an AMQP client sends its own. Then both sides send
frames: the payload's length (u32, big-endian) and the payload (msgpack of one tagged struct). The
client sends `Login` first, then one request at a time; each gets one reply, in order. A refusal is
an `ErrorReply`. The connection stays usable after it, unless the frame itself was unreadable or the
login was refused: then the node closes it after the reply.

The decoder bounds the numbers of a request: all that pass fit an i64 and leave room for arithmetic.
Messages in bulk travel as one binary value, a block (queues/readers/record_block.py).

The field named `held` counts messages that reader groups have reserved.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from warrenmq.admin.protocol import fields
from warrenmq.admin.protocol.control import ControlReply, ControlRequest
from warrenmq.admin.protocol.figures import FiguresReply, FiguresRequest
from warrenmq.admin.protocol.homes import LocateQueues, QueuesLocated
from warrenmq.admin.protocol.readers import DescribeReaders, NodeReaders
from warrenmq.admin.protocol.routes import RouteTried, TryRoute
from warrenmq.admin.protocol.sinks import SinkReply, SinkRequest

PROTOCOL_HEADER: Final = b"WRN\x00\x00\x00\x00\x01"
# The value of `LoggedIn.protocol`: 1 = groups, sinks and backups; 2 = control operations as well;
# 3 = those of a cluster as well; 4 = homes of queues as well; 5 = the user of the session as well.
PROTOCOL_VERSION: Final = 5
LENGTH_BYTES: Final = 4
# Largest request (bytes), except those that stage messages: these hold a block of STAGE_BYTES or
# one larger message.
REQUEST_BYTES_MAX: Final = 64 * 1024
# Bytes of messages that one request stages, unless one message is larger.
STAGE_BYTES: Final = 1024 * 1024
# Largest reply (bytes): a block whose largest message may be as large as the broker takes.
REPLY_BYTES_MAX: Final = 1 << 30

# Steps of a backup that has ended.
BACKUP_DONE: Final = "done"
BACKUP_FAILED: Final = "failed"


class Login(Struct, tag="login", forbid_unknown_fields=True, frozen=True):
    """The first request. User, password and vhost are those of the same user's AMQP login.

    With an empty vhost the session is for control operations only.
    """

    user: str
    password: str
    vhost: str
    # The client's description in messages to people: "host:process id, query name".
    client: Annotated[str, Meta(max_length=255)] = ""

    def __repr__(self) -> str:
        return f"Login(user={self.user!r}, vhost={self.vhost!r})"


class LocalLogin(Struct, tag="local_login", forbid_unknown_fields=True, frozen=True):
    """The first request of a local administrator, who has read the token in the control file.

    Reply: LoggedIn. Without a vhost the session is for control operations only.
    """

    token: str
    vhost: str = ""
    client: Annotated[str, Meta(max_length=255)] = ""

    def __repr__(self) -> str:
        return f"LocalLogin(vhost={self.vhost!r})"


class OpenGroup(
    Struct, tag="open_group", forbid_unknown_fields=True, frozen=True, omit_defaults=True
):
    """Create a reader group or take it over. Reply: GroupOpened.

    The group reads `queues`, or the queues whose whole name `pattern` matches. A queue that it read
    before and that is no longer named leaves it, and its reserved messages become ready again.
    """

    group: fields.GroupName
    queues: list[fields.ShortStr] = []
    # A regular expression, matched again at every Reserve; a queue that joins then is read from its
    # first message.
    pattern: Annotated[str, Meta(max_length=1000)] = ""
    # Where a queue that joins now starts: a position is ms since 1970, and means the first message
    # from then on.
    start: Literal["earliest", "latest"] | fields.Position = "earliest"
    # Start positions (seq ids) of single queues, by queue name.
    start_at: dict[str, fields.Position] = {}
    # Accept that a queue was deleted or declared anew instead of refusing: continue without it, or
    # begin the new one.
    may_rebind: bool = False
    # Queues of the group on other nodes of the cluster. With these alone, what the group has here
    # leaves it, and the reply has epoch 0.
    elsewhere: list[fields.ShortStr] = []
    # The new epoch, unless the group's is newer; 0: the next one. A reader that opens a group at
    # several nodes gives it one epoch at all of them, and keeps that when the master of a mirrored
    # queue moves.
    epoch: fields.Position = 0


class Reserve(Struct, tag="reserve", forbid_unknown_fields=True, frozen=True):
    """Ack below `starts`, then reserve a fair share of each queue's next messages. Reply: Reserved.

    Without `acks` the messages below `starts` stay reserved until an Ack. The reply comes as soon
    as `min_messages` are available, or `max_delay_ms` after the first one was; after `wait_ms` it
    comes without messages.
    """

    group: fields.GroupName
    epoch: fields.Position
    # Positions by incarnation; a queue that is not named continues where it is acked.
    starts: dict[fields.Position, fields.Position]
    max_messages: fields.Count
    max_bytes: fields.Count
    min_messages: fields.Count = 1
    max_delay_ms: Annotated[int, Meta(ge=0, le=86_400_000)] = 0
    wait_ms: fields.WaitMs = 0
    # Positions, by incarnation, that a range may not pass; a queue that is not named gives nothing.
    # None: no such limits.
    until: dict[fields.Position, fields.Position] | None = None
    acks: bool = True


class PlanRange(
    Struct, tag="plan_range", forbid_unknown_fields=True, frozen=True, omit_defaults=True
):
    """Cut a reserved range of one queue at multiples of `slice_size`. Reply: RangePlan.

    The reply comes when no message of the range is on its way to the dead-letter exchange.
    """

    group: fields.GroupName
    epoch: fields.Position
    incarnation: fields.Position
    start: fields.Position
    end: fields.Position
    slice_size: fields.Count
    # Cut off the acked part of the range instead of refusing it.
    is_lenient: bool = False
    # Name the files that contain a slice, for a reader on the same disk.
    with_files: bool = False
    # Reject the messages of the range whose bodies are larger (bytes): they become dead letters.
    # None: reject none.
    body_bytes_max: fields.Position | None = None


class Fetch(Struct, tag="fetch", forbid_unknown_fields=True, frozen=True):
    """The first messages of a reserved range, as many as the limits allow. Reply: Fetched."""

    group: fields.GroupName
    epoch: fields.Position
    incarnation: fields.Position
    start: fields.Position
    end: fields.Position
    max_messages: fields.FetchMessages
    max_bytes: fields.FetchBytes
    with_bodies: bool = True


class Ack(Struct, tag="ack", forbid_unknown_fields=True, frozen=True):
    """Ack everything below `ends`, by incarnation. May be repeated. Reply: Acked."""

    group: fields.GroupName
    epoch: fields.Position
    ends: dict[fields.Position, fields.Position]


class DeleteGroup(Struct, tag="delete_group", forbid_unknown_fields=True, frozen=True):
    """Forget a group; its reserved messages become ready again. Reply: GroupDeleted."""

    group: fields.GroupName


class ListGroups(Struct, tag="list_groups", forbid_unknown_fields=True, frozen=True):
    """List all groups of the vhost. Reply: GroupList."""


class DescribeQueue(
    Struct, tag="describe_queue", forbid_unknown_fields=True, frozen=True, omit_defaults=True
):
    """Describe where a queue's messages begin and end. Reply: QueueDescription.

    A priority queue is refused unless `level` names one of its levels, which is described then;
    other queues have the level 0 only.
    """

    queue: fields.ShortStr
    level: fields.Level | None = None


class SeekTime(Struct, tag="seek_time", forbid_unknown_fields=True, frozen=True):
    """Find the first ready message that arrived at `ms` since 1970 or later. Reply: TimeSought."""

    queue: fields.ShortStr
    incarnation: fields.Position
    ms: fields.Position


class Peek(Struct, tag="peek", forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """Read ready messages of [start, end) of a queue and leave them there. Reply: Fetched.

    `level` is as in DescribeQueue.
    """

    queue: fields.ShortStr
    incarnation: fields.Position
    start: fields.Position
    end: fields.Position
    max_messages: fields.FetchMessages
    max_bytes: fields.FetchBytes
    with_bodies: bool = True
    level: fields.Level | None = None


class StartBackup(Struct, tag="start_backup", forbid_unknown_fields=True, frozen=True):
    """Back up the node to a new directory on its machine; administrators only.

    Reply: BackupStatus.
    """

    target: Annotated[str, Meta(min_length=1, max_length=4096)]


class GetBackup(Struct, tag="get_backup", forbid_unknown_fields=True, frozen=True):
    """Report the status of the last backup; administrators only. Reply: BackupStatus."""


class CancelBackup(Struct, tag="cancel_backup", forbid_unknown_fields=True, frozen=True):
    """End the backup that is under way, if any, and remove its files; administrators only.

    Reply: BackupStatus.
    """


class LoggedIn(Struct, tag="logged_in", frozen=True):
    """The login is accepted; `version` is the node's.

    `protocol` counts what was added to the protocol; the last byte of PROTOCOL_HEADER changes when
    something that clients use changes its meaning or goes.
    """

    version: str
    protocol: int = 1


class Member(Struct, frozen=True):
    """A queue of a group. `tail` is its next seq id: all of its messages lie below.

    `queue_id`: its id on the node that answers. `birth`: its incarnation in a cluster, the same on
    all nodes, 0 on a lone node.
    """

    queue: bytes
    incarnation: int
    acked: int
    reserved: int
    tail: int
    queue_id: int = 0
    birth: int = 0


class GroupOpened(Struct, tag="group_opened", frozen=True):
    """The group is the caller's, under `epoch`; members are sorted by the name of their queue.

    `passed_over`: the priority queues that match the pattern, which no group can read.
    """

    epoch: int
    members: list[Member]
    passed_over: list[bytes] = []


class MemberRange(Struct, frozen=True):
    """[start, end) of a queue is durably reserved; `end == start` when no messages came.

    `birth`: see Member.
    """

    queue: bytes
    incarnation: int
    start: int
    end: int
    tail: int
    birth: int = 0


class Reserved(Struct, tag="reserved", frozen=True):
    """All members of the group, sorted by the name of their queue.

    `passed_over`: priority queues that match the pattern. Each answer has those that were declared
    since the last one, and the first of an epoch all.
    """

    members: list[MemberRange]
    passed_over: list[bytes] = []


class SliceFile(Struct, frozen=True):
    """Bytes [first_byte, end_byte) of a segment of the queue's index, or of a log.

    The bytes are whole records; some belong to other slices or queues, or are settled. In a log, a
    part of a record may follow.
    """

    path: str
    first_byte: int
    end_byte: int


class Slice(Struct, tag="slice", frozen=True):
    """A range [start, end) that contains messages.

    `files`, when not empty, contain all of them. They are hints, because a file may be rewritten at
    any time: a reader that does not find exactly `message_count` messages of the slice there
    fetches the slice instead. What a message's record says about redelivery may be out of date;
    `is_redelivered` is not.
    """

    start: int
    end: int
    message_count: int
    bytes: int
    files: list[SliceFile] = []
    # The messages' seq ids as inclusive runs; only with files.
    runs: list[tuple[int, int]] = []
    is_redelivered: bool = False
    # Id of the queue in the store: a record in a shared file names the queues it is for by id.
    # An older node says none.
    queue_id: int = 0


class RangePlan(Struct, tag="range_plan", frozen=True):
    """The slices that contain messages, in order."""

    slices: list[Slice]


class Fetched(Struct, tag="fetched", frozen=True):
    """A block of messages; the next Fetch starts at `next`, the range's end when all is read."""

    next: int
    block: memoryview


class Acked(Struct, tag="acked", frozen=True):
    """Durable ack position of each queue that the request named, by incarnation."""

    acked: dict[int, int]


class TimeSought(Struct, tag="time_sought", frozen=True):
    """The message's seq id, or the queue's next one when there is no such message."""

    seq: int


class GroupDeleted(Struct, tag="group_deleted", frozen=True):
    """The group is durably deleted."""


class MemberStatus(Struct, frozen=True):
    """A queue of a group. `lag` counts unacked messages; `lag_seconds` is the age of the oldest."""

    queue: bytes
    incarnation: int
    acked: int
    reserved: int
    held: int
    lag: int
    lag_seconds: float
    # Whether the queue is deleted; the group's next opening must accept that.
    is_lost: bool


class GroupStatus(Struct, frozen=True):
    """One group; `pattern` is empty when its queues were named.

    Counts are sums over all members, `lag_seconds` is the largest of theirs. Members are sorted by
    the name of their queue.
    """

    group: str
    pattern: str
    epoch: int
    opener: str
    held: int
    lag: int
    lag_seconds: float
    members: list[MemberStatus]


class GroupList(Struct, tag="group_list", frozen=True):
    """All groups of the vhost, by name."""

    groups: list[GroupStatus]


class QueueDescription(Struct, tag="queue_description", frozen=True):
    """A queue, or the level of it that was asked for.

    `first_ready` is the lowest ready seq id (= `tail` when no message is ready). `levels`: the
    levels that have had messages, if one was asked for.
    """

    incarnation: int
    durable: bool
    ready: int
    first_ready: int
    tail: int
    levels: list[int] = []


class BackupStatus(Struct, tag="backup_status", frozen=True):
    """A backup; `step` ends as BACKUP_DONE or BACKUP_FAILED, and `text` says why it failed."""

    target: str
    step: str
    done_bytes: int
    total_bytes: int
    text: str = ""


class ErrorReply(Struct, tag="error", frozen=True):
    """The node refuses the request; `text` says why in one line."""

    code: str
    text: str


Request = (
    Login
    | LocalLogin
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
    | CancelBackup
    | LocateQueues
    | TryRoute
    | DescribeReaders
    | FiguresRequest
    | SinkRequest
    | ControlRequest
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
    | QueuesLocated
    | RouteTried
    | NodeReaders
    | FiguresReply
    | SinkReply
    | ControlReply
    | ErrorReply
)

_encoder = msgspec.msgpack.Encoder()
_request_decoder: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_reply_decoder: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def encode_frame(struct: Request | Reply) -> bytearray:
    """The frame of a request or reply: its length, then its payload."""
    frame = bytearray(LENGTH_BYTES)
    _encoder.encode_into(struct, frame, LENGTH_BYTES)
    frame[:LENGTH_BYTES] = (len(frame) - LENGTH_BYTES).to_bytes(LENGTH_BYTES, "big")
    return frame


def decode_request(payload: bytes) -> Request:
    """The request in `payload`. Raises ValueError with a readable text when it is none."""
    try:
        return _request_decoder.decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def decode_reply(payload: bytes | bytearray | memoryview) -> Reply:
    """The reply in `payload`, to which a block in it refers. Raises ValueError when it is none."""
    try:
        return _reply_decoder.decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
