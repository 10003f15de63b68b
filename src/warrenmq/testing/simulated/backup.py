"""A backup of the simulated node, made by the node's own code (`server/online_backup.py`) and judged as a crash is.

The copy of the definitions is the moment that a backup is of: every batch sealed before is durable, none behind it has
begun. What the oracle knows is kept from that moment on, and judges a node that is started from the backup as it would
judge one that had crashed then. Linked files share their bytes with the node's, so whoever goes on writing to a sealed
file spoils the backup as it would on a real disk.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Final

from warrenmq.offline.backup_files import OnPiece, SourceFile
from warrenmq.offline.data_directory import VHOSTS_PATH, ToolError
from warrenmq.server.online_backup import Backup, BackupRunner, Surroundings
from warrenmq.store.disk.flusher import FlusherCall
from warrenmq.store.jobs import StoreJob
from warrenmq.testing.models.oracle import Oracle
from warrenmq.testing.models.sinks import StagedMessages
from warrenmq.testing.simulated.file import SimulatedFile
from warrenmq.testing.simulated.file_system import SimulatedFileSystem
from warrenmq.testing.simulated.metadata import SimulatedMetadata
from warrenmq.testing.simulated.node import FLUSH, Job, SimulatedDisk, SimulatedNode

# Where the one vhost of the node has its files in a data directory.
_VHOST_PREFIX: Final = f"{VHOSTS_PATH}/1/"


class SimulatedBackup:
    """One backup of `node`, which goes on in the node's lanes; a BackupPlace in memory."""

    def __init__(self, node: SimulatedNode, oracle: Oracle, staged: StagedMessages) -> None:
        self.target = Path("backup")
        self.database = Path("backup/definitions")
        # The manifest is written.
        self.is_finished = False
        # The node went down before.
        self.is_interrupted = False
        # The time of the copied definitions.
        self.now_ms = 0
        self._node = node
        self._source = node.disk
        self._known = (oracle, staged)
        self._frozen = b""
        self._metadata: SimulatedMetadata | None = None
        # By path: linked files, and the bytes of copied ones.
        self._linked: dict[str, SimulatedFile] = {}
        self._copied: dict[str, bytes] = {}
        # Copying takes as long as the simulation wants: until then its jobs wait here, beside the lane of their thread.
        self._may_copy = False
        self._jobs: list[Job] = []
        # Calls that threads have left for the loop.
        self._calls: list[Callable[[], object]] = []
        surroundings = Surroundings(self, Path(), lambda: [node.vhost], node.wake)
        surroundings.copy_definitions = self._copy_definitions
        surroundings.call_flusher = self._call_flusher
        surroundings.submit = self._submit
        self._backup = Backup(surroundings, self)

    def start(self) -> None:
        """Ask the node for the backup's checkpoint."""
        self._backup.start()

    def copy(self) -> None:
        """From now on the thread of the long copies has time for the backup's files."""
        self._may_copy = True
        self._node.lanes["compact"].waiting.extend(self._jobs)
        self._jobs.clear()

    @property
    def is_running(self) -> bool:
        """Has it neither succeeded nor failed?"""
        return self._backup.is_running

    def interrupt(self) -> None:
        """The node stops or has crashed: a backup that is being made fails."""
        if self.is_running:
            self.is_interrupted = True
            self._backup.fail("the node stops")

    def status_text(self) -> str:
        """How far it is, or why it failed."""
        status = self._backup.status()
        return f"{status.step} {status.text}".rstrip()

    def frozen(self) -> tuple[Oracle, StagedMessages]:
        """The oracle, and what it knows of sinks, as of the copied definitions: new objects at each call."""
        oracle, staged = pickle.loads(self._frozen)  # noqa: S301  # written by this process
        assert isinstance(oracle, Oracle) and isinstance(staged, StagedMessages)
        return oracle, staged

    def disk(self) -> SimulatedDisk:
        """The finished backup as a power failure now would leave it: linked files with the bytes on the platter."""
        assert self._metadata is not None
        files = SimulatedFileSystem()
        contents = dict(self._copied)
        for path, file in self._linked.items():
            contents[path] = bytes(file.durable) + bytes(
                max(0, file.durable_allocated - len(file.durable))
            )
        for path, content in contents.items():
            files.make_directories(path.rpartition("/")[0])
            files.create(path).write(0, [content])
        files.sync_all()
        files.open_handles = 0
        return SimulatedDisk(files, self._metadata.fork(files))

    # -- the loop and the threads --------------------------------------------------------------------------------

    def call_soon_threadsafe(self, callback: Callable[..., object], /, *args: object) -> object:
        """See Loop: the call is made when the loop hears of the job that asks for it."""
        self._calls.append(lambda: callback(*args))
        return None

    def _make_calls(self) -> None:
        calls, self._calls = self._calls, []
        for call in calls:
            call()

    def _call_flusher(self, call: FlusherCall) -> None:
        self._node.lanes[FLUSH].waiting.append(
            Job("copy the definitions", call.run, self._make_calls)
        )

    def _submit(self, job: StoreJob) -> None:
        self._jobs.append(Job("backup", lambda: BackupRunner().run(job), job.finished))
        if self._may_copy:
            self.copy()

    def _copy_definitions(self, _path: Path) -> None:
        self._source.files.step("metadata", "")
        self._metadata = self._source.metadata.fork(SimulatedFileSystem())
        self._frozen = pickle.dumps(self._known)
        self.now_ms = self._node.now_ms

    # -- the place -----------------------------------------------------------------------------------------------

    def take(
        self,
        written: dict[str, bytes],
        files: list[SourceFile],
        on_piece: OnPiece,
        on_file: OnPiece,
    ) -> None:
        """See BackupPlace."""
        for place, content in written.items():
            self._copied[place.removeprefix(_VHOST_PREFIX)] = content
        source = self._source.files
        for file in files:
            path = file.path.removeprefix(_VHOST_PREFIX)
            if file.is_sealed:
                self._linked[path] = source.linked(path)
                continue
            size = file.size if file.size >= 0 else source.size(path)
            content = source.read(path, 0, size)
            if len(content) < size:
                raise ToolError(f"{path} ends {size - len(content)} bytes before it should")
            self._copied[path] = content
            on_piece(size)
            on_file(size)

    def list_files(self) -> int:
        """See BackupPlace."""
        return 0

    def add_checksums(self, _on_piece: OnPiece) -> bool:
        """See BackupPlace."""
        return False

    def finish(self) -> None:
        """See BackupPlace."""
        self.is_finished = True

    def give_up(self) -> None:
        """See BackupPlace."""
        self.is_finished = False
