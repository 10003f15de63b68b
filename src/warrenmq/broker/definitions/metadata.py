"""The definitions a node keeps: vhosts, users, permissions, exchanges, queues, bindings, reader groups, sinks (DESIGN D5).

A *change* is one definition written or deleted; the same class that writes a definition is what `load` returns, so a
definition has one shape everywhere. Only durable things are ever written. Names are bytes as in the protocol;
texts that only people and pattern matching see are str.

A store of definitions implements `Metadata`. What it promises: the changes of one `apply` are all there after a crash
or none is, in their order, and once `apply` returned they are durable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

from mypy_extensions import i64, mypyc_attr

from warrenmq.store.change_sets import DefinitionsError


class MetadataError(DefinitionsError):
    """The store could not be read or written; after `apply`, nothing of its changes is stored. One line of text."""


class MetadataDamaged(MetadataError):  # a state, reported as such
    """What is stored is not what was written; the caller moves it aside instead of working on it."""


@mypyc_attr(native_class=True)
class Change:
    """One definition written or deleted."""


@final
@mypyc_attr(native_class=True)
class PutVhost(Change):
    """`id` names its directory and is never used for another vhost."""

    def __init__(self, name: bytes, id: i64) -> None:
        self.name: bytes = name
        self.id: i64 = id


@final
@mypyc_attr(native_class=True)
class PutUser(Change):
    """`password_hash` and `hashing` as in `passwords.py`; an empty hash admits no password."""

    def __init__(self, name: bytes, password_hash: bytes, hashing: str, tags: list[str]) -> None:
        self.name: bytes = name
        self.password_hash: bytes = password_hash
        self.hashing: str = hashing
        self.tags: list[str] = tags


@final
@mypyc_attr(native_class=True)
class PutPermission(Change):
    """What a user may do in a vhost: three regular expressions over names."""

    def __init__(self, vhost: bytes, user: bytes, configure: str, write: str, read: str) -> None:
        self.vhost: bytes = vhost
        self.user: bytes = user
        self.configure: str = configure
        self.write: str = write
        self.read: str = read


@final
@mypyc_attr(native_class=True)
class PutExchange(Change):
    """A durable exchange; `arguments` is the table body of its declaration."""

    def __init__(
        self,
        vhost: bytes,
        name: bytes,
        type: bytes,
        auto_delete: bool,
        internal: bool,
        arguments: bytes,
    ) -> None:
        self.vhost: bytes = vhost
        self.name: bytes = name
        self.type: bytes = type
        self.auto_delete: bool = auto_delete
        self.internal: bool = internal
        self.arguments: bytes = arguments


@final
@mypyc_attr(native_class=True)
class DeleteExchange(Change):
    """The bindings from and to it are changes of their own."""

    def __init__(self, vhost: bytes, name: bytes) -> None:
        self.vhost: bytes = vhost
        self.name: bytes = name


@final
@mypyc_attr(native_class=True)
class PutQueue(Change):
    """A durable queue. `id` is unique in the vhost for ever: a queue deleted and declared again is another one."""

    def __init__(
        self, vhost: bytes, id: i64, name: bytes, durable: bool, auto_delete: bool, arguments: bytes
    ) -> None:
        self.vhost: bytes = vhost
        self.id: i64 = id
        self.name: bytes = name
        self.durable: bool = durable
        self.auto_delete: bool = auto_delete
        self.arguments: bytes = arguments


@final
@mypyc_attr(native_class=True)
class DeleteQueue(Change):
    """The bindings to it are changes of their own. `id` counts as given away even if the queue was never stored."""

    def __init__(self, vhost: bytes, id: i64) -> None:
        self.vhost: bytes = vhost
        self.id: i64 = id


@final
@mypyc_attr(native_class=True)
class PutBinding(Change):
    """A binding between durable ends. All its attributes together are its identity."""

    def __init__(
        self,
        vhost: bytes,
        source: bytes,
        destination: bytes,
        destination_is_queue: bool,
        key: bytes,
        arguments: bytes,
    ) -> None:
        self.vhost: bytes = vhost
        self.source: bytes = source
        self.destination: bytes = destination
        self.destination_is_queue: bool = destination_is_queue
        self.key: bytes = key
        self.arguments: bytes = arguments


@final
@mypyc_attr(native_class=True)
class DeleteBinding(Change):
    """`arguments` must be the bytes that were written; a `Binding` keeps them."""

    def __init__(
        self,
        vhost: bytes,
        source: bytes,
        destination: bytes,
        destination_is_queue: bool,
        key: bytes,
        arguments: bytes,
    ) -> None:
        self.vhost: bytes = vhost
        self.source: bytes = source
        self.destination: bytes = destination
        self.destination_is_queue: bool = destination_is_queue
        self.key: bytes = key
        self.arguments: bytes = arguments


@final
@mypyc_attr(native_class=True)
class PutReaderGroup(Change):
    """A reader group; `pattern` is what names of its queues match, "" when they were named."""

    def __init__(self, vhost: bytes, name: bytes, epoch: i64, pattern: str) -> None:
        self.vhost: bytes = vhost
        self.name: bytes = name
        self.epoch: i64 = epoch
        self.pattern: str = pattern


@final
@mypyc_attr(native_class=True)
class PutGroupMember(Change):
    """What a reader group has of the queue with `queue_id`; `acked` and `reserved` are seq ids.

    `is_ended`: the queue was deleted when nothing in it was left to read.
    """

    def __init__(
        self,
        vhost: bytes,
        group: bytes,
        queue_id: i64,
        queue_name: bytes,
        acked: i64,
        reserved: i64,
        is_ended: bool,
    ) -> None:
        self.vhost: bytes = vhost
        self.group: bytes = group
        self.queue_id: i64 = queue_id
        self.queue_name: bytes = queue_name
        self.acked: i64 = acked
        self.reserved: i64 = reserved
        self.is_ended: bool = is_ended


@final
@mypyc_attr(native_class=True)
class DeleteGroupMember(Change):
    """A reader group reads that queue no more."""

    def __init__(self, vhost: bytes, group: bytes, queue_id: i64) -> None:
        self.vhost: bytes = vhost
        self.group: bytes = group
        self.queue_id: i64 = queue_id


@final
@mypyc_attr(native_class=True)
class DeleteReaderGroup(Change):
    """Forget a reader group with its members."""

    def __init__(self, vhost: bytes, name: bytes) -> None:
        self.vhost: bytes = vhost
        self.name: bytes = name


@final
@mypyc_attr(native_class=True)
class PutStage(Change):
    """A staging log: a queue nobody sees, with the messages of one part of a sink's batch. `finished_ms` is 0 until it is
    complete; messages that no queue would get were `unroutable_count`, the first of them to `unroutable` (an address as
    in store/message.py). `target`: the queue that all go to; empty: they are routed."""

    def __init__(
        self,
        vhost: bytes,
        id: i64,
        sink: bytes,
        batch: i64,
        finished_ms: i64,
        message_count: i64,
        unroutable_count: i64,
        unroutable: bytes,
        target: bytes,
    ) -> None:
        self.vhost: bytes = vhost
        self.id: i64 = id
        self.sink: bytes = sink
        self.batch: i64 = batch
        self.finished_ms: i64 = finished_ms
        self.message_count: i64 = message_count
        self.unroutable_count: i64 = unroutable_count
        self.unroutable: bytes = unroutable
        self.target: bytes = target


@final
@mypyc_attr(native_class=True)
class DeleteStage(Change):
    """Its messages were published, or will never be."""

    def __init__(self, vhost: bytes, id: i64) -> None:
        self.vhost: bytes = vhost
        self.id: i64 = id


@final
@mypyc_attr(native_class=True)
class PutSink(Change):
    """All batches of a sink up to `batch` are committed; of the last one the staging logs `stages` are still to be
    published, in this order."""

    def __init__(self, vhost: bytes, name: bytes, batch: i64, stages: list[int]) -> None:
        self.vhost: bytes = vhost
        self.name: bytes = name
        self.batch: i64 = batch
        self.stages: list[int] = stages


@final
@mypyc_attr(native_class=True)
class DeleteSink(Change):
    """Forget a sink, and with it which batches it has committed."""

    def __init__(self, vhost: bytes, name: bytes) -> None:
        self.vhost: bytes = vhost
        self.name: bytes = name


@final
@mypyc_attr(native_class=True)
class Definitions:
    """Everything stored. Each list is in the order in which its definitions were first written."""

    def __init__(self) -> None:
        self.vhosts: list[PutVhost] = []
        self.users: list[PutUser] = []
        self.permissions: list[PutPermission] = []
        self.exchanges: list[PutExchange] = []
        self.queues: list[PutQueue] = []
        self.bindings: list[PutBinding] = []
        self.reader_groups: list[PutReaderGroup] = []
        self.group_members: list[PutGroupMember] = []
        self.stages: list[PutStage] = []
        self.sinks: list[PutSink] = []
        # Above the id of every queue and staging log that was ever stored.
        self.next_queue_id: i64 = 1

    def as_changes(self) -> list[Change]:
        """What makes the same of an empty store, in an order in which nothing comes before what it needs."""
        changes: list[Change] = []
        changes.extend(self.vhosts)
        changes.extend(self.users)
        changes.extend(self.permissions)
        changes.extend(self.exchanges)
        changes.extend(self.queues)
        changes.extend(self.bindings)
        changes.extend(self.reader_groups)
        changes.extend(self.group_members)
        changes.extend(self.stages)
        changes.extend(self.sinks)
        return changes


@mypyc_attr(allow_interpreted_subclasses=True)
class Metadata(ABC):
    """A store of definitions. After `load`, `apply` is called by one thread at a time, not always the same."""

    @abstractmethod
    def load(self) -> Definitions:
        """Everything stored. MetadataDamaged if it is not readable as such, MetadataError if that cannot be told."""

    @abstractmethod
    def apply(self, changes: list[Change]) -> None:
        """Store `changes` in their order, durably, all or none. MetadataError: none of them is stored.

        Writing what is there replaces it; deleting what is not there is no error.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the store; nothing may be called after it."""
