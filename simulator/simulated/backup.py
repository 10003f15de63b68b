"""A backup of the simulated node, made by `server/online_backup.py` and judged as a crash is.

A backup shows the node at the moment at which the definitions are copied: every batch sealed before
it is durable, and no later batch has begun. A copy of the oracle is taken at that moment. That copy
judges a node that starts from the backup as the oracle would judge a node that crashed at that
moment. Linked files share their bytes with the node's files, so code that writes to a sealed file
spoils the backup, as it would on a real disk.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Final

from simulator.models.oracle import Oracle
from simulator.models.sinks import StagedMessages
from simulator.simulated.file import SimulatedFile
from simulator.simulated.file_system import SimulatedFileSystem
from simulator.simulated.metadata import SimulatedMetadata
from simulator.simulated.node import FLUSH, Job, SimulatedDisk, SimulatedNode
from warrenmq.offline.backup_files import OnPiece, SourceFile
from warrenmq.offline.data_directory import VHOSTS_PATH, ToolError
from warrenmq.server.online_backup import Backup, BackupRunner, BackupServices
from warrenmq.store.disk.flusher import FlusherCall
from warrenmq.store.jobs.job import StoreJob

# Prefix of the paths of the node's one vhost in a data directory.
_VHOST_PREFIX: Final = f"{VHOSTS_PATH}/1/"


class SimulatedBackup:
    """One backup of `node`, run in the node's lanes; it is also the BackupPlace, in memory."""

    def __init__(self, node: SimulatedNode, oracle: Oracle, staged: StagedMessages) -> None:
        self.target = Path("backup")
        self.database = Path("backup/definitions")
        # The manifest is written: the backup is complete.
        self.is_finished = False
        # The node went down before the backup was complete.
        self.is_interrupted = False
        # Time (ms) at which the definitions were copied.
        self.now_ms = 0
        self._node = node
        self._source = node.disk
        self._known = (oracle, staged)
        self._frozen = b""
        self._metadata: SimulatedMetadata | None = None
        # Linked files by path.
        self._linked: dict[str, SimulatedFile] = {}
        # Bytes of copied files by path.
        self._copied: dict[str, bytes] = {}
        # False: the copy thread is busy, and jobs of the backup wait in `_jobs`, outside the
        # thread's lane.
        self._may_copy = False
        self._jobs: list[Job] = []
        # Calls that threads have left for the loop.
        self._calls: list[Callable[[], object]] = []
        surroundings = BackupServices(
            self.call_soon_threadsafe, Path(), lambda: [node.vhost], node.wake
        )
        surroundings.copy_definitions = self._copy_definitions
        surroundings.call_flusher = self._call_flusher
        surroundings.submit = self._submit
        self._backup = Backup(surroundings, self)

    def start(self) -> None:
        """Request the checkpoint that the backup starts with."""
        self._backup.start()

    def copy(self) -> None:
        """Give the copy thread time for the backup: move the waiting jobs to its lane."""
        self._may_copy = True
        self._node.lanes["compact"].waiting.extend(self._jobs)
        self._jobs.clear()

    @property
    def is_running(self) -> bool:
        """True until the backup has succeeded or failed."""
        return self._backup.is_running

    def interrupt(self) -> None:
        """Fail a backup in progress, because the node stops or has crashed."""
        if self.is_running:
            self.is_interrupted = True
            self._backup.fail("the node stops")

    def status_text(self) -> str:
        """The step that the backup is at, or why it failed."""
        status = self._backup.status()
        return f"{status.step} {status.text}".rstrip()

    def frozen(self) -> tuple[Oracle, StagedMessages]:
        """New copies of the oracle and its sinks, as they were when the definitions were copied."""
        oracle, staged = pickle.loads(self._frozen)  # noqa: S301  # written by this process
        assert isinstance(oracle, Oracle) and isinstance(staged, StagedMessages)
        return oracle, staged

    def disk(self) -> SimulatedDisk:
        """The finished backup after a power failure: linked files have durable bytes only."""
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

    # -- the loop and the threads ------------------------------------------------------------------

    def call_soon_threadsafe(self, callback: Callable[..., object], /, *args: object) -> object:
        """The call runs when the loop learns that the job which asks for it has ended."""
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

    # -- the place ---------------------------------------------------------------------------------

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

    def discard(self) -> None:
        """See BackupPlace."""
        self.is_finished = False
