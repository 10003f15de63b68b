"""A node without sockets and without a clock, on a simulated disk that keeps what was synced.

A test may crash the node and start another from the disk. All parts but the shell are the real
ones: broker, vhost, queue, journal, recovery, admin sessions.
"""

import heapq
import itertools
from collections.abc import Callable
from random import Random

from simulator.simulated.file_system import POWER, SimulatedFileSystem
from tests.support.stores.store_driver import StoreDriver
from warrenmq.admin.node import AdminNode, AdminVhost
from warrenmq.admin.protocol.requests import (
    LENGTH_BYTES,
    ErrorReply,
    Login,
    Reply,
    Request,
    decode_reply,
    encode_frame,
)
from warrenmq.admin.server import AdminSession
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import (
    Definitions,
    DeleteGroupMember,
    DeleteQueue,
    DeleteReaderGroup,
    DeleteReceipts,
    DeleteSink,
    DeleteStage,
    PutGroupMember,
    PutPermission,
    PutQueue,
    PutReaderGroup,
    PutReceipts,
    PutSink,
    PutStage,
    PutUser,
)
from warrenmq.broker.definitions.passwords import hash_password
from warrenmq.broker.definitions.settings import Settings
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.queues.definition import QueueDefinition
from warrenmq.queues.queue import Queue
from warrenmq.queues.settings import QueueSettings
from warrenmq.store.journal.change_sets import ChangeSet
from warrenmq.store.model.message import Message
from warrenmq.store.settings import StoreSettings

FILE_BYTES = 1 << 20
NO_EXPIRATION = -1
USER = PutUser(b"guest", hash_password(b"guest"), "rabbit_password_hashing_sha256", [])


class NothingUnsynced(Random):
    """Random source of a power failure that drops every unsynced change."""

    def random(self) -> float:
        """A number above every probability with which a change is kept."""
        return 0.999


