"""The stored definitions of a node, and the interface of their store (decision 002).

Definitions are vhosts, users, permissions, parameters (policies and limits among them), exchanges,
queues, bindings, reader groups, stages, sinks and books of receipts. A *change* writes or deletes
one definition.
`load` returns objects of the class that writes a definition, so a definition has one shape
everywhere. A node's own store has durable things only; the store of a cluster has transient
exchanges, queues and bindings too. Names are bytes as in the protocol; texts that only
people and pattern matching see are str.

A store of definitions implements `Metadata` and promises: after a crash, either all changes of an
`apply` are there, in order, or none is; and when `apply` returns, its changes are durable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from warrenmq.store.journal.change_sets import DefinitionsError

# A limit that is not set.
NO_LIMIT: Final = -1

# No vhost, queue or stage has this id. The ids of vhosts and queues are a node's own, so the
# definitions of a cluster have this one.
NO_ID: Final = 0

# The birth of a vhost, queue, exchange or sink of a lone node. In a cluster a birth is the create
# revision of the key in etcd: it names one life, so what was deleted and declared again has
# another birth.
NO_BIRTH: Final = 0

# The revision of a queue or a sink that a cluster has not decided.
NO_REVISION: Final = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class MetadataError(DefinitionsError):
    """The store could not be read or written; the text is one line.

    If `apply` raises it, none of its changes is stored.
    """


class MetadataDamaged(MetadataError):  # a state, reported as such
    """The stored data is not what was written; the caller moves it aside and does not use it."""


@mypyc_attr(native_class=True)
class Change:
    """Writes or deletes one definition."""


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class PutVhost(Change):
    """A vhost. `id` names its directory and is never used for another vhost of the node.

    Description, tags and `default_queue_type` ("" for none) are texts for people; `is_tracing`:
    each message is copied to the exchange amq.rabbitmq.trace.
    """

    name: bytes
    id: i64
    description: str = ""
    tags: list[str] = field(default_factory=list)
    default_queue_type: str = ""
    is_tracing: bool = False
    birth: i64 = NO_BIRTH


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class DeleteVhost(Change):
    """Deletes a vhost with everything that is defined in it; its id counts as used."""

    name: bytes


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class PutUser(Change):
    """A user; an empty `password_hash` fits no password.

    `passwords.py` explains `password_hash` and `hashing`. The limits are numbers of connections and
    of channels (NO_LIMIT for none).
    """

    name: bytes
    password_hash: bytes
    hashing: str
    tags: list[str]
    max_connections: i64 = NO_LIMIT
    max_channels: i64 = NO_LIMIT


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class DeleteUser(Change):
    """Deletes a user with its permissions and topic permissions in all vhosts."""

    name: bytes


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class PutPermission(Change):
    """The permissions of a user in a vhost: three regular expressions over names."""

    vhost: bytes
    user: bytes
    configure: str
    write: str
    read: str


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class DeletePermission(Change):
    """Takes a user's access to a vhost away."""

    vhost: bytes
    user: bytes


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class PutTopicPermission(Change):
    """A user's permissions at one topic exchange: two regular expressions over routing keys."""

    vhost: bytes
    user: bytes
    exchange: bytes
    write: str
    read: str


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class DeleteTopicPermission(Change):
    """Deletes the topic permissions of a user at one exchange."""

    vhost: bytes
    user: bytes
    exchange: bytes


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class PutParameter(Change):
    """A parameter of a vhost; `value` is JSON. Policies are of the component `policy`.

    The components of the broker itself are `policy`, `operator_policy` and `vhost-limits`, as in
    RabbitMQ. The empty component is that of global parameters, whose vhost is empty too.
    """

    vhost: bytes
    component: str
    name: str
    value: str


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class DeleteParameter(Change):
    """Deletes a parameter."""

    vhost: bytes
    component: str
    name: str


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class PutExchange(Change):
    """An exchange; `arguments` is the table body of its declaration.

    A lone node writes durable exchanges only, and knows no births.
    """

    vhost: bytes
    name: bytes
    type: bytes
    auto_delete: bool
    internal: bool
    arguments: bytes
    durable: bool = True
    birth: i64 = NO_BIRTH


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class DeleteExchange(Change):
    """Deletes an exchange; the deletions of its bindings are changes of their own."""

    vhost: bytes
    name: bytes


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class PutQueue(Change):
    """A queue. `id` is the node's own, and is never used again in the vhost.

    A queue that is deleted and declared again gets a new id. A lone node writes durable queues
    only. In a cluster `node` names the node that has the queue's messages, and `is_exclusive` tells
    that the queue belongs to a connection of that node. A mirrored queue has a `group`, the encoded
    record of its copies, of which `node` has the master (`cluster/groups/`); it is empty for any
    other queue. `revision` is the decision that has last changed the queue.
    """

    vhost: bytes
    id: i64
    name: bytes
    durable: bool
    auto_delete: bool
    arguments: bytes
    birth: i64 = NO_BIRTH
    node: bytes = b""
    is_exclusive: bool = False
    group: bytes = b""
    revision: i64 = NO_REVISION


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class DeleteQueue(Change):
    """Deletes a queue; the deletions of its bindings are changes of their own.

    A node's own store finds the queue by `id`, which counts as used even if the queue was never
    stored; the store of a cluster finds it by `name`.
    """

    vhost: bytes
    id: i64
    name: bytes = b""


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class PutBinding(Change):
    """A binding; all attributes but the births together are its identity.

    A lone node writes bindings between durable ends only. In a cluster a binding is in force as
    long as both ends have the births that it names.
    """

    vhost: bytes
    source: bytes
    destination: bytes
    destination_is_queue: bool
    key: bytes
    arguments: bytes
    source_birth: i64 = NO_BIRTH
    destination_birth: i64 = NO_BIRTH


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class DeleteBinding(Change):
    """Deletes a binding; `arguments` must be the bytes that were written (`Binding` has them)."""

    vhost: bytes
    source: bytes
    destination: bytes
    destination_is_queue: bool
    key: bytes
    arguments: bytes


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class PutReaderGroup(Change):
    """A reader group; its queues match `pattern`, or were named one by one if `pattern` is ""."""

    vhost: bytes
    name: bytes
    epoch: i64
    pattern: str


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class PutGroupMember(Change):
    """The progress of a reader group in one queue; `acked` and `reserved` are seq ids.

    `is_ended`: the queue was deleted when the group had read all of it. `incarnation` tells the
    lives of the queue's name apart (`Queue.incarnation`); 0: it is the id. `has_lapsed`: a copy
    that may lack messages has taken over, and no opener has accepted that.
    """

    vhost: bytes
    group: bytes
    queue_id: i64
    queue_name: bytes
    acked: i64
    reserved: i64
    is_ended: bool
    incarnation: i64 = 0
    has_lapsed: bool = False


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class DeleteGroupMember(Change):
    """Removes a queue from a reader group."""

    vhost: bytes
    group: bytes
    queue_id: i64


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class DeleteReaderGroup(Change):
    """Deletes a reader group with its members."""

    vhost: bytes
    name: bytes


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class PutStage(Change):
    """A stage: a queue that clients do not see, with the messages of one part of a sink's batch.

    `finished_ms` is 0 until the stage is complete. No queue would get `unroutable_count` of the
    messages; the first of these has the address `unroutable` (as in store/model/message.py).
    `target` is the queue for all messages; if it is empty, they are routed.
    """

    vhost: bytes
    id: i64
    sink: bytes
    batch: i64
    finished_ms: i64
    message_count: i64
    unroutable_count: i64
    unroutable: bytes
    target: bytes


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class DeleteStage(Change):
    """Deletes a stage, whose messages were published or will never be."""

    vhost: bytes
    id: i64


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class PutQueuePart(Change):
    """A part of a queue, with an id of its own in the store.

    `owner`: the id of the queue, of which the part is a level; 0: the part has delayed messages.
    `number`: the priority of the level, or the time of the delayed messages
    (`broker/vhost/handovers/delayed_messages.py`).
    """

    vhost: bytes
    id: i64
    owner: i64
    number: i64


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class DeleteQueuePart(Change):
    """Deletes a part that is empty. The parts of a deleted queue are deleted with it."""

    vhost: bytes
    id: i64


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class PutSink(Change):
    """The commits of a sink: all its batches up to `batch` are committed.

    On a lone node, `stages` are the ids of the stages of the last batch that are not published yet,
    in order. In a cluster the list is empty, and the sink has a birth. The messages of its batches
    have positions, which count on from batch to batch: the last batch has `message_count` of them,
    and `before_first` is the position before its first one. `copies` tells which nodes have its
    stages until all is published (`cluster/sinks/copies.py`; b"": all is published), and `mover`
    publishes it. `epoch` rises with each mover, and `revision` is that of the last write.
    """

    vhost: bytes
    name: bytes
    batch: i64
    stages: list[int]
    before_first: i64 = 0
    message_count: i64 = 0
    copies: bytes = b""
    mover: bytes = b""
    epoch: i64 = 0
    birth: i64 = NO_BIRTH
    revision: i64 = NO_REVISION


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class DeleteSink(Change):
    """Deletes a sink, and with it the number of its last committed batch."""

    vhost: bytes
    name: bytes


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class PutReceipts(Change):
    """A book of receipts: which messages of a cluster's sink are here, by position.

    `id` is the origin of their MOVEs. `queue_id`: the mirrored queue whose book this is; 0: it is
    that of all plain queues of the node. All positions below `floor` count as here, and those in
    `runs`: the first and the last of each run, in turn. So do those of the runs in `shared`, if the
    book of the plain queues has them: the queue was one of them when they came.
    """

    vhost: bytes
    id: i64
    sink: bytes
    queue_id: i64
    floor: i64
    runs: list[int]
    shared: list[int]


