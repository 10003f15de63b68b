"""The sans-I/O engine as a whole broker in memory: real connections, queues and journal.

There are no sockets, no disk and no clock. Time moves when a test waits for bytes that do not come,
so a wait of a minute takes no time. A commit succeeds at once unless the test defers commits or
lets them fail.
"""

import hashlib
import itertools

from simulator.simulated.file_system import SimulatedFileSystem
from tests.support.stores.store_driver import StoreDriver
from warrenmq.broker.broker import Broker
from warrenmq.broker.connection.connection import Connection
from warrenmq.broker.connection.handshake import NEVER
from warrenmq.broker.connection.states import CLOSED
from warrenmq.broker.definitions.metadata import Definitions, PutPermission, PutUser
from warrenmq.broker.definitions.passwords import hash_password
from warrenmq.broker.definitions.settings import Settings
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.store.settings import StoreSettings

JOURNAL_FILE_BYTES = 1 << 24
# Bytes that a socket buffers while the client does not read.
SOCKET_BYTES = 1 << 20
STEP_MS = 10
# Patience (s) by the simulated clock, which moves during a wait; later bytes never come.
PATIENCE_S = 10.0
GUEST = PutUser(
    b"guest", hash_password(b"guest"), "rabbit_password_hashing_sha256", ["administrator"]
)
# Users that a default broker does not have.
IMPERSONATOR = PutUser(b"actor", GUEST.password_hash, GUEST.hashing, ["impersonator"])
OUTSIDER = PutUser(b"outsider", GUEST.password_hash, GUEST.hashing, [])


class MemoryBroker:
    """A broker with vhost / and user guest."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.now_ms = 1_700_000_000_000
        self.links: list[EngineLink] = []
        # While True, commits stay in flight: confirms and durable declarations wait.
        self.holds_commits = False
        # Number of next commits that will fail.
        self.failing_commits = 0
        numbers = itertools.count()

        def random_bytes(size: int) -> bytes:
            return hashlib.shake_128(str(next(numbers)).encode()).digest(size)

        # The broker has asked for another turn.
        self.is_woken = False
        self.broker = Broker(settings or Settings(), random_bytes, self.wake)
        definitions = Definitions()
        definitions.users = [GUEST, IMPERSONATOR, OUTSIDER]
        definitions.permissions = [
            PutPermission(b"/", user.name, ".*", ".*", ".*") for user in (GUEST, IMPERSONATOR)
        ]
        self.broker.load_users(definitions)
        self.driver = StoreDriver(SimulatedFileSystem(), StoreSettings(JOURNAL_FILE_BYTES))
        self.vhost = Vhost(self.broker, b"/", 1, self.driver.store)
        self.broker.vhosts[b"/"] = self.vhost

    def wake(self) -> None:
        self.is_woken = True

    def connect(self, is_loopback: bool = True) -> "EngineLink":
        link = EngineLink(self, is_loopback)
        self.links.append(link)
        self.pump()
        return link

    def pump(self) -> None:
        """End the turn as a node does: commits and jobs of the store, then output."""
        while True:
            self.commit()
            self.broker.end_turn(self.now_ms)
            dirty = self.broker.take_dirty()
            if not dirty:
                return
            for connection in dirty:
                parts = b"".join(connection.take_output())
                link = connection.shell
                if isinstance(link, EngineLink):
                    link.take(parts)
                    link.look_at_state()
                connection.on_written(self.now_ms)

    def commit(self) -> None:
        """Finish the batches of the journal, and the jobs of the store."""
        journal = self.vhost.journal
        while True:
            while journal.has_pending() and not self.holds_commits:
                if self.failing_commits > 0:
                    self.failing_commits -= 1
                    self.driver.fail(journal.seal(), self.now_ms)
                else:
                    self.driver.flush(journal.seal(), self.now_ms)
            self.is_woken = False
            has_more = self.vhost.advance(self.now_ms) and journal.has_pending()
            has_more = has_more or (self.is_woken and len(self.vhost.host.listed) > 0)
            if not self.driver.run_jobs(self.now_ms) and not has_more:
                return

    def advance(self, ms: int) -> None:
        """Let `ms` pass, with ticks and turns."""
        end_ms = self.now_ms + ms
        while self.now_ms < end_ms:
            self.now_ms += min(STEP_MS, end_ms - self.now_ms)
            self.broker.tick(self.now_ms)
            self.broker.tick_connections(self.now_ms)
            self.pump()
            for link in self.links:
                link.look_at_state()


class EngineLink:
    """The client's end of a connection to a `MemoryBroker`, in place of a socket."""

    def __init__(self, memory: MemoryBroker, is_loopback: bool) -> None:
        self.memory = memory
        self.patience_s = PATIENCE_S
        self.arrived = bytearray()
        self.is_at_end = False
        # While True, the socket takes nothing.
        self.is_stuck = False
        # Bytes that the broker has written to a stuck socket.
        self.unsent = 0
        self._header = b""
        self._is_loopback = is_loopback
        self.connection: Connection | None = None

    def send(self, data: bytes) -> None:
        if self.is_at_end:
            return
        if self.connection is None:
            # The listener, which this broker lacks, would take the protocol header.
            self._header += data
            if len(self._header) < 8:
                return
            data = self._header[8:]
            memory = self.memory
            self.connection = memory.broker.connect("test", self._is_loopback, memory.now_ms)
            self.connection.shell = self
        if data:
            self.connection.receive(data, self.memory.now_ms)
        self.memory.pump()

    def take(self, parts: bytes) -> None:
        """Take bytes that the broker writes."""
        assert self.connection is not None
        if self.is_stuck:
            self.unsent += len(parts)
            self.connection.is_writable = self.unsent <= SOCKET_BYTES
        else:
            self.arrived += parts
        self.connection.out.set_unsent(self.unsent)

    def receive(self, timeout_s: float) -> bytes | None:
        """Bytes that arrived; b"" at the end of the stream, None when nothing comes in time."""
        deadline_ms = self.memory.now_ms + int(timeout_s * 1000)
        self.memory.pump()
        while not self.arrived and not self.is_at_end and self.memory.now_ms < deadline_ms:
            self.memory.advance(STEP_MS)
        if self.arrived:
            data = bytes(self.arrived)
            self.arrived.clear()
            return data
        return b"" if self.is_at_end else None

    def close(self) -> None:
        self.is_at_end = True
        if self in self.memory.links:
            self.memory.links.remove(self)
        if self.connection is not None:
            self.connection.shell = None
            self.memory.broker.disconnect(self.connection, self.memory.now_ms)
            self.connection = None
        self.memory.pump()

    def look_at_state(self) -> None:
        """Close the link when the broker wants the connection closed."""
        connection = self.connection
        if connection is None or self.is_at_end:
            return
        now_ms = self.memory.now_ms
        is_due = connection.close_at_ms != NEVER and connection.close_at_ms <= now_ms
        if is_due or (connection.state == CLOSED and connection.close_at_ms <= connection.now_ms):
            self.is_at_end = True
            self.memory.broker.disconnect(connection, now_ms)