class VirtualTimer:
    """One scheduled call."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class VirtualClock:
    """A clock that moves only in `advance`."""

    def __init__(self) -> None:
        self.time_ms = 1_700_000_000_000
        self._order = itertools.count()
        self._timers: list[tuple[float, int, VirtualTimer]] = []

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> VirtualTimer:
        timer = VirtualTimer(callback)
        heapq.heappush(self._timers, (self.time_ms + delay_s * 1000, next(self._order), timer))
        return timer

    def call_soon(self, callback: Callable[[], object], /) -> VirtualTimer:
        return self.call_later(0, callback)

    def now_ms(self) -> int:
        return self.time_ms

    def advance(self, ms: int) -> None:
        """Move the clock by `ms` and make the calls that fall due, in order."""
        end = self.time_ms + ms
        while self._timers and self._timers[0][0] <= end:
            due_ms, _, timer = heapq.heappop(self._timers)
            self.time_ms = max(self.time_ms, int(due_ms))
            if timer.callback is not None:
                timer.callback()
        self.time_ms = end


class MemoryDisk:
    """Files and definitions that survive a power failure."""

    def __init__(self) -> None:
        self.files = SimulatedFileSystem()
        self.queues: dict[int, PutQueue] = {}
        self.groups: dict[bytes, PutReaderGroup] = {}
        self.members: dict[tuple[bytes, int], PutGroupMember] = {}
        self.stages: dict[int, PutStage] = {}
        self.sinks: dict[bytes, PutSink] = {}
        self.receipts: dict[int, PutReceipts] = {}
        self.next_queue_id = 1

    def store(self, change_sets: list[ChangeSet]) -> None:
        """Store definitions as the flusher does."""
        for change_set in change_sets:
            for change in change_set.changes:
                self.apply(change)
            change_set.is_stored = True

    def apply(self, change: object) -> None:
        match change:
            case PutQueue():
                self.queues[change.id] = change
                self.next_queue_id = max(self.next_queue_id, change.id + 1)
            case DeleteQueue():
                self.queues.pop(change.id, None)
                self.next_queue_id = max(self.next_queue_id, change.id + 1)
            case PutReaderGroup():
                self.groups[change.name] = change
            case DeleteReaderGroup():
                self.groups.pop(change.name, None)
                self.members = {
                    key: value for key, value in self.members.items() if key[0] != change.name
                }
            case PutGroupMember():
                self.members[change.group, change.queue_id] = change
            case DeleteGroupMember():
                self.members.pop((change.group, change.queue_id), None)
            case PutStage():
                self.stages[change.id] = change
                self.next_queue_id = max(self.next_queue_id, change.id + 1)
            case DeleteStage():
                self.stages.pop(change.id, None)
            case PutSink():
                self.sinks[change.name] = change
            case DeleteSink():
                self.sinks.pop(change.name, None)
            case PutReceipts():
                self.receipts[change.id] = change
                self.next_queue_id = max(self.next_queue_id, change.id + 1)
            case DeleteReceipts():
                self.receipts.pop(change.id, None)
            case _:
                raise AssertionError(f"unexpected change {change}")


class MemoryNode:
    """A node with vhost / and user guest, started from `disk`."""

    def __init__(self, disk: MemoryDisk, clock: VirtualClock | None = None) -> None:
        self.disk = disk
        self.clock = clock or VirtualClock()
        self.broker = Broker(Settings(), lambda size: bytes(size), lambda: None)
        definitions = Definitions()
        definitions.users = [USER]
        definitions.next_queue_id = disk.next_queue_id
        definitions.stages = list(disk.stages.values())
        definitions.sinks = list(disk.sinks.values())
        definitions.receipts = list(disk.receipts.values())
        definitions.permissions = [PutPermission(b"/", USER.name, ".*", ".*", ".*")]
        self.broker.load_users(definitions)
        self.driver = StoreDriver(disk.files, StoreSettings(FILE_BYTES))
        self.vhost = Vhost(self.broker, b"/", 1, self.driver.store)
        self.broker.vhosts[b"/"] = self.vhost
        now_ms = self.clock.now_ms()
        for queue in disk.queues.values():
            self.vhost.restore_queue(queue, now_ms)
        self.vhost.staging.restore(definitions, now_ms)
        self.vhost.receipts.restore(definitions.receipts)
        replay = self.driver.replay
        assert self.vhost.restore_messages(replay, disk.next_queue_id, set(), now_ms) == []
        self.admin = AdminNode(self.broker)
        self.admin.recover(list(disk.groups.values()), list(disk.members.values()))
        self.vhost.journal.request_file()
        self.vhost.store.checkpoints.want()
        self.work()
        self.vhost.check()

    @property
    def groups(self) -> AdminVhost:
        """The vhost as admin sessions see it."""
        vhost = self.admin.vhost(b"/")
        assert vhost is not None
        return vhost

    def declare(
        self,
        name: bytes,
        durable: bool = True,
        settings: QueueSettings | None = None,
        owner: object | None = None,
        arguments: bytes = b"",
    ) -> Queue:
        """Declare a queue durably. A start takes the settings from `arguments`."""
        queue_id = self.broker.next_queue_id()
        definition = QueueDefinition(
            name, queue_id, durable, False, owner, arguments, settings or QueueSettings()
        )
        queue = self.vhost.add_queue(definition, self.clock.now_ms())
        self.vhost.add_changes(
            [PutQueue(b"/", queue.id, name, durable, False, arguments)] if durable else []
        )
        self.commit()
        return queue

    def delete(self, name: bytes) -> None:
        """Delete a queue durably."""
        self.vhost.add_changes(
            self.vhost.remove_queue(self.vhost.queues[name], self.clock.now_ms())
        )
        self.commit()

    def publish(
        self,
        queue: bytes,
        body: bytes,
        persistent: bool = True,
        properties: bytes = b"\x00\x00",
        address: bytes = b"\x00\x01q",
    ) -> int:
        """Publish one message to `queue`; returns its seq id."""
        target = self.vhost.queues[queue]
        seq = target.next_seq
        message = Message(address, properties, body, persistent, self.clock.now_ms())
        target.publish(message, NO_EXPIRATION, self.clock.now_ms())
        return seq

    def commit(self, ok: bool = True, is_torn: bool = False) -> None:
        """Commit until nothing is gathered; with `ok` False the first commit fails without a trace.

        `is_torn`: that commit fails after its definitions are written and before its journal
        records are.
        """
        journal = self.vhost.journal
        while journal.has_pending():
            batch = journal.seal()
            if ok or is_torn:
                self.disk.store(batch.change_sets)
            if not ok:
                self.driver.fail(batch, self.clock.now_ms())
                return
            self.driver.flush(batch, self.clock.now_ms())
            self.work()

    def work(self) -> None:
        """End turns until nothing is left to do without an event."""
        now_ms = self.clock.now_ms()
        while True:
            self.vhost.advance(now_ms)
            if not self.driver.run_jobs(now_ms) and not self.vhost.host.has_more:
                return

    def crash(self) -> "MemoryNode":
        """Lose power: returns a node started from the synced state; unsynced changes are lost."""
        self.disk.files.crash(NothingUnsynced(), POWER)
        return MemoryNode(self.disk, self.clock)


class MemoryClient:
    """One admin session of a node; `ask` runs the node until the reply comes."""

    def __init__(self, node: MemoryNode, log_in: bool = True, user: str = "guest") -> None:
        self.node = node
        self.output = bytearray()
        self.is_closed = False
        self.session = AdminSession(node.admin, self, node.clock, "127.0.0.1:1", True)
        if log_in:
            self.ask(Login(user, "guest", "/"))

    def write(self, data: bytearray, /) -> None:
        self.output += data

    def close(self) -> None:
        self.is_closed = True

    def send(self, request: Request) -> None:
        """Send `request` without waiting for the reply."""
        self.session.receive(bytes(encode_frame(request)))

    def replies(self) -> list[Reply]:
        """Replies that have come since the last call."""
        found = []
        while self.output:
            end = LENGTH_BYTES + int.from_bytes(self.output[:LENGTH_BYTES], "big")
            found.append(decode_reply(bytes(self.output[LENGTH_BYTES:end])))
            del self.output[:end]
        return found

    def ask(self, request: Request, commit_ok: bool = True, is_torn: bool = False) -> Reply:
        """Send `request` and run the node until the reply comes; time passes meanwhile."""
        self.send(request)
        for _ in range(10_000):
            if self.output:
                (reply,) = self.replies()
                return reply
            self.node.commit(commit_ok, is_torn)
            self.node.work()
            self.node.clock.advance(0 if self.output else 10)
        raise AssertionError(f"no reply to {request}")

    def must(self, request: Request) -> Reply:
        """The reply to `request`, which must not be an error."""
        reply = self.ask(request)
        assert not isinstance(reply, ErrorReply), reply
        return reply

    def refused(self, request: Request) -> str:
        """The error code of the reply to `request`, which must be an error."""
        reply = self.ask(request)
        assert isinstance(reply, ErrorReply), reply
        return reply.code
