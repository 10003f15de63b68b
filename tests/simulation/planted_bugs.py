"""Bugs of our own, planted where the simulated node lets them in (`warren/testing/seams.py`)."""

from warren.store.file_system import FileSystem
from warren.testing.seams import Seams
from warren.testing.simulated_file_system import SimulatedFileHandle, SimulatedFileSystem


class _LazyHandle(SimulatedFileHandle):
    """A file whose sync is a promise that nobody keeps."""

    def sync(self) -> None:
        self._system.step("sync", self._path)


class _LazyFileSystem(SimulatedFileSystem):
    """The same disk, but that journal files are never synced."""

    def __init__(self, files: SimulatedFileSystem) -> None:
        self.__dict__ = files.__dict__

    def create(self, path: str) -> SimulatedFileHandle:
        handle = super().create(path)
        if not path.endswith(".wal"):
            return handle
        handle.close()
        return _LazyHandle(self, path, handle.file)


class SkippedSync(Seams):
    """A batch is written and not synced."""

    def files(self, files: FileSystem) -> FileSystem:
        assert isinstance(files, SimulatedFileSystem)
        return _LazyFileSystem(files)


class EarlyConfirm(Seams):
    """Publishers are told before the disk has it."""

    confirms_early = True


PLANTED: dict[str, type[Seams]] = {
    "a skipped sync": SkippedSync,
    "an early confirm": EarlyConfirm,
}