@final
@dataclass(eq=False)
@mypyc_attr(native_class=True)
class DeleteReceipts(Change):
    """Deletes a book of receipts."""

    vhost: bytes
    id: i64


@final
@mypyc_attr(native_class=True)
class Definitions:
    """All stored definitions; each list is in the order of first writing."""

    def __init__(self) -> None:
        self.vhosts: list[PutVhost] = []
        self.users: list[PutUser] = []
        self.permissions: list[PutPermission] = []
        self.topic_permissions: list[PutTopicPermission] = []
        self.parameters: list[PutParameter] = []
        self.exchanges: list[PutExchange] = []
        self.queues: list[PutQueue] = []
        self.bindings: list[PutBinding] = []
        self.reader_groups: list[PutReaderGroup] = []
        self.group_members: list[PutGroupMember] = []
        self.stages: list[PutStage] = []
        self.sinks: list[PutSink] = []
        self.queue_parts: list[PutQueuePart] = []
        self.receipts: list[PutReceipts] = []
        # An id above the ids of all queues, parts, stages and books that were ever stored.
        self.next_queue_id: i64 = 1
        # An id above the ids of all vhosts that were ever stored.
        self.next_vhost_id: i64 = 1
        # Ids whose definitions are damaged: a start keeps their messages aside.
        self.unusable_ids: set[int] = set()
        # Damage hides ids: an id that no definition has need not be that of something deleted.
        self.has_lost_ids: bool = False


@mypyc_attr(allow_interpreted_subclasses=True)
class Metadata(ABC):
    """A store of definitions.

    After `load`, one thread at a time calls `apply`, but not always the same thread.
    """

    @abstractmethod
    def load(self) -> Definitions:
        """Return all stored definitions.

        Raises MetadataDamaged if the store is damaged, MetadataError if it cannot be read.
        """

    @abstractmethod
    def apply(self, changes: list[Change]) -> None:
        """Store `changes` in order, durably, all or none; MetadataError means none is stored.

        Writing an existing definition replaces it; deleting a missing definition is no error.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the store; no other method may be called afterwards."""
