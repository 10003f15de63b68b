"""Requests and replies of the admin protocol for figures; `requests.py` has the others.

The fields named `held` and `group_held` count messages that reader groups have reserved.
"""

from msgspec import Struct

from warrenmq.admin.protocol.fields import Position, QueueCount


class DescribeNode(Struct, tag="describe_node", forbid_unknown_fields=True, frozen=True):
    """Describe the node and its stores. Reply: NodeStatus.

    Users with the tag administrator or monitoring see all vhosts, and need none in the session;
    others see the session's vhost.
    """


class ListQueues(Struct, tag="list_queues", forbid_unknown_fields=True, frozen=True):
    """Figures of the vhost's queues with an id above `after`, in ascending order of ids.

    At most `max_queues` of them. Reply: QueueList.
    """

    after: Position = 0
    max_queues: QueueCount = 1000


class JournalStatus(Struct, frozen=True):
    """A journal; `live_bytes` counts the records that some queue needs."""

    bytes: int
    live_bytes: int
    files: int


class IndexStatus(Struct, frozen=True):
    """The indexes of all queues; `live_bytes` is the live positions' share of their segments."""

    bytes: int
    live_bytes: int
    segments: int
    live_positions: int


class LogStatus(Struct, frozen=True):
    """Journal files that stay for their contents; `live_bytes` is the live positions' share."""

    bytes: int
    live_bytes: int
    files: int


class WriteStatus(Struct, frozen=True):
    """Bytes that clients published, and that the store wrote, since the start of the node.

    Only what outlives a restart counts. `amplification` is the bytes written for each byte
    published; 0 before the first message.
    """

    # Address, properties and body of each message, once however many queues it went to.
    published_bytes: int
    journal_bytes: int
    # Large contents, as they came.
    content_bytes: int
    # Segments of indexes, as they grew.
    index_bytes: int
    # Segments that were written again.
    rewritten_bytes: int
    # Copies of large contents.
    compacted_bytes: int
    checkpoint_bytes: int
    amplification: float

    @property
    def written_bytes(self) -> int:
        """Sum of the bytes that the store wrote, over all kinds."""
        return (
            self.journal_bytes
            + self.content_bytes
            + self.index_bytes
            + self.rewritten_bytes
            + self.compacted_bytes
            + self.checkpoint_bytes
        )


class ContentStatus(Struct, frozen=True):
    """A content store; garbage = total - valid.

    `wanted_files` and `wanted_garbage_bytes` are what a compaction on demand still has to copy.
    """

    total_bytes: int
    valid_bytes: int
    garbage_bytes: int
    files: int
    compactions: int
    # Whether a file is being copied. False, 0: the node is older than these figures.
    is_compacting: bool = False
    wanted_files: int = 0
    wanted_garbage_bytes: int = 0


class VhostStatus(Struct, frozen=True):
    """Figures of one vhost's store.

    Counts are since the start of the node, except `generation`, the number of the last checkpoint.
    """

    vhost: str
    queues: int
    disk_bytes: int
    live_bytes: int
    # Bytes on disk beyond 2 x live + 1 GiB.
    debt_bytes: int
    # Bytes of the files that the next checkpoints delete.
    deletable_bytes: int
    # Bytes submitted to be written beside the journal.
    waiting_bytes: int
    # Whether these are too many.
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
    # Messages that wait at delayed exchanges.
    delayed: int
    # Dead letters by reason, as `x-death` names it.
    dead_letters: dict[str, int]
    # Reader groups of the vhost.
    groups: int
    # Messages that the groups have reserved.
    group_held: int
    # Messages that the groups have not acked.
    group_lag: int
    # None: the node is older than these figures.
    logs: LogStatus | None = None
    writes: WriteStatus | None = None


class NodeStatus(Struct, tag="node_status", frozen=True):
    """The node. A figure not measured yet is None; `alarms` lists "memory" and "disk" while on."""

    node: str
    version: str
    build: str
    connections: int
    alarms: list[str]
    memory_used_bytes: int | None
    memory_limit_bytes: int
    # The part of `memory_used_bytes` that messages in queues take.
    message_bytes: int
    # The part of `memory_used_bytes` for messages that clients have not finished or not committed.
    unfinished_bytes: int
    disk_free_bytes: int | None
    disk_limit_bytes: int
    # How many times a connection was stopped because the disk could not keep up.
    flow_stops: int
    vhosts: list[VhostStatus]
    # Connections that an alarm keeps from publishing. None: the node is older than this figure.
    blocked: int | None = None
    # Used memory from which on messages leave it. None: as above.
    paging_limit_bytes: int | None = None
    # The node's time in ms since 1970. It never jumps: the machine's clock at the start of the
    # node, and the time since then. None: as above.
    now_ms: int | None = None


class FormStatus(Struct, frozen=True):
    """Ready messages of one form (alpha to delta), and the bytes of their contents."""

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
    """Messages per second: published, taken out of the queue, newly unacked, and acked."""

    published: float
    taken: float
    ack_awaited: float
    acked: float


class QueueGroupStatus(Struct, frozen=True):
    """The messages of a queue that a reader group has reserved (`held`), and its lag."""

    group: str
    held: int
    lag: int


class QueueStatus(Struct, frozen=True):
    """One queue. Counts are since the start of the node.

    The figures of a priority queue are the sums over its levels; `next_seq` and `indexed_upto` are
    those of the level of priority 0. `target_ram_count` is None when the queue need not page.
    `name_raw` is the queue's name when that is not UTF-8.
    """

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
    # Bytes of the bodies of ready and unacked messages. None: the node is older than this figure.
    body_bytes: int | None = None


class QueueList(Struct, tag="queue_list", frozen=True):
    """Queues by id; `is_last` says that there are no more."""

    queues: list[QueueStatus]
    is_last: bool


FiguresRequest = DescribeNode | ListQueues
FiguresReply = NodeStatus | QueueList
