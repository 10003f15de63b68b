"""A broker in memory with an administration: vhosts come at once, turns come one by one."""

from collections import deque
from collections.abc import Callable

from simulator.simulated.file_system import SimulatedFileSystem
from tests.support.brokers.memory_broker import MemoryBroker
from tests.support.stores.store_driver import StoreDriver
from warrenmq.admin.clock import Timer
from warrenmq.admin.definitions.administration import Administration, Refusal
from warrenmq.admin.definitions.export import export_pieces
from warrenmq.admin.definitions.importing import DefinitionsImport
from warrenmq.admin.protocol.control import Imported
from warrenmq.broker.definitions.metadata import Change, PutVhost
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.store.settings import StoreSettings


class AdministeredBroker:
    """A node in memory; also the shell of its administration and the clock of its imports."""

    def __init__(self) -> None:
        self.memory = MemoryBroker()
        self.broker = self.memory.broker
        # The id of the vhost / that a memory broker has.
        self.broker.next_vhost_id()
        self.administration = Administration(self.broker, self)
        self.turns: deque[Callable[[], object]] = deque()
        self.stored: list[Change] = []
        # Why changes of the administration cannot be stored, or "".
        self.failure = ""
        self._drivers: dict[bytes, StoreDriver] = {}

    def import_definitions(
        self, data: bytes, vhost: str | None = None, is_dry_run: bool = False
    ) -> Imported | Refusal:
        """Run an import to its end."""
        outcomes: list[Imported | Refusal] = []
        DefinitionsImport(self.broker, self.administration, self, vhost, outcomes.append).start(
            data, is_dry_run
        )
        while not outcomes:
            self.turn()
        assert not self.turns and len(outcomes) == 1
        return outcomes[0]

    def imported(self, data: bytes, vhost: str | None = None, is_dry_run: bool = False) -> Imported:
        """Run an import that must not be refused."""
        outcome = self.import_definitions(data, vhost, is_dry_run)
        assert isinstance(outcome, Imported), outcome
        return outcome

    def exported(self, vhost: bytes | None = None) -> bytes:
        """The definitions of the node, or of one vhost."""
        one = None if vhost is None else self.broker.vhosts[vhost]
        return b"".join(export_pieces(self.broker, one))

    def turn(self) -> None:
        """Commit what is to be committed, and make the next call that waits for a turn."""
        self.pump()
        if self.turns:
            self.turns.popleft()()

    def pump(self) -> None:
        """Commit what all vhosts have to commit."""
        self.memory.pump()
        for name, driver in self._drivers.items():
            journal = self.broker.vhosts[name].journal
            while journal.has_pending():
                driver.flush(journal.seal(), self.memory.now_ms)

    # -- the shell ---------------------------------------------------------------------------------

    def store(self, changes: list[Change], done: Callable[[str], None]) -> None:
        """Store changes, unless they are to fail."""
        if not self.failure:
            self.stored += changes
        done(self.failure)

    def open_vhost(self, definition: PutVhost, done: Callable[[str], None]) -> None:
        """Open a vhost."""
        driver = StoreDriver(SimulatedFileSystem(), StoreSettings(1 << 24))
        vhost = Vhost(self.broker, definition.name, definition.id, driver.store)
        vhost.definition = definition
        self.broker.vhosts[definition.name] = vhost
        self._drivers[definition.name] = driver
        done("")

    def close_vhost(self, vhost: Vhost, done: Callable[[], None]) -> None:
        """Close a vhost."""
        del self._drivers[vhost.name]
        done()

    # -- the clock ---------------------------------------------------------------------------------

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> Timer:
        """Imports use no timers."""
        raise NotImplementedError

    def call_soon(self, callback: Callable[[], object], /) -> object:
        """Call `callback` in a later turn."""
        self.turns.append(callback)
        return callback

    def now_ms(self) -> int:
        """The time of the broker."""
        return self.memory.now_ms
